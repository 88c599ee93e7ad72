"""A host that refuses connections and comes back on the same port."""

from __future__ import annotations

import aiohttp
import pytest

from tests.sandbox.people import Person


async def test_connections_are_refused_and_taken_again(alice: Person, bob: Person) -> None:
    control = alice.host.control
    async with alice.listen() as ears:
        await control.refuse_connections()
        assert await ears.end() == 1006
    with pytest.raises(aiohttp.ClientConnectorError):
        await alice.get()
    await control.refuse_connections()
    await control.accept_connections()
    await control.accept_connections()
    assert (await alice.get()).status == 200
    assert control.stats()["sockets"] == {}


async def test_a_restart_keeps_messages_and_tokens(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    async with bob.listen() as ears:
        bob.host.control.restart(0.05)
        bob.host.control.restart(0.05)
        assert await ears.end() == 1006
    while True:
        try:
            assert await bob.ids() == [number]
            break
        except aiohttp.ClientConnectorError:
            continue


async def test_a_restart_asked_for_over_http_is_answered(alice: Person) -> None:
    answer = await alice.control("restart", down_s=0.01)
    assert (answer.status, answer.json) == (200, {"result": None})
    assert (await alice.control("accept_connections")).status == 200


async def test_a_host_may_end_while_it_refuses(alice: Person) -> None:
    await alice.host.control.refuse_connections()


async def test_a_host_may_end_while_it_restarts(alice: Person) -> None:
    alice.host.control.restart(60)
