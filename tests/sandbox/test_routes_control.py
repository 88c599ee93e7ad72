"""The control surface over HTTP."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from sandbox.control import Control
from sandbox.host import SandboxHost, serve
from sandbox.routes_control import arguments_of, methods_of
from tests.sandbox.people import Answer, Person


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


@pytest.mark.parametrize(
    ("name", "arguments", "status", "part"),
    [
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
