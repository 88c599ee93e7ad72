"""One feed against a host: nothing that becomes available is missed, whatever happens to the socket."""

from __future__ import annotations

import asyncio

from tests.daemon.world import World, metric


async def test_what_was_there_before_is_taken_over_as_seeds_and_what_comes_is_pushed(world: World) -> None:
    alice = await world.agent("alice")
    old = world.deliver(alice)
    await world.daemon()
    await alice.until("live")
    new = world.deliver(alice)
    entries = await alice.until_ids(old, new)
    assert [(entry.id, entry.source) for entry in entries] == [(old, "snapshot"), (new, "push")]
    assert [entry.root for entry in entries] == [old, new]


async def test_a_message_of_a_known_thread_costs_no_request_to_the_host(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon(reconcile_reconnected_s=60.0, reconcile_s=60.0)
    await alice.until("live")
    root = world.deliver(alice)
    await alice.until_ids(root)
    before = dict(world.host.core.faults.requests)
    reply = world.deliver(alice, pid=root)
    other = world.deliver(alice)
    entries = await alice.until_ids(root, reply, other)
    assert {entry.id: entry.root for entry in entries} == {root: root, reply: root, other: other}
    assert dict(world.host.core.faults.requests) == before


async def test_a_socket_that_is_cut_in_a_burst_loses_nothing(world: World) -> None:
    """The host closes a client whose send buffer is full."""
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    ids = []
    for number in range(120):
        ids.append(world.deliver(alice))
        if number in {20, 50, 90}:
            world.host.control.drop_sockets(alice.address, close_frame=number == 50)
        if number % 10 == 0:
            await asyncio.sleep(0)
    entries = await alice.until_ids(*ids)
    assert [entry.at for entry in entries] == sorted({entry.at for entry in entries})


async def test_what_came_while_the_host_was_away_is_found_in_the_list(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    await world.host.control.refuse_connections()
    report = await alice.until("backing_off")
    assert report.error
    ids = [world.deliver(alice) for _ in range(3)]
    await world.host.control.accept_connections()
    entries = await alice.until_ids(*ids)
    assert [entry.id for entry in entries] == ids
    assert (await alice.until("live")).error is None


async def test_an_event_the_socket_lost_is_found_by_reconcile_and_counted(world: World) -> None:
    alice, carol = await world.agent("alice"), await world.agent("carol")
    await world.daemon()
    await alice.until("live")
    await carol.until("live")
    before = metric("fmsg_mcpd_lost_events_total")
    world.host.control.lose_events(address=alice.address)
    lost = world.deliver(alice)
    (entry,) = await alice.until_ids(lost)
    assert entry.source == "reconcile"
    await world.bell.until(lambda: metric("fmsg_mcpd_lost_events_total") == before + 1)


async def test_a_loss_makes_all_feeds_of_the_host_reconcile_soon(world: World) -> None:
    alice, carol = await world.agent("alice"), await world.agent("carol")
    await world.daemon(reconcile_s=3600.0, reconcile_quiet_s=3600.0, reconcile_reconnected_s=0.2)
    await alice.until("live")
    await carol.until("live")
    await world.until_reconciled(2)
    world.host.control.lose_events(address=carol.address)
    for_carol = world.deliver(carol)
    world.host.control.drop_sockets(alice.address)  # a feed that reconnected reconciles soon
    await alice.until("backing_off")
    await alice.until("live")
    world.host.control.lose_events(address=alice.address)
    world.deliver(alice)
    (entry,) = await carol.until_ids(for_carol)
    assert entry.source == "reconcile"


async def test_a_reaction_is_no_lost_event(world: World) -> None:
    """Hosts push the reaction's subject, so that the reaction itself is found only in the list."""
    alice, bob = await world.agent("alice"), await world.agent("bob", ask=False)
    await world.daemon()
    await alice.until("live")
    before = metric("fmsg_mcpd_lost_events_total")
    root = await bob.send(alice)
    await alice.until_ids(root)
    reaction = (await bob.api.react(root, "👍")).id
    assert reaction is not None
    entries = await alice.until_ids(root, reaction)
    assert (entries[-1].reaction, entries[-1].source) == (True, "reconcile")
    await world.until_reconciled(3)
    assert metric("fmsg_mcpd_lost_events_total") == before


async def test_being_added_to_an_old_message_is_an_arrival_at_that_moment(world: World) -> None:
    alice = await world.agent("alice")
    bob, carol = await world.agent("bob", ask=False), await world.agent("carol", ask=False)
    root = await bob.send(carol)
    recent = world.deliver(alice)
    await world.daemon(reconcile_s=60.0, reconcile_reconnected_s=60.0)
    await alice.until("live")
    await bob.api.add_recipients(root, [alice.address])
    entries = await alice.until_ids(recent, root)
    assert [(entry.id, entry.source) for entry in entries] == [(recent, "snapshot"), (root, "push")]
    batches = (await bob.api.message(root)).add_to
    assert batches
    assert entries[-1].sent_at_s == batches[0].time


async def test_others_being_added_is_no_arrival(world: World) -> None:
    """The event goes to every participant, and shows a message from before the ledger began and below its entries."""
    alice = await world.agent("alice")
    bob, carol = await world.agent("bob", ask=False), await world.agent("carol", ask=False)
    old = await bob.send(alice)
    for _ in range(70):
        world.deliver(alice)
    await world.daemon(reconcile_s=60.0, reconcile_reconnected_s=60.0)
    await alice.until("live")
    there = [entry.id for entry in await alice.entries()]
    assert old not in there
    await bob.api.add_recipients(old, [carol.address])
    new = await bob.send(alice)
    await alice.until_ids(*there, new)


async def test_a_draft_is_no_arrival_until_it_is_sent_and_then_it_is_one_with_an_old_id(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob", ask=False)
    draft = await bob.draft(alice)
    later = await bob.send(alice)
    await world.daemon()
    await alice.until("live")
    await world.until_reconciled(2)
    assert [entry.id for entry in await alice.entries()] == [later]
    await bob.api.send(draft)
    entries = await alice.until_ids(later, draft)
    assert [entry.id for entry in entries] == [later, draft]


async def test_a_draft_sent_while_the_socket_was_down_is_found_below_newer_ids(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob", ask=False)
    draft = await bob.draft(alice)
    await world.daemon()
    await alice.until("live")
    newer = [world.deliver(alice) for _ in range(50)]
    await alice.until_ids(*newer)
    world.host.control.reject_upgrades(10_000)
    world.host.control.drop_sockets(alice.address)
    await alice.until("backing_off")
    world.host.control.lose_events(address=alice.address)
    await bob.api.send(draft)
    world.host.control.clear_faults()
    entries = await alice.until_ids(*newer, draft)
    assert entries[-1].id == draft


async def test_a_message_can_be_pushed_before_it_is_readable(world: World) -> None:
    alice = await world.agent("alice")
    world.host.control.set_switches({"event_lead_s": 0.3})
    await world.daemon(reconcile_s=60.0, reconcile_reconnected_s=60.0)
    await alice.until("live")
    new = world.deliver(alice)
    (entry,) = await alice.until_ids(new)
    assert entry.source == "push"


async def test_a_reply_to_a_message_of_ones_own_gets_its_root_after_it_arrived(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob", ask=False)
    await world.daemon(reconcile_s=60.0, reconcile_reconnected_s=60.0)
    await alice.until("live")
    root = await alice.send(bob)
    answer = await bob.send(alice, pid=root)

    async def rooted() -> bool:
        return [(entry.id, entry.root) for entry in await alice.entries()] == [(answer, root)]

    await world.bell.until(rooted)


async def test_an_emptied_ledger_is_begun_anew_at_once(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon(reconcile_s=60.0, reconcile_reconnected_s=60.0)
    await alice.until("live")
    first = world.deliver(alice)
    await alice.until_ids(first)
    await world.store.ledger.forget(alice.key)
    second = world.deliver(alice)
    await alice.until_ids(first, second)
    await alice.until("live")
    third = world.deliver(alice)
    assert (await alice.until_ids(first, second, third))[-1].source == "push"


async def test_a_store_that_is_away_costs_neither_the_socket_nor_a_message(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    connects = world.host.core.faults.connects
    with world.store_away():
        ids = [world.deliver(alice) for _ in range(5)]
        await world.bell.until(lambda: world.failures > 3)
    assert sorted(entry.id for entry in await alice.until_ids(*ids)) == ids
    await alice.until("live")
    assert world.host.core.faults.connects == connects


async def test_more_frames_than_there_is_room_for_are_found_in_the_list(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon(pending_limit=4)
    await alice.until("live")
    with world.store_away():
        ids = [world.deliver(alice) for _ in range(12)]
        await world.bell.until(lambda: world.failures > 3)
    await alice.until_ids(*ids)


async def test_what_is_pushed_during_a_backfill_that_fails_is_written_once_one_succeeds(world: World) -> None:
    """Nobody knows yet what it came after."""
    alice = await world.agent("alice")
    first = await world.daemon()
    await alice.until("live")
    await first.drain()
    world.host.control.hang_next("list")
    world.host.control.fail_next("list", times=10_000)
    lists = world.host.core.faults.requests["list"]
    await world.daemon()
    await world.bell.until(lambda: world.host.core.faults.requests["list"] > lists)
    new = world.deliver(alice)
    last = world.deliver(alice)
    await world.bell.until(lambda: world.host.core.listener.frames >= 2)
    assert await alice.entries() == []
    world.host.control.release()
    assert (await alice.until("stalled")).error
    assert await alice.entries() == []
    world.host.control.clear_faults()
    await alice.until("live")
    await alice.until_ids(new, last)
