"""The life and the ends of a socket (FMSG-003, "WebSocket")."""

from __future__ import annotations

import aiohttp
import pytest

from sandbox.switches import Switches
from tests.sandbox.conftest import Clock, Cluster
from tests.sandbox.people import ANSWER_S, Person


async def test_the_upgrade_takes_the_token_from_the_header_or_the_query(alice: Person) -> None:
    for query in ("", "?token=" + alice.token, "?access_token=nonsense"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await alice.session.ws_connect(f"{alice.url}/fmsg/ws{query}")
        assert refused.value.status == 401
    async with alice.session.ws_connect(f"{alice.url}/fmsg/ws?access_token={alice.token}") as ws:
        number = await alice.send(alice.address)
        assert (await ws.receive_json(timeout=ANSWER_S))["data"]["id"] == number


async def test_only_the_socket_takes_the_token_from_the_query(alice: Person) -> None:
    assert (await alice.ask("GET", f"?access_token={alice.token}", authorization="")).status == 401


async def test_without_an_upgrade(alice: Person) -> None:
    assert (await alice.get("/ws")).status == 400


async def test_upgrades_can_be_refused(alice: Person) -> None:
    alice.host.control.reject_upgrades(2, status=429)
    for _ in range(2):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await alice.session.ws_connect(f"{alice.url}/fmsg/ws", headers={"Authorization": f"Bearer {alice.token}"})
        assert refused.value.status == 429
    async with alice.listen():
        pass


async def test_a_burst_over_the_send_buffer_closes_the_socket(alice: Person, bob: Person) -> None:
    async with bob.listen() as ears:
        numbers = bob.host.control.deliver_each(alice.address, [bob.address] * 17)
        assert await ears.end() == 1000
    assert bob.host.control.stats()["sockets_overrun"] == 1
    assert await bob.ids() == numbers[::-1]
    async with bob.listen() as ears:
        bob.host.control.deliver_each(alice.address, [bob.address] * 16)
        for _ in range(16):
            await ears.next()


async def test_the_send_buffer_may_have_no_bound(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(send_buffer_frames=0))
    bob = await cluster.person("@bob@a.test")
    async with bob.listen() as ears:
        bob.host.control.deliver_each("@x@c.test", [bob.address] * 200)
        for _ in range(200):
            await ears.next()


async def test_a_client_that_does_not_read_is_closed(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(short_text_bytes=0))
    bob = await cluster.person("@bob@a.test")
    control = bob.host.control
    async with bob.listen():
        topic = "x" * 1_000_000
        while control.stats()["open_sockets"]:
            control.deliver("@x@c.test", [bob.address], topic=topic)
            await bob.get("/sent")


async def test_a_socket_outlives_its_token_and_its_key(alice: Person, bob: Person, clock: Clock) -> None:
    async with bob.listen() as ears:
        bob.host.control.revoke_key(bob.key)
        bob.host.control.expire_tokens(bob.address)
        bob.host.control.set_address(bob.address)
        number = await alice.send(bob.address)
        assert (await ears.next())[1]["id"] == number
        assert (await bob.get()).status == 401


async def test_or_it_ends_with_its_token(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(sockets_outlive_tokens=False, token_life_s=0.05))
    bob = await cluster.person("@bob@a.test")
    async with bob.listen() as ears:
        assert await ears.end() == 1000


async def test_or_when_its_token_is_expired_from_outside(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(sockets_outlive_tokens=False))
    bob = await cluster.person("@bob@a.test")
    async with bob.listen() as ears:
        bob.host.control.expire_tokens(bob.address)
        assert await ears.end() == 1000


async def test_or_with_its_key(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(sockets_outlive_tokens=False))
    bob, eve = await cluster.person("@bob@a.test"), await cluster.person("@eve@a.test")
    async with bob.listen() as ears, eve.listen():
        bob.host.control.revoke_key(bob.key)
        assert await ears.end() == 1000
        assert bob.host.control.stats()["sockets"] == {eve.address: 1}


async def test_a_long_text_frame_from_the_client_closes_it(bob: Person) -> None:
    async with bob.listen() as ears:
        await ears.ws.send_str("x" * 1000)
        await ears.ws.send_str("x" * 1025)
        assert await ears.end() == 1009


async def test_pings_come_and_a_silent_client_is_cut(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(ping_s=0.02, pong_wait_s=0.1))
    bob = await cluster.person("@bob@a.test")
    headers = {"Authorization": f"Bearer {bob.token}"}
    async with bob.session.ws_connect(f"{bob.url}/fmsg/ws", headers=headers, autoping=False) as ws:
        await ws.send_str("this is no sign of life")
        for _ in range(8):
            message = await ws.receive(5)
            assert message.type is aiohttp.WSMsgType.PING
            await ws.pong(message.data)
        seen = []
        while (message := await ws.receive(5)).type is aiohttp.WSMsgType.PING:
            await ws.send_str("nor is this")
            seen.append(message)
        assert seen
        assert ws.close_code == 1006


async def test_the_host_answers_pings(bob: Person) -> None:
    headers = {"Authorization": f"Bearer {bob.token}"}
    async with bob.session.ws_connect(f"{bob.url}/fmsg/ws", headers=headers, autoping=False) as ws:
        await ws.ping(b"x")
        message = await ws.receive(5)
        assert (message.type, message.data) == (aiohttp.WSMsgType.PONG, b"x")


@pytest.mark.parametrize(("close_frame", "code", "seen"), [(False, 1000, 1006), (True, 1012, 1012)])
async def test_sockets_can_be_dropped(
    cluster: Cluster, alice: Person, bob: Person, close_frame: bool, code: int, seen: int
) -> None:
    async with alice.listen() as hers, bob.listen() as his:
        assert bob.host.control.drop_sockets(bob.address, close_frame=close_frame, code=code) == 1
        assert await his.end() == seen
        assert bob.host.control.stats()["sockets"] == {alice.address: 1}
        assert bob.host.control.drop_sockets(close_frame=close_frame, code=code) == 1
        assert await hers.end() == seen


async def test_a_socket_the_client_closed_is_forgotten(bob: Person) -> None:
    async with bob.listen():
        assert bob.host.control.stats()["open_sockets"] == 1
    while bob.host.control.stats()["open_sockets"]:
        await bob.get()
    assert bob.host.control.stats()["connects"] == 1
