"""Hosts on their ports."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sandbox.host import SandboxHost, run_hosts, serve
from tests.sandbox.people import ANSWER_S, Person


def test_federating_introduces_everybody_to_everybody() -> None:
    hosts = [SandboxHost(f"{name}.test") for name in "abc"]
    hosts[0].federate(*hosts[1:])
    assert set(hosts[2].core.links.peers) == {"a.test", "b.test"}


async def test_a_port_can_be_chosen() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with serve(SandboxHost("a.test"), port) as url, aiohttp.ClientSession() as session:
        assert url == f"http://127.0.0.1:{port}"
        async with session.get(f"{url}/fmsg") as response:
            assert response.status == 401


async def test_a_host_that_ended_is_not_reached() -> None:
    one, other = SandboxHost("a.test"), SandboxHost("b.test")
    one.federate(other)
    async with serve(other):
        assert one.core.peer("b.test") is other.core
    assert one.core.peer("b.test") is None


async def test_open_sockets_and_hanging_requests_end_with_the_host() -> None:
    host = SandboxHost("a.test")
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        async with serve(host) as url:
            person = Person(session, host, url, "@a@a.test", host.control.create_key("@a@a.test"))
            await person.sign_in()
            host.control.hang_next("create")
            hanging = group.create_task(_fails(person))
            await person.asked("create")
            headers = {"Authorization": f"Bearer {person.token}"}
            ws = await session.ws_connect(f"{url}/fmsg/ws", headers=headers, autoclose=False)
            closing = group.create_task(ws.receive(ANSWER_S))
        assert (await closing).data == 1001
        await hanging
        await ws.close()


async def _fails(person: Person) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        await person.post("", person.wire("@b@a.test"))


async def test_hosts_are_announced_and_federate(tmp_path: Path) -> None:
    stop, announced, ready = asyncio.Event(), list[dict[str, Any]](), asyncio.Event()

    def announce(line: dict[str, Any]) -> None:
        announced.append(line)
        if len(announced) == 2:
            ready.set()

    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
        group.create_task(
            run_hosts(
                ["a.test", "b.test"],
                ports=[0],
                bind="127.0.0.1",
                stop=stop,
                announce=announce,
                sqlite_dir=tmp_path,
                addresses=["@alice@A.test"],
            )
        )
        await ready.wait()
        control = announced[1]["control"]
        async with session.get(f"{control}/stats") as response:
            assert (await response.json())["result"]["domain"] == "b.test"
        async with session.post(f"{control}/refuse_connections") as response:
            assert response.status == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(announced[1]["url"])
        async with aiohttp.ClientSession() as other, other.post(f"{control}/accept_connections") as response:
            assert response.status == 200
        async with session.get(announced[1]["page"]) as response:
            assert response.status == 200
        key = announced[0]["keys"]["@alice@A.test"]
        url = f"{announced[0]['url']}/fmsg/token"
        async with session.post(url, headers={"Authorization": f"Bearer {key}"}) as response:
            assert response.status == 200
        stop.set()
    assert announced[1]["keys"] == {}
    assert [line["domain"] for line in announced] == ["a.test", "b.test"]
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".sqlite")) == [
        "a.test.sqlite",
        "b.test.sqlite",
    ]


@pytest.mark.parametrize(
    ("domains", "ports", "reason"),
    [
        (["a.test", "a b"], [], "'a b' cannot be a domain"),
        (["@a"], [], "cannot be"),
        ([], [], "no domain"),
        (["a.test", "A.test"], [], "twice"),
        (["a.test"], [0, 0], "2 ports for 1 domains"),
    ],
)
async def test_what_cannot_be_run(domains: list[str], ports: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        await run_hosts(domains, ports=ports, bind="127.0.0.1", stop=asyncio.Event(), announce=print)


async def test_addresses_of_other_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="belongs to none"):
        await run_hosts(
            ["a.test"], ports=[], bind="127.0.0.1", stop=asyncio.Event(), announce=print, addresses=["@x@b.test"]
        )
