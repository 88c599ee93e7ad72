"""Connect rates and the interval between reconciliations."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.pace import BURST_SHARE, SPREAD, ReconcilePace, TokenBucket
from daemon.settings import DaemonSettings


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(10.0)
    assert [bucket.reserve(100.0) for _ in range(5)] == pytest.approx([0.0, 0.0, 0.125, 0.25, 0.375])
    assert bucket.ready(100.0) == 0
    assert bucket.ready(100.5) == 1
    assert bucket.ready(1000.0) == 2, "idle time is not saved up beyond the burst"


def test_another_rate_holds_from_now_on() -> None:
    bucket = TokenBucket(5.0)
    bucket.reserve(0.0)
    bucket.set_rate(2.0)
    assert bucket.reserve(0.0) == pytest.approx(1 / 1.6)


@given(
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=200),
    st.floats(0.5, 50.0),
)
def test_no_second_sees_more_than_the_rate(steps: list[float], per_s: float) -> None:
    bucket = TokenBucket(per_s)
    now_s = 0.0
    used: list[float] = []
    for step in steps:
        now_s += step
        used.append(now_s + bucket.reserve(now_s))
    used.sort()
    for start, first in enumerate(used):
        within = sum(1 for moment in used[start:] if moment < first + 1.0)
        assert within <= max(1.0, BURST_SHARE * per_s) + per_s * (1 - BURST_SHARE) + 1e-6


def pace(**settings: Any) -> ReconcilePace:
    return ReconcilePace(DaemonSettings(**settings), random.Random(7))


def around(target_s: float) -> tuple[float, float]:
    return target_s * (1 - SPREAD), target_s * (1 + SPREAD)


@pytest.mark.parametrize(("quiet_rounds", "target_s"), [(0, 60.0), (1, 300.0), (10_000, 300.0)])
def test_the_interval_of_a_quiet_caller_grows(quiet_rounds: int, target_s: float) -> None:
    low_s, high_s = around(target_s)
    got = [pace().interval_s(0.0, quiet_rounds=quiet_rounds, feeds=1) for _ in range(50)]
    assert all(low_s <= interval_s <= high_s for interval_s in got)


def test_a_loss_makes_every_interval_short_for_a_while() -> None:
    rounds = pace()
    assert rounds.alarm(1000.0), "the first loss is news"
    assert not rounds.alarm(1001.0), "the next is not: everybody reconciles already"
    low_s, high_s = around(15.0)
    assert low_s <= rounds.interval_s(1002.0, quiet_rounds=9, feeds=1) <= high_s
    assert rounds.interval_s(1001.0 + 121.0, quiet_rounds=9, feeds=1) >= around(300.0)[0]


def test_many_feeds_together_never_list_more_than_the_rate() -> None:
    rounds = pace(lists_per_s=100.0)
    rounds.alarm(0.0)
    low_s, high_s = around(200.0)
    assert low_s <= rounds.interval_s(1.0, quiet_rounds=0, feeds=20_000) <= high_s
    soon = [rounds.soon_s(feeds=20_000) for _ in range(500)]
    assert 0.0 <= min(soon) < 20.0
    assert 180.0 < max(soon) <= 200.0
