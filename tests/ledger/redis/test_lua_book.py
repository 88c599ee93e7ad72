"""The ledger as Lua sees it does what `ledger.book` does."""

from __future__ import annotations

import asyncio
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.book import Book
from ledger.redis.ledger import RedisLedger
from ledger.redis.lua_book import VALUES
from ledger.redis.scripts import Scripts
from ledger.values import Baseline, CallerKey, LedgerLimits, Seen
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
    now_s = time.time()
    baseline = Baseline(newest_id=20, time_s=now_s - 60 * HOUR_S)
    book = Book("epoch", baseline)
    book.begun()
    state = await ledger.begin(ALICE, [], baseline)
    everything = [[seen(id_, now_s + hours * HOUR_S) for id_ in range(1, 61)] for hours in (-90, -30, 30, 9e5)]
    for messages, walked, complete_id in steps:
        batch = [seen(id_, now_s + hours * HOUR_S) for id_, hours in messages]
        for one in batch:
            if not book.knows(one.id) and (not walked or book.is_news(one)):
                book.add(one, arrived_at_s=now_s, source="push")
        book.compared(complete_id if walked else 0, LIMITS.max_gone)
        book.trim(LIMITS.max_entries, LIMITS.max_gone)
        appended = await ledger.append(
            ALICE, batch, "push", since=state if walked else None, complete_id=complete_id if walked else 0
        )
        state = appended.state
        for listed in everything:
            compared = await ledger.compare(ALICE, listed, since=state)
            assert compared.news == {one.id for one in listed if not book.knows(one.id) and book.is_news(one)}
        assert (state.first_n, state.last_n, state.baseline) == (book.first_n, book.last_n, book.baseline)
        assert state.complete_id == book.complete_id
        assert [entry.id for entry in (await ledger.read(ALICE, 0, 100)).entries] == list(book.places)
        gone = await topology.commands.execute_command("HKEYS", topology.key(ALICE, "gone"))
        assert set(map(int, gone)) == set(book.gone)
    await topology.aclose()


@pytest.mark.parametrize(
    "value", [0.0, 1e-300, 0.1, 1.0, 1.5, 255.75, 1_764_504_000.1234567, 2.0**53 + 2, 4e15, 1.7976931348623157e308]
)
async def test_a_double_is_read_exactly(value: float) -> None:
    topology = FakeTopology()
    lua = VALUES + "return string.format('%.17g', seconds(ARGV[1])) .. ' ' .. number(ARGV[2], 1, 8)"
    found = await topology.commands.execute_command(
        "EVAL", lua, 0, struct.pack(">d", value), struct.pack(">Q", 2**52 + 1)
    )
    seconds, number = found.split()
    assert float(seconds) == value
    assert float(number) == pytest.approx(2**52 + 1, rel=1e-13)
    await topology.aclose()


async def test_a_ledger_of_an_older_version_is_none() -> None:
    topology = FakeTopology()
    ledger = RedisLedger(Scripts(topology.commands), topology)
    await ledger.begin(ALICE, [seen(1, 5.0)], Baseline(newest_id=1))
    await topology.commands.execute_command("HDEL", topology.key(ALICE, "meta"), "complete")
    assert await ledger.state(ALICE) is None
    assert await topology.commands.execute_command("KEYS", "*") == []
    await topology.aclose()
