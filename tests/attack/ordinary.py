"""Ordinary callers, who wait for messages all the time, and what they notice of an attack."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import aiohttp

from tests.attack.host import DOMAIN
from tests.chaos.calls import CallError, Client

WAIT_S = 20
"""Length of their waits."""
PATIENCE_S = 60.0
SENDER = f"@stranger@{DOMAIN}"


class Ordinary:
    """The callers. What is delivered to them is counted until each message has come back from a wait."""

    def __init__(self, url: str, control: str, client: Client, session: aiohttp.ClientSession, count: int) -> None:
        self.addresses = [f"@caller{number}@{DOMAIN}" for number in range(count)]
        self.failures: Counter[str] = Counter()
        """What failed calls said."""
        self.wakes_s: list[float] = []
        """From the delivery of each message to the result that had it."""
        self.again = 0
        """Messages that came a second time."""
        self._url = url
        self._control = control
        self._client = client
        self._session = session
        self._sent_at_s: dict[int, float] = {}
        self._received: set[int] = set()

    async def ask(self, method: str, **arguments: object) -> object:
        """Call the sandbox host's control surface."""
        async with self._session.post(f"{self._control}/{method}", json=arguments) as answer:
            answer.raise_for_status()
            return (await answer.json())["result"]

    async def run(self, ready: asyncio.Event, *, messages_per_s: float, rng: random.Random) -> None:
        """Wait in loops, and have messages delivered, until cancelled. ``ready`` is set once all are known."""
        keys = [str(await self.ask("create_key", address=address)) for address in self.addresses]
        async with asyncio.TaskGroup() as tasks:
            begun = [asyncio.Event() for _ in keys]
            for key, event in zip(keys, begun, strict=True):
                tasks.create_task(self._caller(key, event))
            for event in begun:
                await event.wait()
            ready.set()
            while True:
                await asyncio.sleep(rng.expovariate(messages_per_s))
                await self._deliver(rng.choice(self.addresses))

    async def _deliver(self, address: str) -> None:
        message_id = await self.ask("deliver", **{"from": SENDER, "to": [address], "body": "hello"})
        # Not before: the host may be busy with the attack, too, and that is no matter of ours.
        self._sent_at_s[int(str(message_id))] = time.monotonic()

    async def _caller(self, key: str, begun: asyncio.Event) -> None:
        after_id = "0"
        while True:
            timeout_s = WAIT_S if begun.is_set() else 1
            arguments = {"after_id": after_id, "timeout_seconds": timeout_s, "settle_seconds": 0}
            try:
                result = await self._client.call(
                    self._url, key, "wait_for_message", arguments, patience_s=timeout_s + PATIENCE_S
                )
            except CallError as error:
                self.failures[f"{type(error).__name__}: {str(error)[:120]}"] += 1
                await asyncio.sleep(0.5)
                continue
            begun.set()
            after_id = result["after_id"]
            for message in result["messages"]:
                self._note(int(message["id"]))

    def _note(self, message_id: int) -> None:
        if message_id in self._received:
            self.again += 1
            return
        self._received.add(message_id)
        sent_at_s = self._sent_at_s.get(message_id)
        # It may come back before the control surface has said its id.
        self.wakes_s.append(0.0 if sent_at_s is None else time.monotonic() - sent_at_s)

    def missing(self) -> int:
        """Messages delivered that no wait has returned yet."""
        return len(self._sent_at_s.keys() - self._received)

    async def settled(self, limit_s: float) -> int:
        """Wait until nothing is missing any more; returns what still is at the limit."""
        until_s = time.monotonic() + limit_s
        while self.missing() and time.monotonic() < until_s:  # noqa: ASYNC110 - an answer of any of the callers may do
            await asyncio.sleep(0.1)
        return self.missing()
