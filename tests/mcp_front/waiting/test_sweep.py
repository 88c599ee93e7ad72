"""`mcp_front.waiting.sweep`: one look for all waits that rest, and whom it wakes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ledger.catch_up import read_image
from ledger.port import LedgerUnavailable
from ledger.store import MemoryStore
from ledger.values import CallerKey, Head, StreamId
from mcp_front.waiting.caller_state import RESTORE_WITHIN_S
from mcp_front.waiting.request import WaitSettings
from mcp_front.waiting.sweep import AT_ONCE, Sweep
from tests.mcp_front.waiting.virtual import run, wall_s
from tests.mcp_front.waiting.world import World, ids

EVERY_S = WaitSettings().reread_s


class Looks:
    """The store's answers to a sweep, and how often it was asked."""

    def __init__(self) -> None:
        self.ledger = self.activations = self
        self.asked: list[int] = []
        self.moved: set[CallerKey] = set()
        self.unsettled: set[CallerKey] = set()
        self.error: Exception | None = None

    async def heads(self, callers: Sequence[CallerKey]) -> list[Head | None]:
        self.asked.append(len(callers))
        if self.error is not None:
            raise self.error
        return [Head("e", StreamId(2 if caller in self.moved else 1)) for caller in callers]

    async def settled(self, callers: Sequence[CallerKey]) -> list[bool]:
        return [caller not in self.unsettled for caller in callers]


class Wait:
    """One that rests at the first entry."""

    head = Head("e", StreamId(1))

    def __init__(self, name: str) -> None:
        self.caller = CallerKey(name)
        self.heard: list[str] = []

    def wake(self) -> None:
        self.heard.append("wake")

    def doubt(self) -> None:
        self.heard.append("doubt")


def sweep_of(looks: Looks) -> Sweep:
    return Sweep(looks, every_s=EVERY_S)  # type: ignore[arg-type]  # as much of a store as a sweep needs


def test_only_those_for_whom_something_moved_are_woken() -> None:
    """Three waits rest: the ledger of one grew without a bell, the feed of another broke."""

    async def scenario() -> None:
        looks, waits = Looks(), [Wait("still"), Wait("grown"), Wait("broken")]
        looks.moved, looks.unsettled = {waits[1].caller}, {waits[2].caller}
        sweep = sweep_of(looks)
        for wait in waits:
            sweep.add(wait)
        await asyncio.sleep(EVERY_S + 1.0)
        assert [wait.heard for wait in waits] == [[], ["wake"], ["doubt"]]
        sweep.stop()

    run(scenario())


def test_thousands_are_looked_at_in_batches_again_and_again() -> None:
    """A thousand callers with two waits each rest for a minute: few commands, and each caller in every round."""

    async def scenario() -> None:
        looks = Looks()
        waits = [Wait(str(number)) for number in range(1000) for _ in range(2)]
        sweep = sweep_of(looks)
        for wait in waits:
            sweep.add(wait)
        await asyncio.sleep(3 * (EVERY_S + 1.0))
        assert sum(looks.asked) == 3 * 1000
        assert max(looks.asked) <= AT_ONCE
        assert len(looks.asked) <= 3 * (2000 // AT_ONCE + 1)
        sweep.stop()

    run(scenario())


def test_whoever_is_up_is_not_looked_at() -> None:
    """A wait was woken by a bell before its turn: the sweep has nothing to do with it until it rests again."""

    async def scenario() -> None:
        looks, early, late = Looks(), Wait("early"), Wait("late")
        looks.moved = {early.caller, late.caller}
        sweep = sweep_of(looks)
        sweep.add(early)
        sweep.add(late)
        await asyncio.sleep(1.0)
        sweep.discard(early)
        await asyncio.sleep(EVERY_S)
        assert (early.heard, late.heard) == ([], ["wake"])
        sweep.stop()

    run(scenario())


@pytest.mark.parametrize("error", [LedgerUnavailable("away"), RuntimeError("a fault of ours")])
def test_a_sweep_that_fails_wakes_everybody_and_goes_on(error: Exception) -> None:
    async def scenario() -> None:
        looks, wait = Looks(), Wait("one")
        looks.error = error
        sweep = sweep_of(looks)
        sweep.add(wait)
        await asyncio.sleep(EVERY_S + 1.0)
        assert wait.heard == ["doubt"]
        looks.error = None
        await asyncio.sleep(EVERY_S + 1.0)
        assert (wait.heard, len(looks.asked)) == (["doubt"], 2)
        sweep.stop()

    run(scenario())


def test_a_resting_wait_reads_nothing_by_itself() -> None:
    """A live feed and nothing to do: the ledger is read once, and after that only its head is looked at."""

    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        await world.feed_goes_live()
        reads = _counting(world.store)
        outcome = await world.wait(after_id=0, timeout_s=200.0)
        assert outcome.status == "timeout"
        assert len(reads) <= 2, "at the beginning and at the end"
        await world.close()

    run(scenario())


def test_a_long_wait_reports_its_caller_active_now_and_then() -> None:
    """An operator closes the sockets of idle callers soon: a wait that rests is no idle caller."""

    async def scenario() -> None:
        world = World(settings=WaitSettings(activate_s=30.0))
        await world.begin_ledger()
        await world.feed_goes_live()
        call = asyncio.create_task(world.wait(after_id=0, timeout_s=200.0))
        for _ in range(4):
            await asyncio.sleep(45.0)
            activation = await world.store.activations.get(world.key)
            assert activation is not None
            assert wall_s() - activation.asked_at_s < 35.0
        await call
        await world.close()

    run(scenario())


def test_a_store_that_forgot_everything_hears_at_once_that_the_caller_is_active() -> None:
    """Redis was flushed while a wait rests: feeds outlive their activation for a minute only, and this is sooner."""

    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        await world.feed_goes_live()
        await world.arrive(4)
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0))
        await asyncio.sleep(1.0)
        await world.store.ledger.forget(world.key)
        await world.store.activations.retire(world.key)
        await asyncio.sleep(EVERY_S + 2.0)
        assert await world.store.activations.get(world.key) is not None
        await world.arrive(5, push=False)
        assert ids((await call).ids) == [5]
        await world.close()

    run(scenario())


def test_a_ledger_that_a_daemon_writes_back_goes_on_as_if_nothing_had_been() -> None:
    """Redis was flushed: no wait begins the ledger anew before the daemon had its time."""

    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        await world.feed_goes_live()
        await world.arrive(4)
        await world.arrive(5)
        assert ids((await world.wait(after_id=4, timeout_s=5.0)).ids) == [5]
        image = await read_image(world.store.ledger, world.key)
        resting = asyncio.create_task(world.wait(after_id=5, timeout_s=60.0))
        await asyncio.sleep(1.0)
        await world.store.ledger.forget(world.key)
        await world.store.activations.retire(world.key)
        new = asyncio.create_task(world.wait(after_id=5, timeout_s=60.0))
        await asyncio.sleep(RESTORE_WITHIN_S - 2.0)
        assert await world.store.ledger.state(world.key) is None
        await world.store.ledger.restore(world.key, image)
        await world.arrive(6)
        assert [ids((await call).ids) for call in (resting, new)] == [[6], [6]]
        state = await world.store.ledger.state(world.key)
        assert state is not None
        assert state.epoch == image.state.epoch
        await world.close()

    run(scenario())


def test_a_ledger_that_no_daemon_writes_back_begins_anew() -> None:
    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        await world.feed_goes_live()
        await world.arrive(4)
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0))
        await asyncio.sleep(1.0)
        await world.store.ledger.forget(world.key)
        await world.store.activations.retire(world.key)
        await world.arrive(5, push=False)
        assert ids((await call).ids) == [5]
        await world.close()

    run(scenario())


def _counting(store: MemoryStore) -> list[int]:
    """The offsets after which ledgers are read from now on."""
    reads: list[int] = []
    read = store.ledger.read

    async def counted(caller: CallerKey, after_n: int, limit: int, **rest: object) -> object:
        reads.append(after_n)
        return await read(caller, after_n, limit, **rest)  # type: ignore[arg-type]  # passed on as they came

    store.ledger.read = counted  # type: ignore[method-assign,assignment]
    return reads
