"""Callers that wait in a loop, as agents do: each result is followed by the next wait, on the same connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ops.bench.client import BenchAnswer, BenchClient
from ops.bench.target import BenchCaller, BenchTarget, connect_all

LEAD = 256
"""Calls sent and not held yet: enough that the server is never idle, few enough that it is not one long queue."""

CHUNK = 64
"""Connections opened before the server is asked how many waits it holds."""

LOOK_S = 0.1
"""Between such questions."""

LEAVE_WITHIN_S = 10.0
"""How long the server may take to notice that clients are gone. After that it is measured anyway."""

FAILURES_KEPT = 20
"""Texts of failures that are kept; the rest are counted."""


class Waiter:
    """One caller on one connection."""

    __slots__ = ("_arguments", "_waiters", "client", "person", "position", "sent_s")

    def __init__(
        self, waiters: Waiters, person: BenchCaller, client: BenchClient, arguments: Mapping[str, Any]
    ) -> None:
        self._waiters = waiters
        self._arguments = arguments
        self.person = person
        self.client = client
        self.position: str | None = None
        """``after_id`` of the last result."""
        self.sent_s = 0.0
        """When the wait that is held was sent, in monotonic seconds."""

    def change(self, **arguments: Any) -> None:
        """Send these, too, from the next wait on."""
        self._arguments = {**self._arguments, **arguments}

    def wait(self) -> None:
        """Send a wait."""
        arguments = dict(self._arguments)
        if self.position is not None:
            arguments["after_id"] = self.position
        self.sent_s = time.monotonic()
        self.client.call("wait_for_message", arguments).add_done_callback(self._answered)

    def _answered(self, call: asyncio.Future[BenchAnswer]) -> None:
        if call.cancelled():
            return
        error = call.exception()
        if error is not None:
            self._waiters.failed(f"{type(error).__name__}: {error}")
            return
        answer = call.result()
        if answer.is_error:
            self._waiters.failed(f"an error of the tool: {answer.text[:200]}")
            return
        self.position = answer.content["after_id"]
        self._waiters.answered(self, answer)


class Waiters:
    """Many waiters of one target. ``arguments`` go with every wait."""

    def __init__(self, target: BenchTarget, **arguments: Any) -> None:
        self.all: list[Waiter] = []
        self.failures: list[str] = []
        self.failed_count = 0
        self.timeouts = 0
        """Waits that ended without a message."""
        self.renew = True
        """Whether a result is answered by the next wait at once."""
        self.messages: list[tuple[Waiter, BenchAnswer]] = []
        """Results with messages, oldest first; the user empties it."""
        self._target = target
        self._arguments = arguments
        self._before = 0
        """Waits that the server held before the first of ours."""
        self._expected: tuple[int, asyncio.Future[None]] | None = None

    def __len__(self) -> int:
        return len(self.all)

    async def join(self, people: Sequence[BenchCaller]) -> None:
        """Have each of them wait, at the pace at which the server takes them. Returns when all are held."""
        if not self.all:
            self._before = await self._target.held() or 0
        for start in range(0, len(people), CHUNK):
            chunk = people[start : start + CHUNK]
            clients = await connect_all(self._target.mcp_url, [one.api_key for one in chunk])
            fresh = [
                Waiter(self, person, client, self._arguments) for person, client in zip(chunk, clients, strict=True)
            ]
            self.all += fresh
            for waiter in fresh:
                waiter.wait()
            await self.held_at_least(len(self.all) - LEAD)
        await self.held_at_least(len(self.all))

    async def held_at_least(self, count: int, *, longest_s: float = 30.0) -> None:
        """Return once the server holds so many waits more than before the first of ours, failed ones left out."""
        until_s = time.monotonic() + longest_s
        while time.monotonic() < until_s:
            held = await self._target.held()
            if held is None or held >= self._before + count - self.failed_count:
                return
            await asyncio.sleep(LOOK_S)

    def answered(self, waiter: Waiter, answer: BenchAnswer) -> None:
        """A wait ended; the next one follows."""
        if answer.content["status"] == "timeout":
            self.timeouts += 1
        else:
            self.messages.append((waiter, answer))
            self._reached()
        if self.renew:
            waiter.wait()

    def failed(self, text: str) -> None:
        """A wait was cut or refused."""
        if not self.renew and "cut" in text:
            return
        self.failed_count += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append(text)

    async def ended_at_least(self, count: int, *, within_s: float) -> None:
        """Wait until so many waits ran out or failed."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            if self.timeouts + self.failed_count >= count:
                return
            await asyncio.sleep(LOOK_S)

    async def expect(self, count: int, *, within_s: float) -> bool:
        """Wait until so many results with messages came since `messages` was emptied; whether they did."""
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = (count, arrived)
        self._reached()
        try:
            async with asyncio.timeout(within_s):
                await arrived
        except TimeoutError:
            return False
        finally:
            self._expected = None
        return True

    def _reached(self) -> None:
        if self._expected is not None and len(self.messages) >= self._expected[0] and not self._expected[1].done():
            self._expected[1].set_result(None)

    async def close(self) -> None:
        """Drop all connections; returns when the server has noticed."""
        self.renew = False
        for waiter in self.all:
            waiter.client.close()
        self.all.clear()
        until_s = time.monotonic() + LEAVE_WITHIN_S
        while time.monotonic() < until_s:
            if (await self._target.held() or 0) <= self._before:
                return
            await asyncio.sleep(LOOK_S)


def since_stamped_ms(answer: BenchAnswer, *, now_s: float | None = None) -> float:
    """From the time the host gave the message to the moment its result had come, on one machine's clock."""
    wall_s = time.time() - (time.monotonic() if now_s is None else now_s) + answer.at_s
    stamped = datetime.fromisoformat(answer.content["messages"][0]["time"]).timestamp()
    return (wall_s - stamped) * 1000
