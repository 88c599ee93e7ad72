"""One feed against a host: nothing that becomes available is missed, whatever happens to the socket."""

from __future__ import annotations

import asyncio

from tests.daemon.world import World


async def test_what_was_there_before_is_taken_over_as_seeds_and_what_comes_is_pushed(world: World) -> None:
    alice = await world.agent("alice")
    old = world.deliver(alice)
    await world.daemon()
    await alice.until("live")
    new = world.deliver(alice)
    entries = await alice.until_ids(old, new)
    assert [(entry.id, entry.source) for entry in entries] == [(old, "seed"), (new, "push")]
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
    assert [entry.n for entry in entries] == list(range(1, 121))


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
