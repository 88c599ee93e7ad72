"""Which store waits stand on: the shared one, or one of this process's own while that is away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from ledger.memory import MemoryStore
from ledger.port import LedgerUnavailable, Store
from ledger.values import CallerKey
from mcp_front.waiting.caller_state import Desks
from mcp_front.waiting.request import WaitSettings
from mcp_front.waiting.unrecorded import Unrecorded


class Ground:
    """A store and what the waits of this process share on it."""

    def __init__(self, store: Store, settings: WaitSettings, rng: random.Random, *, emergency: bool) -> None:
        self.store = store
        self.desks = Desks(store, settings, rng)
        self.emergency = emergency
        """Ledgers of this process alone, filled by polling: no feed, no subscriptions, no marks of other replicas."""


class Grounds:
    """The shared store, and the emergency one from the first failure until the shared one answers again.

    The emergency ledgers go with the waits that use them: positions are found again by id on either side.
    """

    def __init__(self, store: Store, settings: WaitSettings, *, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self.unrecorded = Unrecorded()
        self.shared = Ground(store, settings, rng, emergency=False)
        self._settings = settings
        self._rng = rng
        self._emergency: Ground | None = None
        self.away_since_s = 0.0
        """When the shared store began not to answer, the last time (POSIX seconds)."""
        self._retry_at = 0.0
        self._probing = False

    def failed(self) -> None:
        """The shared store did not answer."""
        self._retry_at = _now() + self._settings.retry_store_s * self._rng.uniform(0.8, 1.2)
        if self._emergency is None:
            self.away_since_s = self._clock()
            self._emergency = Ground(MemoryStore(clock=self._clock), self._settings, self._rng, emergency=True)

    @property
    def away(self) -> bool:
        """Whether the shared store is taken to be away."""
        return self._emergency is not None

    async def current(self, caller: CallerKey) -> Ground:
        """Where to stand now. One wait at a time tries whether the shared store is back."""
        if self._emergency is None:
            return self.shared
        if self._probing or _now() < self._retry_at:
            return self._emergency
        self._probing = True
        try:
            await self.shared.store.ledger.state(caller)
        except LedgerUnavailable:
            self.failed()
            return self._emergency
        finally:
            self._probing = False
        self._emergency = None
        self.unrecorded.clear()
        return self.shared


def _now() -> float:
    return asyncio.get_running_loop().time()
