"""Everything that outlives a request, put together: in memory for one process, in Redis for a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from ledger.availability import ProbedAvailability
from ledger.memory import MemoryStore as MemoryStore
from ledger.port import LedgerUnavailable
from ledger.redis.activations import WAKE, RedisActivations
from ledger.redis.documents import RedisDocuments
from ledger.redis.fleet import RedisFleet
from ledger.redis.ledger import RedisLedger
from ledger.redis.notifications import RedisNotifications
from ledger.redis.operators import ORDERS, RedisOrders, RedisProcesses
from ledger.redis.scripts import Scripts, StreamKey, script
from ledger.redis.tasks import RedisDeferredTasks
from ledger.redis.topology import Topology, connect
from ledger.seal import SealKeys
from ledger.shared_tokens import SharedTokens
from ledger.values import LedgerLimits

PROBE_TTL_MS = 10_000
"""How long what `RedisStore.ping` writes stays; only its expiry matters, since each ping writes anew."""


class RedisStore:
    """`ledger.port.Store` in Redis. Shared by all processes that name the same URL, prefix and seal keys.

    Opening it does not wait for Redis: what needs it raises `LedgerUnavailable` until it is there.
    """

    def __init__(
        self,
        url: str | Topology,
        *,
        prefix: str = "fmsg",
        limits: LedgerLimits | None = None,
        seal: SealKeys,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` is compared with the expiry of tokens alone; all else goes by the server's clock.

        Raises `ledger.redis.topology.BadRedisUrl`.
        """
        limits = limits or LedgerLimits()
        self.limits = limits
        """What is kept for how long."""
        self.topology = connect(url, prefix=prefix) if isinstance(url, str) else url
        """Where it is kept."""
        self.scripts = Scripts(self.topology.commands, max_concurrent=self.topology.at_once)
        """What sends commands there."""
        self.availability = ProbedAvailability(self.ping)
        self.scripts.on_unavailable = self.availability.failed
        self.notifications = RedisNotifications(self.topology)
        self.ledger = RedisLedger(self.scripts, self.topology, limits=limits)
        self.activations = RedisActivations(self.scripts, self.topology, limits=limits, seal=seal, clock=clock)
        self.fleet = RedisFleet(self.scripts, self.topology, limits=limits)
        self.documents = RedisDocuments(self.scripts, self.topology)
        self.deferred = RedisDeferredTasks(self.scripts, self.topology, limits=limits)
        self.processes = RedisProcesses(self.scripts, self.topology, limits=limits)
        self.orders = RedisOrders(self.scripts, self.topology)
        self.shared_tokens = SharedTokens(self.scripts, self.topology, clock=clock)
        """Access tokens for the other fronts, each for who has its API key."""
        self.notifications.hear(WAKE, self.activations.heard)
        self.notifications.hear(ORDERS, self.orders.heard)
        self._open = AsyncExitStack()

    async def ping(self) -> None:
        probe = self.topology.shared_key("probe", "ping")
        if await _probe(self.scripts, probe=probe, ttl_ms=PROBE_TTL_MS) != 1:
            raise LedgerUnavailable("Redis: it answers, but not with what was written. Is FMSG_REDIS_URL a Redis?")

    async def __aenter__(self) -> Self:
        self._open.push_async_callback(self.topology.aclose)
        self._open.push_async_callback(self.availability.aclose)
        await self._open.enter_async_context(self.notifications.running())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()


@script(
    """
    redis.call('XADD', probe, 'MAXLEN', 1, '*', 'ping', 1)
    redis.call('PEXPIRE', probe, ttl_ms)
    return #redis.call('XRANGE', probe, '-', '+')
    """,
    idempotent=True,
)
def _probe(*, probe: StreamKey, ttl_ms: int) -> int:
    """Write as ledgers are written, and read; 1 if it is there."""
    raise NotImplementedError
