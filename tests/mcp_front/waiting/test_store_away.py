"""The shared store goes away, or comes back empty, between the calls of an agent."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from ledger.store import MemoryStore
from ledger.values import LedgerLimits
from mcp_front.waiting.request import WaitOutcome
from mcp_front.waiting.results import STORE_AWAY
from tests.chaos.model_world import FaultyStore
from tests.mcp_front.waiting.virtual import run, wall_s
from tests.mcp_front.waiting.world import SOMEBODY, World, ids


def world_and_store() -> tuple[World, FaultyStore]:
    store = FaultyStore(LedgerLimits(), random.Random(1))
    return World(store=cast("MemoryStore", store)), store


async def live_world() -> tuple[World, FaultyStore]:
    """The same with an empty ledger and a live feed."""
    world, store = world_and_store()
    await world.begin_ledger()
    await world.feed_goes_live()
    return world, store


async def back(world: World, store: FaultyStore) -> None:
    """The store is back, the fronts have noticed, and the feed is live again."""
    store.down = False
    await asyncio.sleep(5.0)
    await world.feed_goes_live()


async def read(world: World, after_id: int, *wanted: int) -> WaitOutcome:
    """Call until each of the wanted messages came, one by one; the last outcome."""
    for message_id in wanted:
        outcome = await world.wait(after_id=after_id, settle_s=0.0)
        assert (outcome.status, ids(outcome.ids)) == ("message", [message_id])
        after_id = outcome.after_id
    return outcome


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


def test_what_came_while_the_store_was_away_for_a_moment_comes_once_more_marked() -> None:
    """No ledger could record a position behind it, so that stays where it was. Meanwhile nothing comes twice."""

    async def main() -> None:
        world, store = await live_world()
        for message_id in (1, 2, 3):
            await world.arrive(message_id)
        await read(world, 0, 1, 2, 3)
        store.down = True
        waiting = asyncio.create_task(world.wait(after_id=3, timeout_s=20.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        world.host.put(4)
        outcome = await waiting
        assert (ids(outcome.ids), outcome.after_id) == ([4], 3)
        assert STORE_AWAY in outcome.notes
        assert (await world.wait(after_id=3, timeout_s=5.0, settle_s=0.0)).ids == ()
        await back(world, store)
        await world.arrive(5)
        assert await rest(world, outcome.after_id) == ([4, 5], {4})
        await world.close()

    run(main())


def test_a_message_whose_event_was_lost_before_the_store_went_away_comes_when_it_is_back() -> None:
    """Where the emergency ledger looks it stands before the position, and nobody had been given it."""

    async def main() -> None:
        world, store = await live_world()
        await world.arrive(1)
        await world.arrive(2, push=False)
        await asyncio.sleep(1.0)
        await world.arrive(3)
        await read(world, 0, 1, 3)
        store.down = True
        waiting = asyncio.create_task(world.wait(after_id=3, timeout_s=20.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        world.host.put(4)
        assert ids((await waiting).ids) == [4]
        await back(world, store)
        came, marked = await rest(world, 3)
        assert (sorted(came), marked) == ([2, 4], {4})
        await world.close()

    run(main())


def test_what_was_returned_without_the_store_is_marked_where_it_comes_again() -> None:
    """A draft sent late has a low id: behind it, found by id alone, stands everything that was returned before."""

    async def main() -> None:
        world, store = await live_world()
        world.host.put(1, draft=True)
        for message_id in (2, 3):
            await world.arrive(message_id)
        await read(world, 0, 2, 3)
        store.down = True
        waiting = asyncio.create_task(world.wait(after_id=3, timeout_s=20.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        world.host.put(4)
        outcome = await waiting
        assert ids(outcome.ids) == [4]
        waiting = asyncio.create_task(world.wait(after_id=outcome.after_id, timeout_s=20.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        world.host.send(1)
        outcome = await waiting
        assert ids(outcome.ids) == [1]
        await back(world, store)
        after_id = outcome.after_id
        while (outcome := await world.wait(after_id=after_id, timeout_s=1.0, settle_s=0.0)).ids:
            assert outcome.already_returned == set(ids(outcome.ids)) <= {1, 2, 3, 4}
            after_id = outcome.after_id
        await world.arrive(5)
        await read(world, after_id, 5)
        await world.close()

    run(main())


def test_a_position_with_a_low_id_does_not_lead_back_to_what_has_higher_ones() -> None:
    """Without the store it is found by its time, on whichever front: what stands above it came before it was sent."""

    async def main() -> None:
        world, store = await live_world()
        world.host.put(1, draft=True)
        for message_id in (2, 3, 4):
            await world.arrive(message_id)
        after_id = (await read(world, 0, 2, 3, 4)).after_id
        await asyncio.sleep(1.0)
        await world.push(world.host.send(1))
        after_id = (await read(world, after_id, 1)).after_id
        assert after_id == 1
        store.down = True
        elsewhere = world.another_front()
        for front in (world.waiting, elsewhere):
            outcome = await world.wait(front=front, after_id=after_id, timeout_s=10.0, settle_s=0.0)
            assert STORE_AWAY in outcome.notes
            assert outcome.ids == ()
        await back(world, store)
        outcome = await world.wait(front=elsewhere, after_id=outcome.after_id, timeout_s=1.0, settle_s=0.0)
        assert outcome.ids == ()
        after_id = outcome.after_id
        await world.arrive(5)
        await read(world, after_id, 5)
        await world.close()

    run(main())


def test_what_comes_again_after_a_flush_is_marked_to_the_last_of_it() -> None:
    """A position from before the flush is not exact any more; the calls that follow the first know that, too."""

    async def main() -> None:
        world, store = await live_world()
        for message_id in (1, 2, 3, 4):
            await world.arrive(message_id)
        after_id = (await read(world, 0, 1, 2, 3, 4)).after_id
        store.flush()
        await world.feed_goes_live()
        seen: list[int] = []
        assert (await world.wait(after_id=after_id, timeout_s=1.0, settle_s=0.0)).ids == ()
        elsewhere = world.another_front()
        await world.wait(front=elsewhere, after_id=after_id, timeout_s=0.0)
        store.flush()
        await world.feed_goes_live()
        # A process that read less knows only that there was a flush.
        while (outcome := await world.wait(front=elsewhere, after_id=after_id, timeout_s=1.0, settle_s=0.0)).ids:
            assert outcome.already_returned == set(ids(outcome.ids))
            seen += ids(outcome.ids)
            after_id = outcome.after_id
        assert set(seen) <= {1, 2, 3, 4}
        assert len(seen) == len(set(seen))
        await world.arrive(5)
        assert (await read(world, after_id, 5)).already_returned == frozenset()
        await world.close()

    run(main())


def test_without_the_store_nobody_goes_round_in_circles() -> None:
    """The newest message is one that the caller was added to just now: old in the list, and behind it everything else.

    Calls go to one front or the other in turn, each with a ledger of its own for the emergency: they read in one order.
    """

    async def main() -> None:
        world, store = await live_world()
        world.host.put(1, to=(SOMEBODY,))
        for message_id in range(2, 30):
            await world.arrive(message_id)
            await asyncio.sleep(20.0)
        await world.push(world.host.add_me(1))
        after_id = (await read(world, 0, *range(2, 30), 1)).after_id
        assert after_id == 1
        store.down = True
        fronts = (world.another_front(), world.another_front())
        for number in range(4):
            outcome = await world.wait(front=fronts[number % 2], after_id=after_id, timeout_s=10.0, settle_s=0.0)
            assert STORE_AWAY in outcome.notes
            assert (outcome.ids, outcome.after_id) == ((), 1)
        world.host.put(30)
        outcome = await world.wait(front=fronts[0], after_id=after_id, timeout_s=10.0, settle_s=0.0)
        assert ids(outcome.ids) == [30]
        await world.close()

    run(main())


def test_one_added_to_a_message_from_long_ago_while_the_store_is_away_gets_it_when_it_is_back() -> None:
    """It lies too deep in the list to be seen without the daemon, which records it in front of what came after it."""

    async def main() -> None:
        world, store = world_and_store()
        world.host.put(1, to=(SOMEBODY,))
        for message_id in range(2, 150):
            world.host.put(message_id)
        await world.begin_ledger()
        await world.feed_goes_live()
        await world.arrive(150)
        await read(world, 149, 150)
        store.down = True
        waiting = asyncio.create_task(world.wait(after_id=150, timeout_s=30.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        added = world.host.add_me(1)
        await asyncio.sleep(5.0)
        newest = world.host.put(151)
        outcome = await waiting
        assert ids(outcome.ids) == [151]
        store.down = False
        await asyncio.sleep(5.0)
        await world.push(added)
        await world.push(newest)
        await world.feed_goes_live()
        assert await rest(world, outcome.after_id) == ([1, 151], {151})
        await world.close()

    run(main())


def test_what_was_on_its_way_while_the_store_was_away_comes_when_it_is_back() -> None:
    """It was sent a while before the message that was returned, and arrived after it, at a front that passed it by."""

    async def main() -> None:
        world, store = await live_world()
        await world.arrive(1)
        await read(world, 0, 1)
        store.down = True
        fronts = (world.another_front(), world.another_front())
        waiting = asyncio.create_task(world.wait(front=fronts[0], after_id=1, timeout_s=30.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        world.host.put(2)
        outcome = await waiting
        assert ids(outcome.ids) == [2]
        world.host.put(3, time_s=wall_s() - 20.0)
        world.host.put(4)
        outcome = await world.wait(front=fronts[1], after_id=outcome.after_id, timeout_s=30.0, settle_s=0.0)
        await back(world, store)
        came, _ = await rest(world, outcome.after_id)
        assert sorted(came) == [2, 3, 4]
        await world.close()

    run(main())


def test_one_of_two_agents_at_an_address_gets_what_the_other_got_without_the_store() -> None:
    """Both stand at 3. One is given 4; the other's call begins then, and is held until the store is back."""

    async def main() -> None:
        world, store = await live_world()
        for message_id in (1, 2, 3):
            await world.arrive(message_id)
        await read(world, 0, 1, 2, 3)
        store.down = True
        waiting = asyncio.create_task(world.wait(after_id=3, timeout_s=20.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        world.host.put(4)
        assert ids((await waiting).ids) == [4]
        waiting = asyncio.create_task(world.wait(after_id=3, timeout_s=60.0, settle_s=0.0))
        await asyncio.sleep(5.0)
        assert not waiting.done()
        store.down = False
        await world.feed_goes_live()
        outcome = await waiting
        assert (ids(outcome.ids), outcome.after_id) == ([4], 4)
        await world.close()

    run(main())
