"""One heap and one task for everything that is due later, instead of a timer for each of 10,000 feeds."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from typing import Protocol

log = logging.getLogger(__name__)

NEVER = math.inf
"""The time of what is not due at all."""

SLACK_S = 0.02
"""Things due this close together are done in one wake-up: nobody notices, and an idle daemon sleeps longer."""

STALE_SHARE = 4
"""The heap is rebuilt when it holds this many times more entries than items: an item that moves leaves one behind."""

SLICE = 200
"""Items done before other tasks get a turn. After a long sleep of the machine everything is due at once."""


class Due(Protocol):
    """Something with a moment of its own."""

    due_at_s: float
    """When it is due, by the loop's clock; kept by `Schedule`."""

    def due(self, now_s: float) -> None:
        """Its moment came. Must not block; may schedule itself again."""
        ...


class Schedule:
    """Calls ``due`` of each item at its time. An item has one time; a new one replaces it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._numbers = itertools.count()
        self._items = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return self._items

    def at(self, item: Due, when_s: float) -> None:
        """Set the time of an item; `NEVER` takes it out."""
        if when_s == item.due_at_s:
            return
        self._items += (when_s != NEVER) - (item.due_at_s != NEVER)
        item.due_at_s = when_s
        if when_s == NEVER:
            return
        if not self._heap or when_s < self._heap[0][0]:
            self._changed.set()
        heapq.heappush(self._heap, (when_s, next(self._numbers), item))
        if len(self._heap) > STALE_SHARE * self._items + SLICE:
            self._heap = [entry for entry in self._heap if entry[2].due_at_s == entry[0]]
            heapq.heapify(self._heap)

    def take_due(self, now_s: float) -> list[Due]:
        """Take out what is due, the earliest first."""
        due: list[Due] = []
        while self._heap and self._heap[0][0] <= now_s:
            when_s, _, item = heapq.heappop(self._heap)
            if item.due_at_s == when_s:
                item.due_at_s = NEVER
                self._items -= 1
                due.append(item)
        return due

    def next_s(self) -> float:
        """When to look again; `NEVER` where nothing is scheduled."""
        return self._heap[0][0] if self._heap else NEVER

    async def run(self) -> None:
        """Serve the items until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            for count, item in enumerate(self.take_due(loop.time()), 1):
                try:
                    item.due(loop.time())
                except Exception:
                    # One feed's fault must not stop the clock of all others.
                    log.exception("a scheduled step failed", extra={"action": "schedule_step_failed"})
                if count % SLICE == 0:
                    await asyncio.sleep(0)
            delay_s = self.next_s() - loop.time()
            if delay_s > 0:
                timer = loop.call_later(delay_s + SLACK_S, self._changed.set) if delay_s < NEVER else None
                try:
                    await self._changed.wait()
                finally:
                    if timer is not None:
                        timer.cancel()
