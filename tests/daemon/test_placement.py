"""Several daemons: every caller has a socket at every moment, and two only while it changes hands."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from daemon import placement as placing
from daemon.ownership import assign, capacity
from tests.daemon.world import Agent, Cable, Running, World, metric


async def agents(world: World, count: int) -> list[Agent]:
    """Callers that all asked."""
    return [await world.agent(f"agent{number}") for number in range(count)]


async def until_placed(world: World, callers: list[Agent], *daemons: Running) -> None:
    """Wait until each caller's feed is live where the plan says, with one socket."""
    owners = assign([running.daemon.id for running in daemons], [caller.key for caller in callers])

    async def placed() -> bool:
        for caller in callers:
            report = await caller.report()
            if report is None or not report.live or report.daemon != owners[caller.key] or caller.sockets != 1:
                return False
        return True

    await world.bell.until(placed)


async def test_a_joiner_takes_its_share_and_no_caller_is_without_a_socket_meanwhile(world: World) -> None:
    callers = await agents(world, 24)
    one = await world.daemon("one")
    await until_placed(world, callers, one)
    two = await world.daemon("two")
    await until_placed(world, callers, one, two)
    loads = Counter([report.daemon for caller in callers if (report := await caller.report()) is not None])
    assert max(loads.values()) <= capacity(24, 2)
    for caller in callers:
        assert caller.counts in ([1], [1, 2, 1]), "one socket at least, two only while it changes hands"


async def test_of_many_leases_some_are_looked_at_in_each_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody took all five and died. Two a round are found and taken back, so that after three rounds all are."""
    monkeypatch.setattr(placing, "AUDITED_AT_ONCE", 2)
    callers = await agents(world, 5)
    running = await world.daemon("one", scan_s=600.0)
    await until_placed(world, callers, running)
    keys = [caller.key for caller in callers]
    before = await world.store.fleet.holders(keys)
    await world.store.fleet.take(keys, "thief", over=dict.fromkeys(keys, running.daemon.id))
    found: list[int] = []
    for _ in range(3):
        await running.daemon._placement.audit_some()
        now = await world.store.fleet.holders(keys)
        found.append(sum(lease.daemon == running.daemon.id for lease in now.values()))
    assert found == [2, 4, 5]
    assert all(now[key].epoch > before[key].epoch for key in keys)


async def test_a_caller_that_is_taken_twice_at_the_same_moment_has_one_feed(world: World) -> None:
    """By a plan and by a move, when a daemon dies: the second must not put a feed in the place of the first."""
    running = await world.daemon("one")
    alice = await world.agent("alice", ask=False)
    take = running.daemon._placement._take
    await alice.ask()
    await asyncio.gather(take([alice.key]), take([alice.key]))
    await alice.until("live")
    assert metric("fmsg_mcpd_leases") == 1
    async with asyncio.timeout(20):
        await running.drain()
    assert max(alice.counts) == 1
    assert alice.sockets == 0


async def test_a_large_plan_is_made_beside_the_event_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "IN_A_THREAD", 2)
    callers = await agents(world, 8)
    one, two = await world.daemon("one"), await world.daemon("two")
    await until_placed(world, callers, one, two)


async def test_messages_that_come_during_a_hand_over_arrive_once_each(world: World) -> None:
    callers = await agents(world, 12)
    one = await world.daemon("one")
    await until_placed(world, callers, one)
    sent: dict[str, list[int]] = {caller.address: [] for caller in callers}
    two = await world.daemon("two")
    for _ in range(5):
        for caller in callers:
            sent[caller.address].append(world.deliver(caller))
        await world.until_reconciled(2)
    await until_placed(world, callers, one, two)
    for caller in callers:
        await caller.until_ids(*sent[caller.address])


async def test_a_draining_daemon_hands_everybody_over_before_it_ends(world: World) -> None:
    callers = await agents(world, 16)
    one, two = await world.daemon("one"), await world.daemon("two")
    await until_placed(world, callers, one, two)
    for caller in callers:
        caller.counts.clear()
    await two.drain()
    await until_placed(world, callers, one)
    for caller in callers:
        assert caller.counts in ([], [2, 1])
    assert [member.id for member in await world.store.fleet.members()] == [one.daemon.id]


async def test_callers_not_taken_when_the_time_to_drain_is_over_are_told_of_and_lose_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """More callers than the others open sockets for in that time: the rest have none for a while, and all is found."""
    callers = await agents(world, 12)
    one = await world.daemon("one", drain_s=0.3, connects_per_s=1000.0)
    await until_placed(world, callers, one)
    two = await world.daemon("two", pull_settle_s=600.0, connects_per_s=8.0)
    await world.until_members(2)
    await one.drain()
    (said,) = [record for record in caplog.records if record.__dict__.get("action") == "drain_cut"]
    assert 0 < said.__dict__["left"] <= len(callers)
    assert "FMSG_DAEMON_DRAIN_SECONDS" in said.message
    ids = {caller.address: world.deliver(caller) for caller in callers}
    await until_placed(world, callers, two)
    for caller in callers:
        await caller.until_ids(ids[caller.address])


async def test_a_daemon_that_drained_in_time_says_nothing_of_the_kind(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    callers = await agents(world, 4)
    one, two = await world.daemon("one"), await world.daemon("two")
    await until_placed(world, callers, one, two)
    await one.drain()
    await two.drain()
    assert [record for record in caplog.records if record.__dict__.get("action") == "drain_cut"] == []


async def test_a_daemon_that_draws_no_breath_is_replaced_within_its_heartbeat(world: World) -> None:
    """kill -9: no word, no closed socket that anybody would notice."""
    callers = await agents(world, 8)
    one = await world.daemon("one")
    cable = Cable(world.store)
    two = await world.daemon("two", store=cable)
    await until_placed(world, callers, one, two)
    cable.plugged.clear()
    for caller in callers:
        await caller.until("live", daemon=one.daemon.id)
    cable.plugged.set()


async def test_a_daemon_that_was_stopped_and_goes_on_notices_that_it_owns_nothing_any_more(world: World) -> None:
    """SIGSTOP, and SIGCONT after others took its callers: its sockets were open all the time."""
    callers = await agents(world, 8)
    one = await world.daemon("one")
    cable = Cable(world.store)
    two = await world.daemon("two", store=cable)
    await until_placed(world, callers, one, two)
    lost = metric("fmsg_mcpd_leases_lost_total")
    theirs = [caller for caller in callers if (report := await caller.report()) and report.daemon == two.daemon.id]
    cable.plugged.clear()
    for caller in theirs:
        await caller.until("live", daemon=one.daemon.id)
        assert caller.sockets == 2
    cable.plugged.set()
    await world.bell.until(lambda: metric("fmsg_mcpd_leases_lost_total") >= lost + len(theirs))
    await until_placed(world, callers, one, two)
    assert all(caller.counts[-1] == 1 and min(caller.counts[1:]) >= 1 for caller in theirs)


async def test_a_caller_whose_token_expired_stays_where_its_socket_is_open(world: World) -> None:
    """A new owner could not open a socket of its own."""
    callers = await agents(world, 8)
    one = await world.daemon("one")
    await until_placed(world, callers, one)
    for caller in callers:
        await world.store.activations.activate(
            caller.key,
            address=caller.address,
            api_url=world.http.api_url,
            token="none any more",
            token_expires_at_s=1.0,
        )
    two = await world.daemon("two")
    await world.until_reconciled(16)
    assert {caller.sockets for caller in callers} == {1}
    for caller in callers:
        await caller.ask()
    await until_placed(world, callers, one, two)


async def test_the_hosts_connects_are_shared_among_the_daemons(world: World) -> None:
    one, two = await world.daemon("one", connects_per_s=40.0), await world.daemon("two", connects_per_s=40.0)
    await world.until_members(2)
    callers = await agents(world, 40)
    await until_placed(world, callers, one, two)
    since = sorted([report.since_s for caller in callers if (report := await caller.report()) is not None])
    for first in since:
        assert sum(1 for moment in since if first <= moment < first + 0.5) <= 0.5 * 40 * 0.8 + 8 + 2


async def test_an_emptied_store_is_filled_again_and_nobody_loses_a_message(world: World) -> None:
    """A Redis that restarts empty: no ledger, no lease, no member, no activation."""
    callers = await agents(world, 6)
    one, two = await world.daemon("one"), await world.daemon("two")
    await until_placed(world, callers, one, two)
    for caller in callers:
        await world.store.ledger.forget(caller.key)
    world.empty()
    ids = {caller.address: world.deliver(caller) for caller in callers}
    for caller in callers:
        await caller.until_ids(ids[caller.address])
        await caller.ask()
    await until_placed(world, callers, one, two)
