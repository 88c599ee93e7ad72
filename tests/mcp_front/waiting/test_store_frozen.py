"""The shared store hangs: it takes commands and answers none. Waits keep their time limits all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from ledger.port import LedgerUnavailable
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from mcp_front.failures import failure_of
from mcp_front.waiting.errors import SubscriptionAway
from mcp_front.waiting.request import Fit
from mcp_front.waiting.results import SUBSCRIPTION_AWAY
from tests.fake_redis import FreezingTopology
from tests.mcp_front.waiting.virtual import run, wall_s
from tests.mcp_front.waiting.world import World, ids

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
            assert SUBSCRIPTION_AWAY in outcome.notes

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


def test_a_store_that_freezes_after_a_batch_was_found_does_not_hold_it_up() -> None:
    """A wait without a subscription: that it was handed out is noted if the store lets it be."""

    async def scenario() -> None:
        async with frozen_later() as (world, topology):
            await world.arrive(5)
            began_s = now()
            request = world.request(after_id=4, timeout_s=0.0, settle_s=0.0)
            outcome = await world.waiting.wait(world.caller, request, fit=freezing(topology))
            assert ids(outcome.ids) == [5]
            assert now() - began_s <= LATE_S

    run(scenario())


@pytest.mark.parametrize("timeout_s", [0.0, 3.0])
def test_a_wait_without_a_subscription_asks_the_host_in_time(timeout_s: float) -> None:
    async def scenario() -> None:
        async with frozen_later() as (world, topology):
            world.host.put(5)
            topology.frozen = True
            began_s = now()
            front = world.another_front()
            outcome = await world.wait(after_id=4, timeout_s=timeout_s, settle_s=0.0, front=front)
            assert now() - began_s <= timeout_s + LATE_S
            assert ids(outcome.ids) == [5]

    run(scenario())


def test_many_waits_that_queue_for_the_same_answer_share_its_failure() -> None:
    """One store command for the daemons' heartbeats hangs, and a hundred waits queue behind it: none queues twice."""

    async def scenario() -> None:
        async with frozen_later() as (world, _):
            desks = world.waiting._grounds.shared.desks
            desk = desks.at(world.key)
            asked = 0

            async def hangs() -> None:
                nonlocal asked
                asked += 1
                await asyncio.sleep(5.0)
                raise LedgerUnavailable("Redis: no answer")

            members, world.store.fleet.members = world.store.fleet.members, hangs  # type: ignore[method-assign, assignment]
            await asyncio.sleep(60.0)
            began_s = now()
            answers = await asyncio.gather(*(desk.transport() for _ in range(100)), return_exceptions=True)
            assert all(isinstance(answer, LedgerUnavailable) for answer in answers)
            assert now() - began_s == pytest.approx(5.0)
            assert asked == 1
            world.store.fleet.members = members  # type: ignore[method-assign]
            assert await desk.transport() == "websocket"

    run(scenario())
