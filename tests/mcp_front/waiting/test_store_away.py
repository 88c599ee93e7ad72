"""The shared store is away: it is down, takes no writes, hangs, or comes back empty. No store, no result."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from fmsg.errors import HostUnreachable
from ledger.catch_up import read_image
from ledger.memory import MemoryStore
from ledger.port import LedgerUnavailable
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import LedgerLimits
from mcp_front.failures import failure_of
from mcp_front.waiting.request import Fit, SubscriptionAway
from mcp_front.waiting.results import STORE_AWAY
from tests.chaos.model_world import FaultyStore
from tests.fake_redis import FreezingTopology
from tests.mcp_front.waiting.virtual import run, wall_s
from tests.mcp_front.waiting.world import World, ids

BACK_S = 2.0
"""A held wait goes on so soon after the store takes writes again."""


async def live_world() -> tuple[World, FaultyStore]:
    """An empty ledger, a live feed, and a store that can fail."""
    store = FaultyStore(LedgerLimits(), random.Random(1))
    world = World(store=cast("MemoryStore", store))
    await world.begin_ledger()
    await world.feed_goes_live()
    await world.arrive(4)
    await asyncio.sleep(0.01)  # in the same millisecond it might be younger than a call
    return world, store


def fail(store: FaultyStore, how: str) -> None:
    """The store stops answering, or stops taking writes."""
    store.down = how == "down"
    store.read_only = how == "read-only"


async def rest(world: World, after_id: int) -> tuple[list[int], set[int]]:
    """Call until nothing comes any more: what came, and what of it was marked."""
    came: list[int] = []
    marked: set[int] = set()
    while (outcome := await world.wait(after_id=after_id, timeout_s=1.0, settle_s=0.0)).ids:
        came += ids(outcome.ids)
        marked |= outcome.already_returned
        after_id = outcome.after_id
        assert len(came) < 100
    return came, marked


failures = pytest.mark.parametrize("how", ["down", "read-only"])


@failures
def test_a_wait_holds_and_returns_nothing_while_the_store_is_away(how: str) -> None:
    """The message is there, at the host or even in the ledger. At its limit each call names the same position."""

    async def scenario() -> None:
        world, store = await live_world()
        await world.wait(after_id=4, timeout_s=0.0)
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=20.0, settle_s=0.0))
        await asyncio.sleep(1.0)
        fail(store, how)
        world.host.put(5)
        outcome = await call
        for _ in range(2):
            assert (outcome.status, outcome.ids, outcome.after_id) == ("timeout", (), 4)
            assert outcome.notes == (STORE_AWAY,)
            outcome = await world.wait(after_id=4, timeout_s=5.0, settle_s=0.0)
        fail(store, "not at all")
        await world.push(world.host.messages[5])
        assert await rest(world, 4) == ([5], set())
        await world.close()

    run(scenario())


@failures
def test_two_fronts_return_a_message_once_between_them(how: str) -> None:
    """The ledger has the message, and the store takes no note of who got it: neither front hands it out."""

    async def scenario() -> None:
        world, store = await live_world()
        await world.arrive(5)
        fail(store, how)
        for front in (world.waiting, world.another_front()):
            outcome = await world.wait(front=front, after_id=4, timeout_s=3.0, settle_s=0.0)
            assert (outcome.ids, outcome.notes) == ((), (STORE_AWAY,))
        fail(store, "not at all")
        assert await rest(world, 4) == ([5], set())
        await world.close()

    run(scenario())


@failures
def test_every_held_wait_goes_on_soon_after_the_store_is_back(how: str) -> None:
    """Fifty waits, and a message that came meanwhile: each has it within two seconds, and not all at one moment."""

    async def scenario() -> None:
        world, store = await live_world()
        calls = [asyncio.create_task(world.wait(after_id=4, timeout_s=200.0, settle_s=0.0)) for _ in range(50)]
        await asyncio.sleep(1.0)
        fail(store, how)
        await asyncio.sleep(61.7)
        store.down = store.read_only = False
        await world.feed_goes_live()
        await world.arrive(5)
        back_at = asyncio.get_running_loop().time()
        ended: set[float] = set()
        for call in asyncio.as_completed(calls):
            assert ids((await call).ids) == [5]
            ended.add(asyncio.get_running_loop().time())
        assert max(ended) - back_at <= BACK_S
        assert len(ended) > 10
        await world.close()

    run(scenario())


@failures
def test_nobody_polls_the_host_while_the_store_is_away(how: str) -> None:
    """A hundred held waits, half of them without a feed: the outage of the store is none of the host's business."""

    async def scenario() -> None:
        world, store = await live_world()
        await world.feed_breaks()
        calls = [asyncio.create_task(world.wait(after_id=4, timeout_s=120.0)) for _ in range(100)]
        await asyncio.sleep(5.0)
        fail(store, how)
        await asyncio.sleep(5.0)
        world.host.asked.clear()
        world.caller.confirmed = 0
        outcomes = [await call for call in calls]
        assert {outcome.notes for outcome in outcomes} == {(STORE_AWAY,)}
        assert (sum(world.host.asked.values()), world.caller.confirmed) == (0, 0)
        await world.close()

    run(scenario())


def test_a_call_that_begins_now_takes_its_position_from_the_host() -> None:
    """Without the store and without a position: one request, and what comes from then on is not lost."""

    async def scenario() -> None:
        world, store = await live_world()
        world.host.put(3, draft=True)
        world.host.put(9, draft=True)
        store.down = True
        world.host.asked.clear()
        outcome = await world.wait(timeout_s=10.0, front=world.another_front())
        assert (outcome.status, outcome.after_id, outcome.notes) == ("timeout", 4, (STORE_AWAY,))
        assert world.host.asked.total() == 1
        store.down = False
        await world.arrive(5)
        await world.push(world.host.send(3))
        assert await rest(world, outcome.after_id) == ([5, 3], set())
        await world.close()

    run(scenario())


def test_with_neither_store_nor_host_a_call_that_begins_now_has_no_position() -> None:
    """The error names the store."""

    async def scenario() -> None:
        world, store = await live_world()
        store.down = True
        world.host.error = HostUnreachable("no answer")
        with pytest.raises(LedgerUnavailable):
            await world.wait(timeout_s=10.0, front=world.another_front())
        await world.close()

    run(scenario())


@failures
def test_an_acknowledgement_that_the_store_did_not_take_is_passed_back(how: str) -> None:
    """The answer of a call that could record nothing names what the agent passed: so the next call acknowledges it."""

    async def scenario() -> None:
        world, store = await live_world()
        await world.wait(subscription="s", after_id=4, timeout_s=0.0)
        await world.arrive(5)
        position = (await world.wait(subscription="s", after_id=4, timeout_s=5.0, settle_s=0.0)).after_id
        assert position == 5
        fail(store, how)
        for _ in range(2):
            outcome = await world.wait(subscription="s", after_id=position, timeout_s=3.0, settle_s=0.0)
            assert (outcome.status, outcome.after_id, outcome.notes) == ("timeout", 5, (STORE_AWAY,))
        fail(store, "not at all")
        await world.arrive(6)
        outcome = await world.wait(subscription="s", after_id=outcome.after_id, timeout_s=5.0, settle_s=0.0)
        assert (ids(outcome.ids), outcome.redelivered) == ([6], frozenset())
        await world.close()

    run(scenario())


def test_a_store_that_refuses_one_caller_holds_only_that_one() -> None:
    """One node of a cluster is down: the others' waits are not woken again and again."""

    async def scenario() -> None:
        world, store = await live_world()
        inner = store._ledger.note_returned

        async def refused(*_: object, **__: object) -> bool:
            raise LedgerUnavailable("CLUSTERDOWN")

        store._ledger.note_returned = refused  # type: ignore[method-assign]
        await world.arrive(5)
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=30.0, settle_s=0.0))
        await asyncio.sleep(10.0)
        assert not call.done()
        assert not world.waiting._shared.store_is_away
        store._ledger.note_returned = inner  # type: ignore[method-assign]
        assert ids((await call).ids) == [5]
        await world.close()

    run(scenario())


@pytest.mark.parametrize("front", ["the same front", "another front"])
def test_what_comes_again_after_a_flush_is_marked(front: str) -> None:
    """A position from before the flush is not exact any more: what may lie after it comes again, marked, once."""

    async def scenario() -> None:
        world, store = await live_world()
        after_id = 4
        for message_id in (5, 6, 7):
            await world.arrive(message_id)
            after_id = (await world.wait(after_id=after_id, settle_s=0.0)).after_id
        assert after_id == 7
        store.flush()
        await world.feed_goes_live()
        if front == "another front":
            world.waiting = world.another_front()
            await world.wait(after_id=after_id, timeout_s=0.0)
            store.flush()
            await world.feed_goes_live()
        came, marked = await rest(world, after_id)
        assert marked == set(came) <= {4, 5, 6, 7}
        assert len(came) == len(marked)
        await world.arrive(8)
        assert await rest(world, after_id if not came else came[-1]) == ([8], set())
        await world.close()

    run(scenario())


LATE_S = 2.0
"""What a wait may take beyond its time limit."""


@asynccontextmanager
async def frozen_later() -> AsyncIterator[tuple[World, FreezingTopology]]:
    """A world with one message, 4, a live feed, a subscription, and a store that can hang."""
    topology = FreezingTopology()
    seal = SealKeys.parse(SealKeys.generate())
    async with RedisStore(topology, seal=seal, clock=wall_s) as store:
        world = World(store=cast("MemoryStore", store))
        await world.begin_ledger()
        await world.feed_goes_live()
        await world.arrive(4)
        await world.wait(subscription="s", timeout_s=0.0)
        try:
            yield world, topology
        finally:
            topology.frozen = False
            await world.close()


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


def freezing(topology: FreezingTopology) -> Fit:
    """Takes one message, after which the store hangs."""

    async def fit(entries: object) -> int:
        topology.frozen = True
        return 1

    return fit


@pytest.mark.parametrize("timeout_s", [0.0, 3.0, 30.0])
def test_a_subscription_that_cannot_be_loaded_says_so_in_time(timeout_s: float) -> None:
    """Redis is frozen, and only the store knows the position: the error names the subscription and the next step."""

    async def scenario() -> None:
        async with frozen_later() as (world, topology):
            topology.frozen = True
            began_s = now()
            with pytest.raises(SubscriptionAway) as caught:
                await world.wait(subscription="s", timeout_s=timeout_s, front=world.another_front())
            assert now() - began_s <= timeout_s + LATE_S
            failure = failure_of(caught.value)
            assert failure.kind == "store_unavailable"
            assert "subscription s" in failure.text
            assert "again" in failure.next_step

    run(scenario())


@pytest.mark.parametrize("timeout_s", [0.0, 3.0, 30.0])
def test_a_subscription_with_a_position_in_hand_ends_with_it_in_time(timeout_s: float) -> None:
    """Redis is frozen when the agent calls with the position it was given: it gets that back, with a note."""

    async def scenario() -> None:
        async with frozen_later() as (world, topology):
            topology.frozen = True
            began_s = now()
            outcome = await world.wait(subscription="s", after_id=4, timeout_s=timeout_s, front=world.another_front())
            assert now() - began_s <= timeout_s + LATE_S
            assert (outcome.status, outcome.after_id) == ("timeout", 4)
            assert outcome.notes == (STORE_AWAY,)

    run(scenario())


@pytest.mark.parametrize("at_s", [1.0, 9.5, 9.999])
def test_a_store_that_freezes_while_a_subscription_is_waited_on_makes_no_call_late(at_s: float) -> None:
    async def scenario() -> None:
        async with frozen_later() as (world, topology):
            began_s = now()
            call = asyncio.create_task(world.wait(subscription="s", timeout_s=10.0))
            await asyncio.sleep(at_s)
            topology.frozen = True
            outcome = await call
            assert now() - began_s <= 10.0 + LATE_S
            assert (outcome.status, outcome.after_id) == ("timeout", 4)

    run(scenario())


def test_a_store_that_freezes_before_a_batch_is_recorded_makes_no_call_late() -> None:
    """The message was read, then Redis froze: the batch is not given, since nobody knew of it; it comes later."""

    async def scenario() -> None:
        async with frozen_later() as (world, topology):
            await world.arrive(5)
            began_s = now()
            request = world.request(subscription="s", after_id=4, timeout_s=3.0, settle_s=0.0)
            outcome = await world.waiting.wait(world.caller, request, fit=freezing(topology))
            assert now() - began_s <= 3.0 + LATE_S
            assert (outcome.status, outcome.after_id) == ("timeout", 4)
            topology.frozen = False
            again = await world.wait(subscription="s", after_id=outcome.after_id, settle_s=0.0)
            assert ids(again.ids) == [5]

    run(scenario())


async def flushed_and_restored(world: World, store: FaultyStore, *, after_s: float) -> None:
    """The store forgets everything, and the daemon that holds the feed writes its ledger back after a while."""
    image = await read_image(store.ledger, world.key)
    store.flush()
    await asyncio.sleep(after_s)
    await store.ledger.restore(world.key, image)
    await world.feed_goes_live()


def test_a_held_wait_goes_on_exactly_where_a_daemon_writes_its_ledger_back() -> None:
    """Nobody begins the ledger anew meanwhile: its epoch is the same, and nothing comes again."""

    async def scenario() -> None:
        world, store = await live_world()
        await world.arrive(5)
        await world.wait(after_id=4, settle_s=0.0)
        state = await store.ledger.state(world.key)
        call = asyncio.create_task(world.wait(after_id=5, timeout_s=300.0, settle_s=0.0))
        await asyncio.sleep(200.0)
        await flushed_and_restored(world, store, after_s=2.5)
        assert (await store.ledger.state(world.key)).epoch == state.epoch
        await world.arrive(6)
        outcome = await call
        assert (ids(outcome.ids), outcome.already_returned) == ([6], frozenset())
        await world.close()

    run(scenario())


def test_a_call_that_begins_right_after_a_flush_waits_for_the_daemon() -> None:
    """Its position is as exact as before, although the marks are gone with the store."""

    async def scenario() -> None:
        world, store = await live_world()
        for message_id in (5, 6):
            await world.arrive(message_id)
        outcome = await world.wait(after_id=4, settle_s=0.0)
        await world.wait(after_id=outcome.after_id, settle_s=0.0)
        restoring = asyncio.create_task(flushed_and_restored(world, store, after_s=2.5))
        await asyncio.sleep(0.5)
        assert await rest(world, 6) == ([], set())
        await restoring
        assert await rest(world, 5) == ([6], set())
        await world.close()

    run(scenario())


def test_without_a_daemon_that_writes_it_back_a_ledger_is_begun_anew() -> None:
    """The wait gives it some seconds, then finds its place by the message's id."""

    async def scenario() -> None:
        world, store = await live_world()
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0, settle_s=0.0))
        await asyncio.sleep(10.0)
        store.flush()
        await world.daemon_dies()
        world.host.put(5)
        outcome = await call
        assert ids(outcome.ids) == [5]
        await world.close()

    run(scenario())
