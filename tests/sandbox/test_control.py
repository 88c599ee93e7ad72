"""The control surface as methods, where no other test of this folder uses it."""

from __future__ import annotations

import pytest

from sandbox.host import SandboxHost
from sandbox.switches import OLDER
from tests.sandbox.conftest import Clock, Town
from tests.sandbox.people import Person


async def test_a_message_can_be_injected(bob: Person, clock: Clock) -> None:
    async with bob.listen() as ears:
        root = bob.host.control.deliver("@x@c.test", [bob.address, "@y@d.test"], topic="T", body="hi", important=True)
        kind, message = await ears.next()
    assert (kind, message["id"], message["topic"], message["short_text"]) == ("new_msg", root, "T", "hi")
    assert [item["response_code"] for item in message["to_delivery"]] == [None, -2]
    reply = bob.host.control.deliver("@x@c.test", [bob.address], pid=root, data=b"\xff", time_s=5.5)
    assert await bob.ids() == [reply, root]
    assert (await bob.message(reply))["pid"] == root
    assert (await bob.message(reply))["time"] == 5.5
    assert (await bob.get(f"/{reply}/data")).body == b"\xff"


async def test_an_injected_message_can_be_answered(bob: Person) -> None:
    root = bob.host.control.deliver("@x@c.test", [bob.address])
    await bob.send("@x@c.test", pid=root)


async def test_one_message_each(town: Town, alice: Person, bob: Person) -> None:
    first, second = bob.host.control.deliver_each("@x@c.test", [alice.address, bob.address])
    assert await alice.ids() == [first]
    assert await bob.ids() == [second]


async def test_ids_are_set_within_bounds() -> None:
    control = SandboxHost("a.test").control
    for wrong in (0, 2**63):
        with pytest.raises(ValueError, match="outside"):
            control.set_next_id(wrong)
    control.set_next_id(2**63 - 1)
    assert control.stats()["next_id"] == 2**63 - 1


async def test_switches_can_be_changed_while_it_runs(alice: Person) -> None:
    control = alice.host.control
    assert control.set_switches({"null_lists": False}, preset="older")["null_lists"] is False
    number = await alice.send(alice.address)
    assert (await alice.message(number))["add_to"] == []
    assert (await alice.get(f"/{number}/thread/messages")).status == 404
    assert control.set_switches(preset="older")["null_lists"] == OLDER.null_lists
    with pytest.raises(ValueError, match="there is no tea"):
        control.set_switches({"tea": 1})


async def test_a_host_without_a_port_cannot_refuse() -> None:
    with pytest.raises(RuntimeError, match="is not served"):
        await SandboxHost("a.test").control.refuse_connections()


async def test_stats_tell_what_is_open_and_what_was(alice: Person, bob: Person, clock: Clock) -> None:
    async with alice.listen(), bob.listen():
        stats = bob.host.control.stats()
        assert stats["sockets"] == {alice.address: 1, bob.address: 1}
        assert (stats["open_sockets"], stats["connects"], stats["peak_connects_per_s"]) == (2, 2, 2)
        assert stats["requests"]["token"] == 2
        bob.host.control.reset_stats()
        stats = bob.host.control.stats()
        assert (stats["connects"], stats["requests"], stats["open_sockets"]) == (0, {}, 2)
