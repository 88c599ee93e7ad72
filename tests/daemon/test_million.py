"""A million callers on 25 daemons, by the rules alone: who owns whom, and how connects are spread."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest

from daemon.ownership import HEADROOM, assign
from daemon.pacing import HORIZON_S, LATE_S, USED_SHARE, steady_per_s
from ledger.connect_slots import reserve_slots
from ledger.values import CallerKey

CALLERS = 1_000_000
DAEMONS = [f"daemon-{number}" for number in range(25)]
SHARE = CALLERS // len(DAEMONS)


def test_each_daemon_carries_its_share_and_a_dead_one_moves_only_its_own() -> None:
    rng = random.Random(7)
    callers = [CallerKey(f"{rng.getrandbits(128):032x}") for _ in range(CALLERS)]
    first: dict[str, str] = {}
    before = assign(DAEMONS, callers, first=first)
    assert len(first) <= 65_536, "a plan remembers slots, not callers"
    loads = Counter(before.values())
    assert max(loads.values()) <= HEADROOM * SHARE
    assert min(loads.values()) >= 0.9 * SHARE
    after = assign(DAEMONS[1:], callers)
    moved = sum(before[caller] != owner for caller, owner in after.items())
    assert loads[DAEMONS[0]] <= moved <= 1.05 * loads[DAEMONS[0]]


@pytest.mark.parametrize("per_s", [500.0, 2000.0])
def test_after_a_host_restart_every_second_keeps_to_the_rate_and_no_daemon_is_starved(per_s: float) -> None:
    """All daemons ask for slots whenever they used theirs, each a little late, as `daemon.pacing.ConnectPacer` does."""
    rng = random.Random(11)
    every_s = 1.0 / steady_per_s(per_s)
    left = dict.fromkeys(DAEMONS, SHARE)
    asks = [(rng.random(), name) for name in DAEMONS]
    heapq.heapify(asks)
    free_at_s, end_s = 0.0, 0.0
    per_second: Counter[int] = Counter()
    served_at_s = dict.fromkeys(DAEMONS, 0.0)
    longest_without_s = 0.0
    while asks:
        now_s, name = heapq.heappop(asks)
        slots, free_at_s = reserve_slots(free_at_s, now_s, count=left[name], every_s=every_s, within_s=HORIZON_S)
        first_s = now_s + slots.first_in_s
        for number in range(slots.count):
            per_second[int(first_s + number * slots.every_s + rng.uniform(0.0, LATE_S))] += 1
        left[name] -= slots.count
        end_s = first_s + slots.count * slots.every_s if slots.count else now_s
        if slots.count:
            longest_without_s = max(longest_without_s, first_s - served_at_s[name])
            served_at_s[name] = end_s
        if not left[name]:
            continue
        wait_s = max(slots.every_s, slots.first_in_s - HORIZON_S / 2) if not slots.count else 0.0
        heapq.heappush(asks, (end_s + wait_s + rng.uniform(0.0, 0.002), name))
    assert sum(per_second.values()) == CALLERS
    assert max(per_second.values()) <= per_s
    assert end_s <= 1.02 * CALLERS / (USED_SHARE * per_s)
    assert longest_without_s <= 3.0, "each daemon goes on opening sockets"
