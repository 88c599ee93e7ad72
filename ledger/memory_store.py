"""Everything that outlives a request, in memory, for one process. Apart from `ledger.store`, which imports redis-py: a
stdio server starts sooner and is 6 MB smaller without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ledger.limits import LedgerLimits
from ledger.memory import MemoryDoorbell, MemoryLedger
from ledger.memory_operators import MemoryOrders, MemoryProcesses
from ledger.memory_side import MemoryActivations, MemoryChores, MemoryDocuments, MemoryFleet


class MemoryStore:
    """See `ledger.port.Store`. Lives and dies with the process: stdio, tests."""

    def __init__(self, *, limits: LedgerLimits | None = None, clock: Callable[[], float] = time.time) -> None:
        limits = limits or LedgerLimits()
        self.limits = limits
        """What is kept for how long."""
        self.doorbell = MemoryDoorbell()
        self.ledger = MemoryLedger(limits=limits, clock=clock, doorbell=self.doorbell)
        self.activations = MemoryActivations(ttl_s=limits.activation_ttl_s, clock=clock)
        self.fleet = MemoryFleet(heartbeat_ttl_s=limits.heartbeat_ttl_s, clock=clock)
        self.documents = MemoryDocuments(clock=clock)
        self.chores = MemoryChores(clock=clock)
        self.processes = MemoryProcesses(ttl_s=limits.presence_ttl_s, clock=clock)
        self.orders = MemoryOrders()

    async def ping(self) -> None:
        """Memory is always there."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
