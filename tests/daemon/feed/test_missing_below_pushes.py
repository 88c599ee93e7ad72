"""What was missed before a socket opened is still found, however much is pushed before the list can be compared."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from daemon.feed import comparer as comparing
from ledger.port import FeedReport
from ledger.store import RedisStore
from ledger.values import CallerKey
from sandbox.events import Listener
from tests.daemon.world import Agent, Running, World, world_of

MISSED = 15
PUSHED = 330
"""More than the two pages that a reconnect compares at least, and more than three."""
AT_ONCE = 10
"""Fewer than the frames a host keeps for a slow client."""
RARELY: dict[str, Any] = {"reconcile_s": 60.0, "reconcile_quiet_s": 60.0, "reconcile_reconnected_s": 60.0}


async def kill(daemon: Running) -> None:
    """End a daemon without letting it finish anything that takes a request."""
    daemon.task.cancel()
    await asyncio.wait([daemon.task])


async def missed_and_pushed(world: World, alice: Agent) -> tuple[list[int], Running]:
    """Messages that nobody heard of, hundreds above them that were pushed, and the daemon that cannot compare them.

    It records none of them: they would come before what was missed.
    """
    first = await world.daemon("first")
    await alice.until("live")
    known = [world.deliver(alice)]
    await alice.until_ids(*known)
    await kill(first)
    missed = [world.deliver(alice) for _ in range(MISSED)]
    world.host.control.fail_next("list", times=100_000, status=503)
    second = await world.daemon("second", **RARELY)
    await alice.until("stalled")
    listener = world.host.core.listener
    for _ in range(PUSHED // AT_ONCE):
        heard = listener.frames + AT_ONCE
        known += [world.deliver(alice) for _ in range(AT_ONCE)]
        await world.bell.until(functools.partial(_has_sent, listener, heard))
    assert len(await alice.entries()) == 1, "recorded before what it came after"
    return sorted(known + missed), second


def _has_sent(listener: Listener, frames: int) -> bool:
    return listener.frames >= frames


async def test_a_daemon_killed_before_it_could_compare_leaves_nothing_behind(world: World) -> None:
    alice = await world.agent("alice")
    everything, second = await missed_and_pushed(world, alice)
    await kill(second)
    world.host.control.clear_faults()
    await world.daemon("third", **RARELY)
    await alice.until_ids(*everything)


async def test_neither_in_redis(redis_store: RedisStore) -> None:
    async with world_of(redis_store) as world:
        alice = await world.agent("alice")
        everything, second = await missed_and_pushed(world, alice)
        await kill(second)
        world.host.control.clear_faults()
        await world.daemon("third", **RARELY)
        await alice.until_ids(*everything)


async def test_a_daemon_that_can_compare_again_finds_it_itself(world: World) -> None:
    alice = await world.agent("alice")
    everything, _ = await missed_and_pushed(world, alice)
    world.host.control.clear_faults()
    await alice.until("live")
    await alice.until_ids(*everything)


async def test_an_event_lost_in_the_middle_of_a_burst_is_found_by_the_next_reconciliation(world: World) -> None:
    """Not only what lies on its first page."""
    alice = await world.agent("alice")
    await world.daemon(reconcile_s=0.3, reconcile_quiet_s=0.3, reconcile_reconnected_s=0.3, reconcile_alarmed_s=0.3)
    await alice.until("live")
    ids: list[int] = []
    world.host.control.fail_next("list", times=100_000, status=503)
    for burst in range(12):
        if burst == 1:
            world.host.control.lose_events(2, address=alice.address)
            ids += [world.deliver(alice) for _ in range(2)]
        pushed = [world.deliver(alice) for _ in range(AT_ONCE)]
        ids += pushed
        await world.bell.until(functools.partial(held, alice, set(pushed)))
    world.host.control.clear_faults()
    await alice.until_ids(*ids)


async def held(alice: Agent, wanted: set[int]) -> bool:
    """Whether the ledger holds at least these."""
    return wanted <= {entry.id for entry in await alice.entries()}


async def test_a_feed_is_not_live_while_a_comparison_takes_more_than_one_walk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket lost more than a walk compares. Fronts trust a live feed, so it says so only when all is there."""
    monkeypatch.setattr(comparing, "MOST_PAGES", 1)
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    lost = 150
    said: list[tuple[str, int]] = []
    report = world.store.activations.report

    async def noting(caller: CallerKey, word: FeedReport) -> None:
        said.append((word.state, len(await alice.entries())))
        await report(caller, word)

    monkeypatch.setattr(world.store.activations, "report", noting)
    world.host.control.lose_events(lost, address=alice.address)
    ids = [world.deliver(alice) for _ in range(lost)]
    await alice.until_ids(*ids)
    await world.bell.until(lambda: ("live", lost) in said)
    known = [count for state, count in said if state == "backfilling"]
    assert known
    assert min(known) < lost
    assert {count for state, count in said if state == "live"} == {lost}
