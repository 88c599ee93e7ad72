"""Any front answers any request: conversations that go from one to the next with every call."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.chaos.calls import CallError, Client
from tests.chaos.cluster import DOMAIN, ChaosCluster, Sizes, running
from tests.chaos.keeping import kept_by_a_task
from tests.chaos.truth import truth

pytestmark = [
    pytest.mark.processes,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("fleet conversation"),
]

PATIENCE_S = 60.0
TURNS = 9
"""Three times around the fronts."""
RACES = 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChaosCluster]:
    """Three fronts and a daemon."""
    sizes = Sizes(fronts=3, daemons=1, workers=0)
    async with kept_by_a_task(running(tmp_path_factory.mktemp("conversation"), sizes=sizes)) as found:
        yield found


class Speaker:
    """A caller whose every call goes to the next front."""

    def __init__(self, cluster: ChaosCluster, client: Client, key: str, address: str) -> None:
        self.key = key
        self.address = address
        self._client = client
        self._urls = itertools.cycle(cluster.urls)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool. Raises `CallError`."""
        return await self._client.call(next(self._urls), self.key, tool, arguments, patience_s=PATIENCE_S)


async def speaker(cluster: ChaosCluster, client: Client, name: str) -> Speaker:
    """Somebody with an address."""
    address = f"@{name}@{DOMAIN}"
    return Speaker(cluster, client, str(await cluster.control.insist("create_key", address=address)), address)


@pytest.mark.parametrize("subscription", [None, "main"])
async def test_a_conversation_goes_on_whichever_front_is_asked(cluster: ChaosCluster, subscription: str | None) -> None:
    """Two agents answer each other; each reads every message once, and the thread is whole from everywhere."""
    async with Client() as client:
        suffix = subscription or "plain"
        alice, bob = await speaker(cluster, client, f"alice-{suffix}"), await speaker(cluster, client, f"bob-{suffix}")
        named = {} if subscription is None else {"subscription": subscription}
        positions = {alice.address: "0", bob.address: "0"}
        sent = await alice.call("send_message", to=[bob.address], topic="Turns", body="turn 0")
        said = [sent["id"]]
        for turn in range(1, TURNS + 1):
            reader = bob if turn % 2 else alice
            got = await reader.call(
                "wait_for_message", after_id=positions[reader.address], timeout_seconds=30, settle_seconds=0, **named
            )
            assert [message["id"] for message in got["messages"]] == [said[-1]]
            assert not any(message.get("already_returned") or message.get("redelivered") for message in got["messages"])
            positions[reader.address] = got["after_id"]
            answer = await reader.call("reply", id=got["reply_target_id"], body=f"turn {turn}")
            said.append(answer["id"])
        for reader in (alice, bob):
            thread = await reader.call("get_thread", id=said[-1])
            assert [message["id"] for message in thread["messages"]] == said


@pytest.mark.parametrize("tool", ["send_message", "reply"])
async def test_a_key_that_races_across_fronts_sends_once(cluster: ChaosCluster, tool: str) -> None:
    """Six calls with one idempotency key at the same moment on three fronts: one message, and all are told of it."""
    async with Client() as client:
        alice, bob = await speaker(cluster, client, f"racer-{tool}"), await speaker(cluster, client, f"finish-{tool}")
        first = await bob.call("send_message", to=[alice.address], topic="On your marks", body="Go.")
        for race in range(RACES):
            body = f"race {race}"
            what = {"to": [bob.address], "topic": body} if tool == "send_message" else {"id": first["id"]}
            answers = await asyncio.gather(
                *(alice.call(tool, body=body, idempotency_key=body, **what) for _ in range(2 * len(cluster.urls)))
            )
            assert len({answer["id"] for answer in answers}) == 1
            assert sum(not answer.get("repeated") for answer in answers) == 1
        listed = (await truth(cluster.api_url, {bob.address: bob.key})).listed[bob.address]
        assert len(listed) == RACES


async def test_a_call_cut_off_and_repeated_elsewhere_with_its_key_sends_once(cluster: ChaosCluster) -> None:
    """The agent hangs up at every moment of a send and repeats it at the next front until it is told."""
    async with Client() as client:
        alice, bob = await speaker(cluster, client, "hasty"), await speaker(cluster, client, "patient")
        await alice.call("whoami")
        urls = itertools.cycle(cluster.urls)
        for moment in range(12):
            arguments = {"to": [bob.address], "topic": f"moment {moment}", "body": "x", "idempotency_key": f"m{moment}"}
            patience_s = 0.004 * moment
            while True:
                try:
                    await client.call(next(urls), alice.key, "send_message", arguments, patience_s=patience_s)
                    break
                except CallError:
                    patience_s = PATIENCE_S
        topics = (await truth(cluster.api_url, {bob.address: bob.key})).topics
        assert topics == Counter({f"moment {moment}": 1 for moment in range(12)})
