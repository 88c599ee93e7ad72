"""What a broken or hostile host pushes to one caller is that caller's trouble alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fmsg.events import MAX_FRAME_BYTES
from fmsg.reference import MAX_ID
from tests.daemon.world import Agent, World, metric


def frame(**fields: Any) -> bytes:
    """A frame about a new message; fields may be anything."""
    data = {"id": 7, "from": "@eve@far.test", "to": ["@alice@host.test"], "time": 1.0, "type": "text/plain", **fields}
    return json.dumps({"type": "new_msg", "data": data}).encode()


async def live(world: World) -> tuple[Agent, Agent]:
    """Two callers with live feeds, one of whom meets the hostile host."""
    alice, bob = await world.agent("alice"), await world.agent("bob")
    await world.daemon(reconcile_s=60.0, reconcile_reconnected_s=60.0)
    for agent in (alice, bob):
        await agent.until("live")
    return alice, bob


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b'{"type":"new_msg","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="nested"),
        pytest.param(frame(surprise="x" * 900_000), id="much in an unknown field"),
        pytest.param(frame(**{"from": "@" + "e" * 900_000 + "@far.test"}), id="a long address"),
        pytest.param(frame(to=["@a@b.test"] * 60_000), id="many recipients"),
        pytest.param(frame(id=MAX_ID + 1), id="an id out of range"),
        pytest.param(frame(id=-7), id="a negative id"),
        pytest.param(frame(id=10**400), id="an id of 400 digits"),
        pytest.param(frame(pid=10**30), id="a parent out of range"),
        pytest.param(frame(time=1e308), id="a time out of range"),
        pytest.param(frame(time="yesterday"), id="a time that is none"),
        pytest.param(b'{"type":"new_msg","data":null}', id="null"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_a_frame_that_makes_no_sense_costs_no_other_message(world: World, hostile: bytes) -> None:
    alice, bob = await live(world)
    for ear in world.host.core.listener.ears(alice.address):
        for _ in range(3):
            ear.offer(hostile)
    ids = {agent.address: world.deliver(agent) for agent in (alice, bob)}
    for agent in (bob, alice):

        async def there(agent: Agent = agent) -> bool:
            return ids[agent.address] in [entry.id for entry in await agent.entries()]

        await world.bell.until(there)
        await agent.until("live")
    assert bob.counts == [1], "the socket of another caller stayed open"
    for entry in await alice.entries():
        assert len(entry.from_) < 10_000


async def test_a_frame_of_ten_megabytes_closes_that_callers_socket_alone(world: World) -> None:
    alice, bob = await live(world)
    for ear in world.host.core.listener.ears(alice.address):
        ear.offer(b'"' + b"x" * (10 * MAX_FRAME_BYTES) + b'"')
    await world.bell.until(lambda: 0 in alice.counts)
    new = world.deliver(alice)
    await alice.until_ids(new)
    await alice.until("live")
    assert bob.counts == [1]
    assert metric("fmsg_mcpd_host_up") == 1
