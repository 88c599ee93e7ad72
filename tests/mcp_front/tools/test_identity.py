"""``whoami`` and ``resolve_address``."""

from __future__ import annotations

import pytest

from fmsg.directory import Directory
from mcp_front.settings import FrontSettings
from tests.mcp_front.agents import Transport, World


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_whoami(world: World, transport: Transport) -> None:
    ann = world.agent("ann", transport=transport)
    got = await ann.call("whoami")
    assert got.fields == {
        "address": "@ann@here.test",
        "api_url": ann.context.caller.api_url,
        "transport": transport,
    }
    assert all(value in got.text for value in got.fields.values())


async def test_whoami_shows_the_public_url_where_there_is_one(world: World) -> None:
    settings = FrontSettings(transport="http", api_public_url="https://fmsgapi.example.com")
    got = await world.agent("ann", transport="http", settings=settings).call("whoami")
    assert got.fields["api_url"] == "https://fmsgapi.example.com"
    assert "127.0.0.1" not in got.text


@pytest.mark.parametrize(
    ("name", "address", "resolution"),
    [
        ("@Bob@There.test", "@bob@there.test", "literal"),
        ("bobby", "@bob@there.test", "directory"),
        ("cat", "@cat@here.test", "default_domain"),
    ],
)
async def test_resolve_address_says_what_and_how_and_asks_nobody(
    world: World, name: str, address: str, resolution: str
) -> None:
    ann = world.agent("ann", directory=Directory({"bobby": "@bob@there.test"}, default_domain="here.test"))
    got = await ann.call("resolve_address", name=name)
    assert got.fields == {"address": address, "resolution": resolution}
    assert world.requests() == {}


async def test_a_name_that_stands_for_nothing_is_refused_with_what_to_write(world: World) -> None:
    got = await world.agent("ann").call("resolve_address", name="bob")
    assert got.error["kind"] == "bad_argument"
    assert got.text.startswith("name: ")
    assert "@alice@example.com" in got.text
