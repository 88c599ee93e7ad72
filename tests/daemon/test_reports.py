"""Who says what of a feed, and when it holds its tongue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import cast

import pytest

from daemon.feed.machine import State
from daemon.feed.runner import FeedRunner
from daemon.heartbeat import Heartbeat
from daemon.reports import TOGETHER, HeldFeed, Reporter
from ledger.memory import MemoryActivations, MemoryFleet
from ledger.port import FeedReport, LedgerUnavailable
from ledger.values import CallerKey
from tests.daemon.world import Bell, quick

ALICE, BOB = CallerKey("a" * 32), CallerKey("b" * 32)


class FakeRunner:
    """A feed in a state."""

    def __init__(self, state: State) -> None:
        self.state = state

    def report(self, daemon: str) -> FeedReport:
        """As a feed does."""
        return FeedReport(state=self.state.value, daemon=daemon, since_s=0.0)


class Writing:
    """A reporter at work, and what it wrote."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.written: list[tuple[CallerKey, str]] = []
        self.failures = 0
        self.failure: Exception = LedgerUnavailable("not now")
        self.held: dict[CallerKey, HeldFeed] = {}
        self.activations = MemoryActivations(ttl_s=1e6, clock=self.clock)
        report = self.activations.report

        async def noting(caller: CallerKey, said: FeedReport) -> None:
            if self.failures:
                self.failures -= 1
                raise self.failure
            self.written.append((caller, said.state))
            await report(caller, said)

        self.activations.__dict__["report"] = noting
        self.bell = Bell()
        self.bell.on(self.activations, "report")
        self.heart = Heartbeat(
            MemoryFleet(heartbeat_ttl_s=10.0, clock=self.clock),
            id_="one",
            name="one",
            settings=quick(),
            clock=self.clock,
            now=self.clock,
        )
        self.reporter = Reporter(
            self.activations, self.held, self.heart, clock=self.clock, rng=random.Random(1), again_s=0.01
        )

    def clock(self) -> float:
        return self.now_s

    def put(self, caller: CallerKey, state: State, *, quiet_until_s: float = 0.0) -> HeldFeed:
        """A feed of ours that just got into a state."""
        feed = self.held.get(caller)
        runner = cast("FeedRunner", FakeRunner(state))
        if feed is None:
            feed = HeldFeed(runner, epoch=1, asked_at_s=0.0, quiet_until_s=quiet_until_s)
            self.held[caller] = feed
        feed.runner = runner
        self.reporter.changed(caller)
        return feed

    async def all_said(self) -> list[tuple[CallerKey, str]]:
        """Let it work until a last word about somebody else is through; what was written before."""
        self.put(BOB, State.STOPPED)
        await self.bell.until(lambda: (BOB, "stopped") in self.written)
        said = [word for word in self.written if word[0] != BOB]
        self.written.clear()
        return said


@pytest.fixture
async def writing() -> AsyncIterator[Writing]:
    """A reporter that runs, of a daemon that lives."""
    writing = Writing()
    await writing.heart.beat(load=0, draining=False)
    writing.heart.trust()
    running = asyncio.create_task(writing.reporter.run())  # ended below
    yield writing
    running.cancel()


async def test_a_feed_on_its_way_says_nothing_until_it_arrived(writing: Writing) -> None:
    writing.put(ALICE, State.CONNECTING)
    assert await writing.all_said() == []
    writing.put(ALICE, State.BACKFILLING)
    writing.put(ALICE, State.LIVE)
    assert await writing.all_said() == [(ALICE, "live")]


async def test_a_feed_that_was_live_says_at_once_that_it_is_not(writing: Writing) -> None:
    writing.put(ALICE, State.LIVE)
    await writing.all_said()
    writing.put(ALICE, State.BACKFILLING)
    assert await writing.all_said() == [(ALICE, "backfilling")]


async def test_only_the_latest_word_is_written(writing: Writing) -> None:
    for state in (State.LIVE, State.BACKING_OFF, State.LIVE, State.ASKING):
        writing.put(ALICE, state)
    assert await writing.all_said() == [(ALICE, "asking")]


async def test_a_feed_just_taken_over_says_only_that_it_is_live_at_first(writing: Writing) -> None:
    writing.put(ALICE, State.BACKING_OFF, quiet_until_s=1005.0)
    assert await writing.all_said() == []
    writing.now_s = 1005.0
    await writing.heart.beat(load=0, draining=False)
    writing.reporter.changed(ALICE)
    assert await writing.all_said() == [(ALICE, "backing_off")]


async def test_callers_of_others_are_their_business(writing: Writing) -> None:
    writing.put(ALICE, State.LIVE).owned = False
    assert await writing.all_said() == []
    writing.reporter.changed(CallerKey("n" * 32))
    assert await writing.all_said() == []


async def test_a_daemon_that_may_be_dead_to_the_others_says_nothing_until_it_looked(writing: Writing) -> None:
    writing.now_s += 60.0
    writing.put(ALICE, State.LIVE)
    for _ in range(20):
        await asyncio.sleep(0)
    assert writing.written == []
    await writing.heart.beat(load=0, draining=False)
    writing.held[ALICE].owned = False
    writing.heart.trust()
    assert await writing.all_said() == []


async def test_what_the_store_did_not_take_is_said_again(writing: Writing) -> None:
    writing.failures = 3
    writing.put(ALICE, State.LIVE)
    await writing.bell.until(lambda: writing.written == [(ALICE, "live")])


async def test_what_the_store_failed_at_for_a_reason_nobody_thought_of_is_said_again(
    writing: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    writing.failures = 3
    writing.failure = AttributeError("'NoneType' object has no attribute 'writelines'")
    writing.put(ALICE, State.LIVE)
    await writing.bell.until(lambda: writing.written == [(ALICE, "live")])
    assert [record.message for record in caplog.records] == ["a feed could not be reported"] * 3


async def test_a_store_that_failed_over_is_told_everything_again(writing: Writing) -> None:
    """A promoted replica may hold old words, of feeds that are on their way since, too: an old live goes first."""
    carol = CallerKey("c" * 32)
    writing.put(ALICE, State.LIVE)
    writing.put(carol, State.CONNECTING)
    assert await writing.all_said() == [(ALICE, "live")]
    writing.written.clear()
    writing.reporter.repeat()
    await writing.bell.until(lambda: len(writing.written) == 3)
    assert sorted(writing.written[:2]) == sorted([(carol, "connecting"), (BOB, "stopped")])
    assert writing.written[2:] == [(ALICE, "live")]


async def test_repeating_makes_no_news_wait(writing: Writing) -> None:
    callers = [CallerKey(f"{number:032d}") for number in range(3 * TOGETHER)]
    for caller in callers:
        writing.put(caller, State.LIVE)
    await writing.all_said()
    writing.reporter.repeat()
    await writing.bell.until(lambda: len(writing.written) >= TOGETHER)
    writing.put(ALICE, State.LIVE)
    await writing.bell.until(lambda: len(writing.written) == len(callers) + 2)
    assert writing.written.index((ALICE, "live")) <= 2 * TOGETHER
    assert {caller for caller, _ in writing.written} == {*callers, ALICE, BOB}


async def test_what_a_daemon_taken_from_still_says_is_not_corrected_too_soon(writing: Writing) -> None:
    """The socket there is open until ours is: what the store holds is good news, old or not."""
    writing.put(ALICE, State.CONNECTING, quiet_until_s=1005.0)
    await writing.all_said()
    writing.reporter.repeat()
    await writing.bell.until(lambda: writing.written == [(BOB, "stopped")])
    assert await writing.all_said() == []
