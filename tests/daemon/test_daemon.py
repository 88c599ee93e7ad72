"""A daemon alone: which feeds it runs, and how it comes and goes."""

from __future__ import annotations

from daemon.feed.machine import State
from ledger.operators import Order
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
    heard = world.store.activations.__dict__["_ears"]
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


async def test_a_daemon_that_joins_is_unsettled_until_it_has_its_callers(world: World) -> None:
    """Whoever restarts the next one before would have the callers of both move at the same time."""
    agents = [await world.agent(f"agent{number}") for number in range(12)]
    one = await world.daemon("one")
    await world.bell.until(lambda: one.daemon.unsettled() is None)
    two = await world.daemon("two", pull_settle_s=0.2)
    said: list[str | None] = []

    def settled() -> bool:
        said.append(two.daemon.unsettled())
        return said[-1] is None

    await world.bell.until(settled)
    assert any("on their way" in reason for reason in said if reason)
    live = [report for agent in agents if (report := await agent.report()) and report.daemon == two.daemon.id]
    assert len(live) >= 5
    assert all(report.live for report in live)


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
