"""A daemon alone: which feeds it runs, and how it comes and goes."""

from __future__ import annotations

import logging

import pytest

from daemon.feed import diagnosis
from daemon.feed.machine import State
from ledger.operators import Order
from ledger.port import Activation
from ledger.values import CallerKey
from tests.daemon.world import World, metric


async def test_it_runs_those_who_asked_before_it_came_and_those_who_ask_later(world: World) -> None:
    alice = await world.agent("alice")
    running = await world.daemon()
    bob = await world.agent("bob")
    await alice.until("live")
    await bob.until("live")
    assert running.daemon.feeds() == {State.LIVE: 2}
    assert (await world.store.fleet.members())[0].id == running.daemon.id


async def test_a_request_whose_hint_was_lost_is_found_by_the_scan(world: World) -> None:
    await world.daemon()
    heard = world.store.activations.__dict__["_listeners"]
    ears = dict(heard)
    heard.clear()
    alice = await world.agent("alice")
    heard.update(ears)
    await alice.until("live")


async def test_a_caller_nobody_asks_for_rests_and_its_ledger_stays(world: World) -> None:
    alice = await world.agent("alice")
    running = await world.daemon(idle_after_s=0.4)
    await alice.until("live")
    first = world.deliver(alice)
    await alice.until_ids(first)
    await alice.until_sockets(0)
    assert (await alice.report(), await world.store.activations.active()) == (None, ())
    await world.bell.until(lambda: running.daemon.feeds() == {})
    second = world.deliver(alice)
    await alice.ask()
    await alice.until_ids(first, second)
    await alice.until("live")


async def test_a_caller_that_goes_on_asking_does_not_rest(world: World) -> None:
    """While its feed is live nobody tells the daemon of requests: it has to look."""
    alice = await world.agent("alice")
    await world.daemon(idle_after_s=0.5)
    report = await alice.until("live")
    connects = world.host.core.faults.connects
    for _ in range(6):
        await world.until_reconciled(1)
        await alice.ask(token=False)
    assert (await alice.until("live")).since_s == report.since_s
    assert world.host.core.faults.connects == connects


async def test_a_feed_outlives_its_activation_for_a_while_only(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon(missing_grace_s=0.5)
    await alice.until("live")
    await world.store.activations.retire(alice.key)
    new = world.deliver(alice)
    await alice.until_ids(new)
    await alice.until_sockets(0)
    await world.bell.until(lambda: metric("fmsg_mcpd_leases") == 0)
    assert await alice.report() is None


async def test_a_caller_of_another_host_is_left_alone(world: World) -> None:
    await world.daemon()
    alice = await world.agent("alice", ask=False)
    await world.store.activations.activate(
        alice.key, address=alice.address, api_url="https://elsewhere.test", token="t", token_expires_at_s=2e9
    )
    bob = await world.agent("bob")
    await bob.until("live")
    assert alice.sockets == 0


async def test_stopped_alone_it_closes_its_sockets_and_leaves_at_once(world: World) -> None:
    agents = [await world.agent(f"agent{number}") for number in range(20)]
    running = await world.daemon(drain_s=60.0)
    for agent in agents:
        await agent.until("live")
    await running.drain()
    assert world.host.control.stats()["open_sockets"] == 0
    assert await world.store.fleet.members() == ()
    assert metric("fmsg_mcpd_sockets") == 0
    assert metric("fmsg_mcpd_leases") == 0
    assert metric("fmsg_mcpd_feeds") == 0


async def test_stopped_among_others_it_does_not_wait_for_callers_nobody_can_take(world: World) -> None:
    """A store that was emptied forgot who asked: the other daemon takes over what it knows, and that is all."""
    alice, bob = await world.agent("alice"), await world.agent("bob")
    running = await world.daemon("one", drain_s=600.0, missing_grace_s=600.0)
    for agent in (alice, bob):
        await agent.until("live")
    await world.store.activations.retire(alice.key)
    await world.daemon("two", missing_grace_s=600.0)
    await world.until_members(2)
    await running.drain()
    await bob.until_sockets(1)
    assert alice.sockets == 0


async def test_a_daemon_is_unsettled_until_its_callers_have_sockets(world: World) -> None:
    """A rolling restart that went on before would have callers of two daemons without one at the same time."""
    agents = [await world.agent(f"agent{number}") for number in range(12)]
    one = await world.daemon("one", connects_per_s=20.0)
    said: list[str | None] = []

    def settled() -> bool:
        said.append(one.daemon.unsettled())
        return said[-1] is None

    await world.bell.until(settled)
    assert any("no socket yet" in reason for reason in said if reason)
    assert [agent.sockets for agent in agents] == [1] * 12


async def test_a_daemon_that_joins_does_not_wait_for_callers_that_have_a_socket_elsewhere(world: World) -> None:
    agents = [await world.agent(f"agent{number}") for number in range(12)]
    one = await world.daemon("one")
    for agent in agents:
        await agent.until("live")
    two = await world.daemon("two", pull_settle_s=600.0)
    await world.until_members(2)
    assert (one.daemon.unsettled(), two.daemon.unsettled()) == (None, None)
    assert [agent.sockets for agent in agents] == [1] * 12


async def test_connects_are_spread_over_time(world: World) -> None:
    agents = [await world.agent(f"agent{number}") for number in range(30)]
    await world.daemon(connects_per_s=20.0)
    for agent in agents:
        await agent.until("live")
    since = sorted([(await agent.until("live")).since_s for agent in agents])
    assert since[-1] - since[0] >= (30 - 4) / 16 * 0.9


async def test_an_operator_has_a_feed_begin_anew(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon()
    before = await alice.until("live")
    connects = world.host.core.faults.connects
    await world.orders.give(Order(what="reconnect", caller=alice.key))
    await world.bell.until(lambda: world.host.core.faults.connects == connects + 1)

    async def anew() -> bool:
        report = await alice.report()
        return report is not None and report.live and report.since_s > before.since_s

    await world.bell.until(anew)
    await alice.until_sockets(1)


async def test_an_operator_sends_a_feed_to_rest_until_the_caller_asks_again(world: World) -> None:
    alice = await world.agent("alice")
    running = await world.daemon()
    await alice.until("live")
    await world.orders.give(Order(what="rest", caller=alice.key))
    await alice.until_sockets(0)
    await world.bell.until(lambda: running.daemon.feeds() == {})
    assert await alice.report() is None
    await world.until_called("take", 2)
    assert alice.sockets == 0
    await alice.ask()
    await alice.until("live")


async def test_a_host_that_is_lost_and_comes_back_is_told_once_each(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once per feed and attempt; and when it is back no feed waits until its own delay is over."""
    monkeypatch.setattr(diagnosis, "LOST_AFTER_S", 0.2)
    agents = [await world.agent(f"agent{number}") for number in range(8)]
    running = await world.daemon(backoff_cap_s=3600.0, backoff_base_s=0.05, poll_s=0.05)
    for agent in agents:
        await agent.until("live")
    await world.host.control.refuse_connections()
    await world.bell.until(lambda: metric("fmsg_mcpd_host_up") == 0)

    async def told_the_fleet() -> bool:
        (member,) = await world.store.fleet.members()
        return member.host_lost_at_s is not None and "host" in (member.host_error or "")

    await world.bell.until(told_the_fleet)
    await world.host.control.accept_connections()
    for agent in agents:
        await agent.until("live")
    assert metric("fmsg_mcpd_host_up") == 1
    assert running.daemon.feeds() == {State.LIVE: 8}
    actions = [record.__dict__.get("action") for record in caplog.records if record.levelno >= logging.WARNING]
    assert actions == ["host_lost", "host_back"]


async def test_a_host_that_answers_one_caller_with_garbage_is_not_lost(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    await world.daemon()
    for agent in (alice, bob):
        await agent.until("live")
    world.host.control.fail_next("list", status=500)
    await world.until_reconciled(4)
    assert metric("fmsg_mcpd_host_up") == 1
    assert alice.sockets == bob.sockets == 1


async def test_when_the_store_is_back_every_feed_goes_on_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A feed that could not compare meanwhile does not stay stalled until its own delay is over, nor fills the log."""
    agents = [await world.agent(f"agent{number}") for number in range(4)]
    await world.daemon(backoff_cap_s=3600.0, backoff_base_s=3600.0)
    for agent in agents:
        await agent.until("live")
    with world.store_away(whole=True):
        ids = {agent.address: world.deliver(agent) for agent in agents}
        await world.bell.until(lambda: world.failures >= 30)
    for agent in agents:
        await agent.until_ids(ids[agent.address])
        await agent.until("live")
    assert [record for record in caplog.records if record.levelno >= logging.INFO and "store" in record.message] == []


async def test_an_activation_that_cannot_be_read_is_no_trouble_of_others(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    get = world.store.activations.get

    async def broken(caller: CallerKey) -> Activation | None:
        if caller == alice.key:
            raise ValueError("not a number")
        return await get(caller)

    vars(world.store.activations)["get"] = broken
    await world.daemon()
    await bob.until("live")
    assert alice.sockets == 0
    vars(world.store.activations)["get"] = get
    await alice.until("live")
