"""Hosts that know each other, on ports of their own."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from sandbox.host import SandboxHost, serve
from tests.sandbox.people import ANSWER_S, Person


def test_federating_introduces_everybody_to_everybody() -> None:
    hosts = [SandboxHost(f"{name}.test") for name in "abc"]
    hosts[0].federate(*hosts[1:])
    assert set(hosts[2].core.courier.peers) == {"a.test", "b.test"}


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
        assert one.core.courier.peer("b.test") is other.core
    assert one.core.courier.peer("b.test") is None


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
