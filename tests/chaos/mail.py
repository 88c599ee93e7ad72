"""What arrives: messages of every kind at a steady pace, by the paths on which they arrive at a real host."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import msgspec

from fmsg.errors import FmsgError, HostRefused
from fmsg.http import HostHttp
from fmsg.message import Draft
from fmsg.webapi import WebApi
from tests.chaos.calls import CallError, Client, Refused, ToolFailed
from tests.chaos.cluster import DOMAIN, ChaosCluster
from tests.key_tokens import KeyTokens

STRANGERS = tuple(f"@stranger{number}@far.test" for number in range(8))
"""Senders at another host."""
POSTERS = tuple(f"@poster{number}@{DOMAIN}" for number in range(4))
"""Senders with an address of their own here: only they can make drafts, add people and react."""
THREADS_KEPT = 12
"""Messages per address that later ones may reply to: so many threads are interleaved."""
NEWEST = 60
"""People are added to messages no further down their list: a lost event of an older one is found by sweeps of the
workers, which take longer than a run."""
BURST = 150
"""More than a result takes and than a page of the host's list shows."""
INSIST_S = 0.3
"""Between attempts at something the host or a front failed to do."""


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """How often each kind of message is chosen, relative to the others.

    A draft is sent up to ``draft_waits_s`` after it was made: many others arrive above it meanwhile.
    """

    one: float = 60.0
    several: float = 8.0
    each: float = 3.0
    burst: float = 0.15
    no_reply: float = 4.0
    own: float = 1.0
    draft: float = 6.0
    add_to: float = 4.0
    reaction: float = 3.0
    by_front: float = 3.0
    draft_waits_s: float = 15.0


class Sending(msgspec.Struct, kw_only=True):
    """A message sent through a front with an idempotency key: at most once, however often it was called."""

    key: str
    caller: str
    began_s: float
    attempts: int = 0
    sent_id: int | None = None
    ended_s: float = 0.0


class Mail:
    """Sends to ``addresses`` until told to stop, then finishes what it began."""

    def __init__(
        self,
        cluster: ChaosCluster,
        addresses: Sequence[str],
        keys: dict[str, str],
        client: Client,
        rng: random.Random,
        *,
        mix: Mix = Mix(),  # noqa: B008 - frozen
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.arrivals = 0
        """Messages times their recipients, as far as they were confirmed."""
        self.sendings: list[Sending] = []
        self._house = cluster
        self._addresses = list(addresses)
        self._keys = keys
        self._client = client
        self._rng = rng
        self._kinds: dict[Callable[[], Awaitable[None]], float] = {
            self._one: mix.one,
            self._several: mix.several,
            self._each: mix.each,
            self._burst: mix.burst,
            self._no_reply: mix.no_reply,
            self._own: mix.own,
            self._draft: mix.draft,
            self._add_to: mix.add_to,
            self._reaction: mix.reaction,
            self._by_front: mix.by_front,
        }
        self._threads: dict[str, list[int]] = {address: [] for address in addresses}
        self._newest: dict[str, deque[int]] = {address: deque([0], maxlen=NEWEST) for address in addresses}
        self._posted: list[tuple[str, int]] = []
        self._apis: dict[str, WebApi] = {}
        self._draft_waits_s = mix.draft_waits_s
        self._numbers = itertools.count(1)
        self._stopped = False

    async def run(self, *, rate: float, count: float = math.inf) -> None:
        """Let ``rate`` messages arrive in a second, ``count`` in all or until `stop`; returns when all is done."""
        async with HostHttp(self._house.api_url) as http:
            for poster in POSTERS:
                key = str(await self._house.control.insist("create_key", address=poster))
                self._apis[poster] = WebApi(http, KeyTokens(http, key))
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                while self.arrivals < count and not self._stopped:
                    elapsed_s = time.monotonic() - began
                    if elapsed_s > 2.0 * count / rate:
                        break
                    (kind,) = self._rng.choices(list(self._kinds), list(self._kinds.values()))
                    group.create_task(self._try(kind))
                    # However long the host takes, what is sent is sent at this pace.
                    ahead_s = self.arrivals / rate - elapsed_s
                    await asyncio.sleep(max(ahead_s, self._rng.uniform(0.2, 1.0) / rate))

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopped = True

    async def _try(self, kind: Callable[[], Awaitable[None]]) -> None:
        try:
            await kind()
        except (aiohttp.ClientError, FmsgError) as error:
            # It happened or not: what the host lists in the end decides.
            self.counts[f"unsure: {type(error).__name__}"] += 1

    def _address(self) -> str:
        return self._rng.choice(self._addresses)

    def _sender(self) -> str:
        return self._rng.choice(STRANGERS)

    def _parent(self, address: str) -> int | None:
        thread = self._threads[address]
        return self._rng.choice(thread) if thread and self._rng.random() < 0.6 else None

    def _remember(self, address: str, message_id: int) -> None:
        self._newest[address].append(message_id)
        thread = self._threads[address]
        thread.append(message_id)
        if len(thread) > THREADS_KEPT:
            thread.pop(self._rng.randrange(len(thread)))

    def _arrived(self, kind: str, count: int = 1) -> None:
        self.counts[kind] += count
        self.arrivals += count

    async def _deliver(self, to: Sequence[str], **more: Any) -> int:
        number = next(self._numbers)
        more = {"from": self._sender(), "topic": "" if more.get("pid") else f"topic {number}", **more}
        return int(await self._house.control.call("deliver", to=list(to), body=f"message {number}", **more))

    async def _one(self) -> None:
        address = self._address()
        self._remember(address, await self._deliver([address], pid=self._parent(address)))
        self._arrived("one")

    async def _several(self) -> None:
        to = self._rng.sample(self._addresses, min(5, len(self._addresses)))
        message_id = await self._deliver(to, pid=self._parent(to[0]))
        for address in to:
            self._remember(address, message_id)
        self._arrived("several", len(to))

    async def _each(self) -> None:
        to = self._rng.sample(self._addresses, min(20, len(self._addresses)))
        number = next(self._numbers)
        fields = {"from": self._sender(), "to": to, "topic": f"topic {number}", "body": f"message {number}"}
        await self._house.control.call("deliver_each", **fields)
        self._arrived("each", len(to))

    async def _burst(self) -> None:
        address = self._address()
        for _ in range(BURST):
            self._remember(address, await self._deliver([address], pid=self._parent(address)))
            self._arrived("burst")

    async def _no_reply(self) -> None:
        await self._deliver([self._address()], no_reply=True)
        self.counts["no_reply"] += 1

    async def _own(self) -> None:
        address = self._address()
        await self._deliver([address], **{"from": address})
        self.counts["own"] += 1

    async def _draft(self) -> None:
        poster, address = self._rng.choice(POSTERS), self._address()
        api = self._apis[poster]
        number = next(self._numbers)
        data = f"message {number}"
        draft = Draft(
            from_=poster,
            to=(address,),
            topic=f"topic {number}",
            type="text/plain;charset=UTF-8",
            data=data,
            size=len(data),
        )
        draft_id = await api.create_draft(draft)
        await asyncio.sleep(self._rng.uniform(0.0, self._draft_waits_s))
        await self._send(api, draft_id)
        self._posted.append((poster, draft_id))
        self._remember(address, draft_id)
        self._arrived("draft")

    async def _send(self, api: WebApi, draft_id: int) -> None:
        while True:
            try:
                await api.send(draft_id)
                return
            except HostRefused as error:
                if error.status < 500 and error.status not in (401, 429):
                    return  # it was sent by an attempt whose answer was lost
            except FmsgError:
                self.counts["unsure: send again"] += 1
            await asyncio.sleep(INSIST_S)

    async def _add_to(self) -> None:
        if not self._posted:
            return
        address = self._address()
        poster, message_id = self._rng.choice(self._posted[-500:])
        if message_id < self._newest[address][0]:
            return
        await self._apis[poster].add_recipients(message_id, [address])
        self._arrived("add_to")

    async def _reaction(self) -> None:
        if not self._posted:
            return
        poster, message_id = self._rng.choice(self._posted[-500:])
        await self._apis[poster].react(message_id, self._rng.choice(["👍", "🎉", "❤️"]))
        self.counts["reaction"] += 1

    async def _by_front(self) -> None:
        """One caller writes to another through the fronts, with a key, until it is told that it was sent."""
        caller, address = self._rng.sample(self._addresses, 2)
        sending = Sending(key=f"once-{next(self._numbers)}", caller=caller, began_s=time.time())
        self.sendings.append(sending)
        arguments = {
            "to": [address],
            "topic": sending.key,
            "body": f"This is {sending.key}.",
            "idempotency_key": sending.key,
        }
        while sending.sent_id is None:
            sending.attempts += 1
            url = self._rng.choice(self._house.urls)
            try:
                patience_s = self._rng.choice([0.02, 0.1, 60.0, 60.0, 60.0])
                fields = await self._client.call(
                    url, self._keys[caller], "send_message", arguments, patience_s=patience_s
                )
                sending.sent_id = int(fields["id"])
            except ToolFailed as error:
                self.counts[f"send failed: {str(error)[:80]}"] += 1
                await asyncio.sleep(self._rng.uniform(0.3, 1.0))
            except Refused as error:
                await asyncio.sleep(min(error.retry_after_s or 1.0, 5.0))
            except CallError:
                await asyncio.sleep(self._rng.uniform(0.05, 0.3))
        sending.ended_s = time.time()
        self._arrived("by_front")
