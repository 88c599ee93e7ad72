"""The scripts follow the rules of `ledger.memory.CallerLedger`."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.memory import MemoryLedger
from ledger.port import Ledger
from ledger.redis.ledger import RedisLedger
from ledger.redis.scripts import Scripts
from ledger.values import START, Baseline, CallerKey, LedgerLimits, LedgerState, Seen
from tests.fake_redis import FakeTopology

ALICE = CallerKey("a" * 32)
LIMITS = LedgerLimits(max_entries=5, max_gone=4)
HOUR_S = 3600.0
"""The two clocks differ by less, so that they agree on what is ahead of time."""

STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 60), st.sampled_from([-90, -30, -2, 1, 1, 30, 9e5])), max_size=9),
        st.booleans(),
        st.integers(0, 70),
    ),
    max_size=12,
)
"""What is appended (id, hours ahead), whether after comparing, and up to where nothing is missing then."""


def seen(message_id: int, sent_at_s: float) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@b.test", sent_at_s=sent_at_s)


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_both_hold_forget_and_miss_the_same(steps: list[tuple[list[tuple[int, float]], bool, int]]) -> None:
    asyncio.run(run(steps))


async def run(steps: list[tuple[list[tuple[int, float]], bool, int]]) -> None:
    topology = FakeTopology()
    ledger = RedisLedger(Scripts(topology.commands), topology, limits=LIMITS)
    other = MemoryLedger(limits=LIMITS)
    now_s = time.time()
    baseline = Baseline(newest_id=20, time_s=now_s - 60 * HOUR_S)
    state = await ledger.begin(ALICE, [], baseline)
    expected = await other.begin(ALICE, [], baseline)
    everything = [[seen(id_, now_s + hours * HOUR_S) for id_ in range(1, 61)] for hours in (-90, -30, 30, 9e5)]
    for messages, walked, verified_id in steps:
        batch = [seen(id_, now_s + hours * HOUR_S) for id_, hours in messages]
        moved_id = verified_id if walked else 0
        ones: tuple[tuple[Ledger, LedgerState], ...] = ((ledger, state), (other, expected))
        appended, told = [
            await one.append(ALICE, batch, "push", since=before.head if walked else None, verified_id=moved_id)
            for one, before in ones
        ]
        assert [one.id for one in appended.new] == [one.id for one in told.new]
        state, expected = appended.state, told.state
        for listed in everything:
            compared = await ledger.compare(ALICE, listed, since=state.head)
            assert compared.news == (await other.compare(ALICE, listed)).news
        for name in ("baseline", "settled", "verified_id", "held"):
            assert getattr(state, name) == getattr(expected, name), name
        assert await ids(ledger) == await ids(other)
        gone = await topology.commands.execute_command("HKEYS", topology.key(ALICE, "gone"))
        assert set(map(int, gone)) == set(other._ledgers[ALICE].gone)
    await topology.aclose()


async def ids(ledger: Ledger) -> list[int]:
    return [entry.id for entry in (await ledger.read(ALICE, START, 100)).entries]
