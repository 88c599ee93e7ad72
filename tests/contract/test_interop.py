"""FMSG-007's minimum interoperability test, and what may die in its middle, with real processes throughout."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis.asyncio

from ledger.embedded import EmbeddedRedis
from ops.agent import Agent, over_http, over_stdio
from ops.demo import Cluster, Side, running_cluster
from ops.interop import Interop, InteropStep
from ops.processes import Child

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("cluster")]

BODY = "the-body-nobody-may-find"
TOPIC = "the-topic-nobody-may-find"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the cluster's processes log to."""
    return tmp_path_factory.mktemp("cluster")


@contextlib.asynccontextmanager
async def two_agents(cluster: Cluster) -> AsyncIterator[tuple[Agent, Agent]]:
    """Both agents over HTTP, each with its own key at its own host's front."""
    here, there = cluster.sides
    async with over_http(here.mcp_url, here.api_key) as alice, over_http(there.mcp_url, there.api_key) as bob:
        yield alice, bob


async def steps_of(interop: Interop) -> list[InteropStep]:
    """Run all steps."""
    return [step async for step in interop.run()]


def stdio_env(side: Side) -> dict[str, str]:
    """The four variables of the standard, for one side."""
    return {"FMSG_API_URL": side.api_url, "FMSG_API_KEY": side.api_key, "FMSG_DEFAULT_DOMAIN": side.domain}


async def test_the_seven_steps_hold_over_http(scratch: Path) -> None:
    """Two agents on two federated hosts, a front and a daemon for each, one Redis."""
    async with running_cluster(scratch) as cluster, two_agents(cluster) as (alice, bob):
        here, there = cluster.sides
        steps = await steps_of(
            Interop(alice=alice, bob=bob, addresses=(here.address, there.address), mcp_url=here.mcp_url)
        )
        assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6, 7]


async def test_the_seven_steps_hold_over_stdio(scratch: Path) -> None:
    """The same agents, each with a server of its own that it started itself."""
    async with running_cluster(scratch) as cluster:
        here, there = cluster.sides
        arguments = ("-m", "fmsg_mcpd", "stdio")
        async with (
            over_stdio(sys.executable, *arguments, env=stdio_env(here)) as alice,
            over_stdio(sys.executable, *arguments, env=stdio_env(there)) as bob,
        ):
            steps = await steps_of(Interop(alice=alice, bob=bob, addresses=(here.address, there.address), mcp_url=None))
            assert len(steps) == 7


async def test_a_daemon_killed_during_a_wait_loses_nothing(scratch: Path) -> None:
    """kill -9, a message, another daemon: the wait returns it."""
    async with running_cluster(scratch) as cluster, two_agents(cluster) as (alice, bob):
        here = cluster.sides[0]
        waiting = asyncio.create_task(alice.call("wait_for_message", timeout_seconds=60, settle_seconds=0))
        await held_waits(cluster, 1)
        cluster.children["daemon-here"].kill()
        await bob.call("send_message", to=[here.address], topic=TOPIC, body=BODY)
        got = await waiting
        assert got["status"] == "message"
        assert got["messages"][0]["topic"] == TOPIC


async def test_redis_restarted_empty_during_a_wait_loses_nothing(scratch: Path) -> None:
    """The ledger is gone with everything else in Redis; the wait returns the message all the same."""
    async with running_cluster(scratch) as cluster, two_agents(cluster) as (alice, bob):
        here = cluster.sides[0]
        first = await bob.call("send_message", to=[here.address], topic="first", body="one")
        assert first["to"] == [here.address]
        seen = await alice.call("wait_for_message", after_id="0", timeout_seconds=30, settle_seconds=0)
        waiting = asyncio.create_task(
            alice.call("wait_for_message", after_id=seen["after_id"], timeout_seconds=60, settle_seconds=0)
        )
        await held_waits(cluster, 1)
        await cluster.redis.restart_async(empty=True)
        await bob.call("send_message", to=[here.address], topic=TOPIC, body=BODY)
        got = await waiting
        assert [message["topic"] for message in got["messages"]] == [TOPIC]


async def test_no_credential_and_no_content_is_left_anywhere(scratch: Path) -> None:
    """After a whole conversation: every Redis value, every log, every metric, every file, searched for both."""
    async with running_cluster(scratch) as cluster, two_agents(cluster) as (alice, bob):
        here, there = cluster.sides
        waiting = asyncio.create_task(bob.call("wait_for_message", timeout_seconds=30, settle_seconds=0))
        await held_waits(cluster, 1, side=1)
        await alice.call("send_message", to=[there.address], topic=TOPIC, body=BODY, idempotency_key="once")
        got = await waiting
        await bob.call("reply", id=got["reply_target_id"], body=BODY)
        await alice.call("wait_for_message", after_id="0", timeout_seconds=30, subscription="main")
        refused = await refusal(alice, here)
        tokens = [await token_of(side) for side in cluster.sides]
        secrets = [
            BODY,
            TOPIC,
            *(part for side in cluster.sides for part in pieces(side.api_key)),
            *(part for token in tokens for part in token.split(".")[1:]),
        ]
        places = {
            "redis": await everything_in(cluster.redis),
            "error": refused.encode(),
            "metrics": b"".join([await metrics_of(child) for child in cluster.children.values()]),
        }
        places |= files_below(scratch)
        for place, content in places.items():
            for secret in secrets:
                assert secret.encode() not in content, f"found in {place}"
        assert len(places["redis"]) > 500
        assert b"fmsg_mcpd_waits" in places["metrics"]


async def held_waits(cluster: Cluster, count: int, *, side: int = 0) -> None:
    """Wait until a front holds so many waits, by its own metrics."""
    prefix = cluster.sides[side].domain.partition(".")[0]
    child = cluster.children[f"front-{prefix}"]
    async with asyncio.timeout(20):
        while f"fmsg_mcpd_waits_held {count}.0".encode() not in await metrics_of(child):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def metrics_of(child: Child) -> bytes:
    """What a process exports; nothing for one without a side port."""
    port = next((item["metrics_port"] for item in child.announced if item.get("metrics_port")), None)
    if port is None:
        return b""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return await answer.read()


async def token_of(side: Side) -> str:
    """An access token of a side, to know what one looks like."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{side.api_url}/fmsg/token", headers={"Authorization": f"Bearer {side.api_key}"}) as answer,
    ):
        return str((await answer.json())["access_token"])


async def refusal(agent: Agent, side: Side) -> str:
    """The text of a tool error that was provoked with a key in an argument."""
    result = await agent.client.call_tool("get_message", {"id": "1" + side.api_key})
    assert result.is_error
    return result.model_dump_json()


def files_below(directory: Path) -> dict[str, bytes]:
    """The content of every file."""
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def pieces(api_key: str) -> list[str]:
    """The secret of a key, whole and in parts between the characters a pattern might stop at."""
    secret = api_key.split("_", 2)[2]
    return [part for part in secret.replace("+", "/").replace("=", "/").split("/") if len(part) >= 8] + [secret]


async def everything_in(server: EmbeddedRedis) -> bytes:
    """Every key and value of a Redis server, whatever its type."""
    found: list[bytes] = []
    async with redis.asyncio.Redis.from_url(server.url) as client:
        async for key in client.scan_iter(count=1000):
            found += [key, await client.dump(key) or b"", *await raw_values(client, key)]
    return b"\n".join(found)


async def raw_values(client: Any, key: bytes) -> list[bytes]:
    """The values of a key, uncompressed."""
    kind = await client.type(key)
    if kind == b"string":
        return [await client.get(key)]
    if kind == b"hash":
        return [part for pair in (await client.hgetall(key)).items() for part in pair]
    if kind == b"list":
        return list(await client.lrange(key, 0, -1))
    if kind == b"set":
        return list(await client.smembers(key))
    if kind == b"zset":
        return list(await client.zrange(key, 0, -1))
    if kind == b"stream":
        return [repr(await client.xrange(key)).encode()]
    return []
