"""Two callers, every tool and resource with the other's ids, interleaved over all fronts: is anything of one in the
other's answers?
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
from collections import Counter
from typing import Any

import msgspec

from tests.chaos.calls import CallError, Client, Refused, ToolFailed
from tests.chaos.cluster import DOMAIN, ChaosCluster

AT_ONCE = 16
"""Calls under way at a time: more than two, or they would not be interleaved."""
FILE = "paper.txt"
PATIENCE_S = 60.0


class Person(msgspec.Struct, kw_only=True):
    """A caller and what is its own."""

    name: str
    key: str
    secret: str
    """In everything it sent and received: bodies, topics, attachments, the names of those it writes with."""
    ids: list[str] = []
    subscription: str

    @property
    def address(self) -> str:
        """Its fmsg address."""
        return f"@{self.name}@{DOMAIN}"


class Isolation(msgspec.Struct, kw_only=True):
    """The outcome."""

    calls: int = 0
    refused: int = 0
    leaks: list[str] = []
    own: Counter[str] = msgspec.field(default_factory=Counter)
    """Answers that showed a caller something of its own, by tool: what proves that there was something to show."""


async def isolation(cluster: ChaosCluster, client: Client, *, calls: int, seed: int = 1) -> Isolation:
    """Make so many calls. The cluster must have no callers by these names yet."""
    rng = random.Random(seed)
    run = f"{rng.getrandbits(32):08x}"
    agents = [await _person(cluster, client, f"{name}-{run}", rng) for name in ("alice", "bob")]
    found = Isolation()
    numbers = itertools.count()
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            me, other = agents if number % 2 else reversed(agents)
            whose = other if rng.random() < 0.7 else me
            method, params = _request(rng, me, whose, next(numbers))
            said = await _ask(client, rng.choice(cluster.urls), me, method, params, found)
            found.calls += 1
            if other.secret in said:
                found.leaks.append(f"{me.name} {method} {json.dumps(params)[:200]}: {said[:300]}")
            if me.secret in said:
                found.own[str(params.get("name", method))] += 1

    await asyncio.gather(*(one(number) for number in range(calls)))
    return found


async def _ask(client: Client, url: str, me: Person, method: str, params: dict[str, Any], found: Isolation) -> str:
    try:
        result = await client.request(url, me.key, method, params, patience_s=PATIENCE_S)
        found.refused += bool(result.get("isError"))
        return json.dumps(result)
    except (Refused, ToolFailed) as error:
        found.refused += 1
        return str(error)


async def _person(cluster: ChaosCluster, client: Client, name: str, rng: random.Random) -> Person:
    """Somebody with a message received, one in reply to it, one sent, an attachment and a subscription."""
    secret = f"s{rng.getrandbits(64):016x}"
    address, friend = f"@{name}@{DOMAIN}", f"@{secret}@{DOMAIN}"
    key = str(await cluster.control.insist("create_key", address=address))
    friends_key = str(await cluster.control.insist("create_key", address=friend))
    me = Person(name=name, key=key, secret=secret, subscription=f"of-{name}")

    async def call(key: str, tool: str, **arguments: Any) -> dict[str, Any]:
        while True:
            try:
                return await client.call(rng.choice(cluster.urls), key, tool, arguments, patience_s=PATIENCE_S)
            except CallError as error:
                if isinstance(error, ToolFailed):
                    raise

    paper = {"filename": FILE, "data_base64": base64.b64encode(secret.encode()).decode()}
    sent = await call(
        friends_key, "send_message", to=[address], topic=f"about {secret}", body=f"It is {secret}.", attachments=[paper]
    )
    got = await call(
        key, "wait_for_message", after_id="0", timeout_seconds=30, settle_seconds=0, subscription=me.subscription
    )
    answer = await call(key, "reply", id=got["reply_target_id"], body=f"I know {secret}.", idempotency_key=name)
    me.ids = [sent["id"], answer["id"]]
    return me


def _request(rng: random.Random, me: Person, whose: Person, number: int) -> tuple[str, dict[str, Any]]:
    """A request of ``me`` about something of ``whose``."""
    message_id = rng.choice(whose.ids)
    tools: list[tuple[str, dict[str, Any]]] = [
        ("whoami", {}),
        ("list_messages", {"limit": 50}),
        ("list_sent", {"limit": 50}),
        ("get_message", {"id": message_id}),
        ("get_thread", {"id": message_id}),
        ("mark_read", {"ids": [message_id]}),
        ("delivery_status", {"id": message_id}),
        ("download_attachment", {"id": message_id, "filename": FILE}),
        ("react", {"id": message_id, "emoji": "👍"}),
        ("resolve_address", {"address": whose.address}),
        ("wait_for_message", {"after_id": message_id, "timeout_seconds": 0}),
        ("wait_for_message", {"after_id": "0", "timeout_seconds": 0, "settle_seconds": 0}),
        ("wait_for_message", {"thread_of": message_id, "after_id": "0", "timeout_seconds": 0, "include_thread": True}),
        ("wait_for_message", {"subscription": whose.subscription, "timeout_seconds": 0}),
        ("wait_subscriptions", {"action": "list"}),
    ]
    if whose is not me:
        tools += [
            ("add_recipients", {"id": message_id, "add_to": [me.address]}),
            ("reply", {"id": message_id, "body": "May I?", "idempotency_key": whose.name}),
            ("wait_subscriptions", {"action": "delete", "name": whose.subscription}),
        ]
    resources = [f"fmsg://message/{message_id}", f"fmsg://thread/{message_id}", "fmsg://inbox"]
    if number % 5 == 0:
        return "resources/read", {"uri": rng.choice(resources)}
    name, arguments = rng.choice(tools)
    return "tools/call", {"name": name, "arguments": arguments}
