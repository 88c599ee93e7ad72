"""Whether the store takes writes, as this process last saw it (`ledger.port.Availability`).

A store that reads but refuses writes (a replica, a full server, a failed save) is away as well: what was read from it
could not be recorded as returned. So only a write shows that it is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from ledger.memory import Listeners
from ledger.port import LedgerError
from telemetry.metrics import STORE_UP
from telemetry.outage import Outage

log = logging.getLogger(__name__)

PROBE_S = 0.5
"""Between two probes, at random up to half as much again: with the spread below, waits go on within two seconds."""

SPREAD_S = 1.0
"""The calls of listeners are spread over so long: each goes on with some commands to a store that is just back."""


class ProbedAvailability:
    """`ledger.port.Availability` of a store that can fail. ``probe`` writes, or raises `LedgerUnavailable`."""

    def __init__(self, probe: Callable[[], Awaitable[None]], *, rng: random.Random | None = None) -> None:
        self._probe = probe
        self._rng = rng or random.Random()
        self._listeners: Listeners[Callable[[], None]] = Listeners()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._outage = Outage("store", STORE_UP, clock=time.monotonic)
        self.away_since_s: float | None = None
        """When it was found away, in the event loop's time; None while it takes writes."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` each time the store is back; returns the function that ends it."""
        # Each under a key of its own: to end one of ten thousand under the same key means to search all.
        return self._listeners.add(wake, wake)

    def failed(self) -> None:
        """A command failed: the store counts as away until a probe was written."""
        if self.away_since_s is not None or self._closed:
            return
        loop = asyncio.get_running_loop()
        self.away_since_s = loop.time()
        self._outage.begin("it does not answer, or refuses writes")
        self._task = loop.create_task(self._until_back(), name="store-probe")  # ended by itself, or by `aclose`

    async def aclose(self) -> None:
        """Stop probing."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _until_back(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(PROBE_S, 1.5 * PROBE_S))
            try:
                await self._probe()
                break
            except LedgerError:
                continue
            except Exception:
                # Whatever it was, waits must not be held for the rest of the process's life.
                log.exception("the probe of the store failed", extra={"action": "store_probe_failed"})
        self.away_since_s = None
        self._outage.end()
        await self._listeners.wake_all(within_s=SPREAD_S)
