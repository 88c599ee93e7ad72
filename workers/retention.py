"""Deletion of records that are no longer needed.

Redis drops most by itself: every key has a TTL, and the indexes lose their expired members whenever they are touched.
What is left for a job are records that only look needed, because the daemon that would have cleared them is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ledger.port import Activations, Fleet
from telemetry.metrics import JOBS


class Retention:
    """Clears away abandoned activations and dead daemons' leases."""

    def __init__(
        self,
        activations: Activations,
        fleet: Fleet,
        *,
        abandoned_after_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._activations = activations
        self._fleet = fleet
        self._abandoned_after_s = abandoned_after_s
        self._clock = clock

    async def run(self) -> str:
        """Look through everything once. Raises what the store raises."""
        retired = 0
        for caller in await self._activations.active():
            found = await self._activations.get(caller)
            if found is None or found.token is not None:
                continue
            if found.asked_at_s <= self._clock() - self._abandoned_after_s:
                retired += await self._activations.retire(caller, unless_asked_since_s=found.asked_at_s)
        swept = await self._fleet.sweep()
        JOBS.labels("abandoned_activations", "retired").inc(retired)
        JOBS.labels("dead_leases", "swept").inc(swept)
        return "done"
