"""Who says what of a feed, and when it holds its tongue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import cast

import pytest

from daemon.feed.machine import State
from daemon.feed.runner import FeedRunner
from daemon.heartbeat import Heart
from daemon.holding import Holding
from daemon.reports import TOGETHER, Reporter
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


class Desk:
    """A reporter at work, and what it wrote."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.written: list[tuple[CallerKey, str]] = []
        self.failures = 0
        self.failure: Exception = LedgerUnavailable("not now")
        self.holdings: dict[CallerKey, Holding] = {}
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
        self.heart = Heart(
            MemoryFleet(heartbeat_ttl_s=10.0, clock=self.clock),
            id_="one",
            name="one",
            settings=quick(),
            clock=self.clock,
            now=self.clock,
        )
        self.reporter = Reporter(
            self.activations, self.holdings, self.heart, clock=self.clock, rng=random.Random(1), again_s=0.01
        )

    def clock(self) -> float:
        return self.now_s

    def put(self, caller: CallerKey, state: State, *, quiet_until_s: float = 0.0) -> Holding:
        """A feed of ours that just got into a state."""
        holding = self.holdings.get(caller)
        runner = cast("FeedRunner", FakeRunner(state))
        if holding is None:
            holding = Holding(runner, epoch=1, asked_at_s=0.0, quiet_until_s=quiet_until_s)
            self.holdings[caller] = holding
        holding.runner = runner
        self.reporter.changed(caller)
        return holding

    async def all_said(self) -> list[tuple[CallerKey, str]]:
        """Let it work until a last word about somebody else is through; what was written before."""
        self.put(BOB, State.STOPPED)
        await self.bell.until(lambda: (BOB, "stopped") in self.written)
        said = [word for word in self.written if word[0] != BOB]
        self.written.clear()
        return said


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """A reporter that runs, of a daemon that lives."""
    desk = Desk()
    await desk.heart.beat(load=0, draining=False)
    desk.heart.trust()
    running = asyncio.create_task(desk.reporter.run())  # ended below
    yield desk
    running.cancel()


async def test_a_feed_on_its_way_says_nothing_until_it_arrived(desk: Desk) -> None:
    desk.put(ALICE, State.CONNECTING)
    assert await desk.all_said() == []
    desk.put(ALICE, State.BACKFILLING)
    desk.put(ALICE, State.LIVE)
    assert await desk.all_said() == [(ALICE, "live")]


async def test_a_feed_that_was_live_says_at_once_that_it_is_not(desk: Desk) -> None:
    desk.put(ALICE, State.LIVE)
    await desk.all_said()
    desk.put(ALICE, State.BACKFILLING)
    assert await desk.all_said() == [(ALICE, "backfilling")]


async def test_only_the_latest_word_is_written(desk: Desk) -> None:
    for state in (State.LIVE, State.BACKING_OFF, State.LIVE, State.ASKING):
        desk.put(ALICE, state)
    assert await desk.all_said() == [(ALICE, "asking")]


async def test_a_feed_just_taken_over_says_only_that_it_is_live_at_first(desk: Desk) -> None:
    desk.put(ALICE, State.BACKING_OFF, quiet_until_s=1005.0)
    assert await desk.all_said() == []
    desk.now_s = 1005.0
    await desk.heart.beat(load=0, draining=False)
    desk.reporter.changed(ALICE)
    assert await desk.all_said() == [(ALICE, "backing_off")]


async def test_callers_of_others_are_their_business(desk: Desk) -> None:
    desk.put(ALICE, State.LIVE).owned = False
    assert await desk.all_said() == []
    desk.reporter.changed(CallerKey("n" * 32))
    assert await desk.all_said() == []


async def test_a_daemon_that_may_be_dead_to_the_others_says_nothing_until_it_looked(desk: Desk) -> None:
    desk.now_s += 60.0
    desk.put(ALICE, State.LIVE)
    for _ in range(20):
        await asyncio.sleep(0)
    assert desk.written == []
    await desk.heart.beat(load=0, draining=False)
    desk.holdings[ALICE].owned = False
    desk.heart.trust()
    assert await desk.all_said() == []


async def test_what_the_store_did_not_take_is_said_again(desk: Desk) -> None:
    desk.failures = 3
    desk.put(ALICE, State.LIVE)
    await desk.bell.until(lambda: desk.written == [(ALICE, "live")])


async def test_what_the_store_failed_at_for_a_reason_nobody_thought_of_is_said_again(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.failures = 3
    desk.failure = AttributeError("'NoneType' object has no attribute 'writelines'")
    desk.put(ALICE, State.LIVE)
    await desk.bell.until(lambda: desk.written == [(ALICE, "live")])
    assert [record.message for record in caplog.records] == ["a feed could not be reported"] * 3


async def test_a_store_that_failed_over_is_told_everything_again(desk: Desk) -> None:
    """A promoted replica may hold old words, of feeds that are on their way since, too: an old live goes first."""
    carol = CallerKey("c" * 32)
    desk.put(ALICE, State.LIVE)
    desk.put(carol, State.CONNECTING)
    assert await desk.all_said() == [(ALICE, "live")]
    desk.written.clear()
    desk.reporter.repeat()
    await desk.bell.until(lambda: len(desk.written) == 3)
    assert sorted(desk.written[:2]) == sorted([(carol, "connecting"), (BOB, "stopped")])
    assert desk.written[2:] == [(ALICE, "live")]


async def test_repeating_makes_no_news_wait(desk: Desk) -> None:
    callers = [CallerKey(f"{number:032d}") for number in range(3 * TOGETHER)]
    for caller in callers:
        desk.put(caller, State.LIVE)
    await desk.all_said()
    desk.reporter.repeat()
    await desk.bell.until(lambda: len(desk.written) >= TOGETHER)
    desk.put(ALICE, State.LIVE)
    await desk.bell.until(lambda: len(desk.written) == len(callers) + 2)
    assert desk.written.index((ALICE, "live")) <= 2 * TOGETHER
    assert {caller for caller, _ in desk.written} == {*callers, ALICE, BOB}


async def test_what_a_daemon_taken_from_still_says_is_not_corrected_too_soon(desk: Desk) -> None:
    """The socket there is open until ours is: what the store holds is good news, old or not."""
    desk.put(ALICE, State.CONNECTING, quiet_until_s=1005.0)
    await desk.all_said()
    desk.reporter.repeat()
    await desk.bell.until(lambda: desk.written == [(BOB, "stopped")])
    assert await desk.all_said() == []
