"""The control surface, as methods and over HTTP."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec
import pytest

from sandbox.control import Control, arguments_of, methods_of
from sandbox.host import SandboxHost, serve
from sandbox.switches import OLDER
from tests.sandbox.conftest import Clock, Cluster
from tests.sandbox.people import Answer, Person


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


async def test_one_message_each(cluster: Cluster, alice: Person, bob: Person) -> None:
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


async def test_a_person_can_be_made_and_written_to(alice: Person) -> None:
    assert (await alice.control("create_address", address="@new@a.test")).json == {"result": "@new@a.test"}
    alice.address = "@new@a.test"
    alice.key = (await alice.control("create_key", address="@new@a.test", life_s=60)).json["result"]
    assert (await alice.sign_in()).status == 200
    fields = {"from": "@x@c.test", "to": ["@new@a.test"], "topic": "T", "data": "/v8=", "type": "image/png"}
    number = (await alice.control("deliver", **fields)).json["result"]
    message = await alice.message(number)
    assert (message["topic"], message["size"], message["type"]) == ("T", 2, "image/png")


async def test_stats_and_the_list_of_methods(alice: Person) -> None:
    for path, part in (("stats", "result"), ("", "deliver")):
        async with alice.session.get(f"{alice.url}/_sandbox/{path}".rstrip("/")) as response:
            assert response.status == 200
            assert part in await response.json()


async def test_the_listing_names_arguments_as_they_are_taken(alice: Person) -> None:
    async with alice.session.get(f"{alice.url}/_sandbox") as response:
        listed = await response.json()
    for name, method in methods_of(alice.host.control).items():
        assert list(listed[name]["arguments"]) == [
            field.encode_name for field in msgspec.structs.fields(arguments_of(method))
        ]
    arguments = listed["deliver"]["arguments"]
    assert (arguments["from"], arguments["to"]) == ("str", "Sequence[str]")
    assert arguments["type"] == "str = 'text/plain;charset=UTF-8'"


@pytest.mark.parametrize(
    ("name", "arguments", "status", "part"),
    [
        ("cut_link", {"domain": "no domain"}, 400, "'no domain' cannot be a domain"),
        ("mend_link", {"domain": "@b.test"}, 400, "'@b.test' cannot be a domain"),
        ("create_address", {"address": "ann"}, 400, "is not an fmsg address"),
        ("create_key", {"address": "@x@b.test"}, 400, "does not belong to a.test"),
        ("set_address", {"address": "@x@b.test"}, 400, "does not belong to a.test"),
        ("create_address", {}, 400, "missing required field `address`"),
        ("create_address", {"address": "@a@x", "tea": 1}, 400, "tea"),
        ("set_next_id", {"next_id": 0}, 400, "outside"),
        ("deliver", {"from": "@x@c.test", "to": ["@y@a.test"], "pid": 77}, 404, "77"),
        ("revoke_key", {"key": "nothing"}, 404, "nothing"),
        ("set_switches", {"preset": "tea"}, 404, "tea"),
        ("create_key", {"address": "@a@a.test", "cidrs": ["tea"]}, 400, "tea"),
    ],
)
async def test_arguments_that_do_not_fit(
    alice: Person, name: str, arguments: dict[str, Any], status: int, part: str
) -> None:
    answer: Answer = await alice.control(name, **arguments)
    assert answer.status == status
    assert part in answer.error


async def test_refusing_over_http_is_answered_and_comes_back_over_the_same_connection(alice: Person) -> None:
    assert (await alice.control("refuse_connections")).status == 200
    async with aiohttp.ClientSession() as other:
        with pytest.raises(aiohttp.ClientConnectorError):
            await other.get(alice.url)
    assert (await alice.control("accept_connections")).status == 200
    async with aiohttp.ClientSession() as other, other.get(alice.url) as response:
        assert response.status == 404


async def test_the_surface_can_be_left_out() -> None:
    async with (
        serve(SandboxHost("a.test"), control=False) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/_sandbox/stats") as response,
    ):
        assert response.status == 404


def test_every_method_is_offered_and_described() -> None:
    methods = methods_of(SandboxHost("a.test").control)
    assert set(methods) == {name for name in vars(Control) if name[0] != "_"}
    for name, method in methods.items():
        assert arguments_of(method).__name__ == name
        assert method.__doc__
