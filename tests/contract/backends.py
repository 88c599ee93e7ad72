"""The ledgers that keep the contract, each with what its tests need to do behind its back."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from ledger.limits import LedgerLimits
from ledger.memory import MemoryDoorbell, MemoryLedger
from ledger.port import Doorbell, Ledger
from ledger.redis.ledger import RedisLedger
from ledger.redis.notifications import RedisDoorbell
from ledger.redis.scripts import Scripts
from ledger.redis.topology import Topology
from ledger.values import CallerKey


class Backend(Protocol):
    """A ledger under test."""

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        ...

    @property
    def doorbell(self) -> Doorbell:
        """Its doorbell."""
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
        self.doorbell = MemoryDoorbell()
        self._begin()

    def _begin(self) -> None:
        self.ledger = MemoryLedger(
            limits=self._limits, clock=lambda: time.time() + self.offset_s, doorbell=self.doorbell
        )

    async def turn_back(self, caller: CallerKey, seconds: float) -> None:
        """See `Backend`."""
        await self.ledger.state(caller)
        self.offset_s -= seconds

    async def wipe(self) -> None:
        """See `Backend`. A process that starts again has an empty ledger."""
        self._begin()

    async def keep(self, caller: CallerKey) -> Callable[[], Awaitable[None]]:
        """See `Backend`."""
        kept = copy.deepcopy(self.ledger._books[caller])

        async def put_back() -> None:
            self.ledger._books[caller] = copy.deepcopy(kept)

        return put_back


class RedisBackend:
    """`RedisLedger` on any topology."""

    def __init__(self, topology: Topology, limits: LedgerLimits) -> None:
        self.topology = topology
        self.scripts = Scripts(topology.commands)
        self.ledger = RedisLedger(self.scripts, topology, limits=limits)
        self.doorbell = RedisDoorbell(topology)

    async def turn_back(self, caller: CallerKey, seconds: float) -> None:
        """See `Backend`. The server's clock is the machine's, so the ledger's memory of it goes forward instead."""
        key = self.topology.key(caller, "meta")
        await self.scripts.command("HINCRBY", key, "clock", int(seconds * 1e6), idempotent=False)

    async def wipe(self) -> None:
        """See `Backend`."""
        await self.topology.commands.execute_command("FLUSHALL")

    async def keep(self, caller: CallerKey) -> Callable[[], Awaitable[None]]:
        """See `Backend`."""
        command = self.topology.commands.execute_command
        keys = [self.topology.key(caller, part) for part in ("meta", "log", "ids", "gone")]
        kept = [await command("DUMP", key) for key in keys]

        async def put_back() -> None:
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
