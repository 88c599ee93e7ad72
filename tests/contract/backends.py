"""The ledgers that keep the contract, each with what its tests need to do behind its back."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from ledger.memory import MemoryLedger, MemoryNotifications
from ledger.port import Ledger, Notifications
from ledger.redis.ledger import RedisLedger
from ledger.redis.notifications import RedisNotifications
from ledger.redis.scripts import Scripts
from ledger.redis.topology import Topology
from ledger.values import CallerKey, LedgerLimits


class Backend(Protocol):
    """A ledger under test."""

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        ...

    @property
    def notifications(self) -> Notifications:
        """Its notifications."""
        ...

    async def turn_back(self, caller: CallerKey, seconds: float) -> None:
        """Let the clock behind the ledger step back; the caller's ledger has begun."""
        ...

    async def wipe(self) -> None:
        """Lose everything, as FLUSHALL or a restart without data would."""
        ...

    async def keep(self, caller: CallerKey) -> Callable[[], Awaitable[None]]:
        """What a replica that lags has: the function that makes it the caller's ledger."""
        ...


class MemoryBackend:
    """`MemoryLedger` on a clock that can be moved."""

    def __init__(self, limits: LedgerLimits) -> None:
        self._limits = limits
        self.offset_s = 0.0
        self.notifications = MemoryNotifications()
        self._begin()

    def _begin(self) -> None:
        self.ledger = MemoryLedger(
            limits=self._limits, clock=lambda: time.time() + self.offset_s, notifications=self.notifications
        )

    async def turn_back(self, caller: CallerKey, seconds: float) -> None:
        await self.ledger.state(caller)
        self.offset_s -= seconds

    async def wipe(self) -> None:
        """A process that starts again has an empty ledger."""
        self._begin()

    async def keep(self, caller: CallerKey) -> Callable[[], Awaitable[None]]:
        kept = copy.deepcopy(self.ledger._ledgers[caller])

        async def put_back() -> None:
            await next_millisecond()
            self.ledger._ledgers[caller] = copy.deepcopy(kept)

        return put_back


class RedisBackend:
    """`RedisLedger` on any topology."""

    def __init__(self, topology: Topology, limits: LedgerLimits) -> None:
        self.topology = topology
        self.scripts = Scripts(topology.commands)
        self.ledger = RedisLedger(self.scripts, topology, limits=limits)
        self.notifications = RedisNotifications(topology)

    async def turn_back(self, caller: CallerKey, seconds: float) -> None:
        """The server's clock is the machine's, so how far the ledger's is ahead of it goes back instead."""
        key = self.topology.key(caller, "meta")
        await self.scripts.command("HSET", key, "ahead", int(-seconds * 1000), idempotent=False)

    async def wipe(self) -> None:
        await self.topology.commands.execute_command("FLUSHALL")

    async def keep(self, caller: CallerKey) -> Callable[[], Awaitable[None]]:
        command = self.topology.commands.execute_command
        keys = [self.topology.key(caller, part) for part in ("meta", "entries", "index", "gone")]
        kept = [await command("DUMP", key) for key in keys]

        async def put_back() -> None:
            await next_millisecond()
            await command("DEL", *keys)
            for key, dump in zip(keys, kept, strict=True):
                if dump is not None:
                    await command("RESTORE", key, 600_000, dump)

        return put_back


@contextlib.asynccontextmanager
async def redis_backend(
    topology: Callable[[], Topology], limits: LedgerLimits | None = None
) -> AsyncIterator[RedisBackend]:
    """A `RedisBackend` whose connections are closed in the end."""
    backend = RedisBackend(topology(), limits or LedgerLimits())
    try:
        yield backend
    finally:
        await backend.topology.aclose()


async def next_millisecond() -> None:
    """Wait as long as no failover is short of: what is appended then has another stream id."""
    began_ms = int(time.time() * 1000.0)
    while int(time.time() * 1000.0) <= began_ms:  # noqa: ASYNC110 - a clock sets no event
        await asyncio.sleep(0)
