"""The one reader of published messages in a process.

What is published while the connection is down is lost, so after each reconnect all listeners are woken. A listener that
is woken reads again; one wake-up too many costs a read.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis.exceptions as faults
from redis.asyncio.client import PubSub

from fmsg.backoff import backoff_s
from ledger.memory import Listeners
from ledger.redis.topology import Topology
from ledger.values import CallerKey
from telemetry.logs import SELDOM
from telemetry.metrics import REDIS_RECONNECTS

log = logging.getLogger(__name__)

ARRIVALS = "arrivals"
"""The channel on which `ledger.redis.ledger` publishes the key of a caller whose ledger grew."""

QUIET_S = 10.0
"""A connection silent for so long is asked with a PING whether it lives, and given up when it stays silent as long
again: a half-open connection looks exactly like one on which nothing happens."""

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0
"""Full-jitter backoff between reconnects. Short, since waits poll meanwhile and one connection is no burden."""

CANCEL_AGAIN_S = 0.2
"""How long the reader has to end after it was cancelled before it is cancelled again."""

Heard = Callable[[str], None]
"""Called with the text of each message of a channel, and with the empty string after a reconnect."""


class RedisNotifications:
    """`ledger.port.Notifications`. Further channels can share its connection: `hear`."""

    def __init__(
        self,
        topology: Topology,
        *,
        quiet_s: float = QUIET_S,
        first_delay_s: float = FIRST_DELAY_S,
        max_delay_s: float = MAX_DELAY_S,
        rng: random.Random | None = None,
    ) -> None:
        self._topology = topology
        self._quiet_s = quiet_s
        self._first_delay_s = first_delay_s
        self._max_delay_s = max_delay_s
        self._rng = rng or random.Random()
        self._callers: Listeners[CallerKey] = Listeners()
        self._channels: dict[str, Heard] = {topology.channel(ARRIVALS): self._arrived}
        self.connected = asyncio.Event()
        """Set while the reader is subscribed."""

    def listen(self, caller: CallerKey, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when the caller's ledger grew, and after each reconnect."""
        return self._callers.add(caller, wake)

    def hear(self, channel: str, heard: Heard) -> None:
        """Also read a channel (its name without the prefix); say so before `running`. ``heard`` must not block."""
        self._channels[self._topology.channel(channel)] = heard

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the reader while the context is open. Does not wait for Redis: it may come later."""
        reader = asyncio.create_task(self._run(), name="notifications")  # ended below
        try:
            yield
        finally:
            ended = False
            while not ended:
                # More than once: `asyncio.wait_for`, which redis-py uses to send, can lose a cancellation that meets
                # the end of what it waits for.
                reader.cancel()
                ended = bool((await asyncio.wait({reader}, timeout=CANCEL_AGAIN_S))[0])
            self.connected.clear()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                async with self._topology.pubsub() as reader:
                    await reader.subscribe(*self._channels)
                    await self._read(reader)
            except (faults.RedisError, faults.RedisClusterException, OSError) as error:
                if self.connected.is_set():
                    failures = 0
                    REDIS_RECONNECTS.inc()
                self.connected.clear()
                log.warning(
                    "the connection for notifications failed",
                    extra={"action": "notifications_lost", "error": repr(error), **SELDOM},
                )
            except Exception:
                # Whatever it was, waiters must not lose their reader for the rest of the process's life.
                self.connected.clear()
                log.exception("the reader of notifications failed", extra={"action": "notifications_failed"})
            failures += 1
            await asyncio.sleep(backoff_s(failures, self._rng, base_s=self._first_delay_s, cap_s=self._max_delay_s))

    async def _read(self, reader: PubSub) -> None:
        """Read until the connection fails."""
        missing, asked = len(self._channels), False
        while True:
            message = await reader.get_message(timeout=self._quiet_s)
            if message is None:
                if asked or missing:
                    raise faults.TimeoutError(f"no answer within {self._quiet_s} s")
                await reader.ping()
                asked = True
                continue
            asked = False
            if message["type"] == "message":
                self._hear(message)
            elif message["type"] == "subscribe" and missing:
                missing -= 1
                if not missing:
                    await self._subscribed()

    async def _subscribed(self) -> None:
        self.connected.set()
        for heard in self._channels.values():
            heard("")
        await self._callers.wake_all()

    def _hear(self, message: dict[str, Any]) -> None:
        heard = self._channels.get(message["channel"].decode())
        if heard is not None:
            heard(message["data"].decode("utf-8", "replace"))

    def _arrived(self, text: str) -> None:
        if text:
            self._callers.wake(CallerKey(text))
