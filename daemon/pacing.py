"""When feeds may act: a shared rate of new sockets, the interval between comparisons, one timer for all feeds."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import random
from collections.abc import Callable
from typing import Protocol

from daemon.settings import DaemonSettings
from ledger.connect_slots import ConnectSlots, reserve_slots
from ledger.port import Fleet, LedgerError
from telemetry.logs import SELDOM

log = logging.getLogger(__name__)

USED_SHARE = 0.92
"""Part of the host's connect rate that is given out. With `LATE_S` it keeps every second below the whole: a slot
may be used up to 0.05 s late, so that the slots of 1.05 s can meet in one second, and ways to the host differ."""

LATE_S = 0.05
"""A slot that could not be used within this time is lost: the next second belongs to other slots."""

HORIZON_S = 0.25
"""How far ahead slots are reserved. Longer makes daemons wait for each other; shorter asks the store more often."""


IN_FLIGHT_S = 0.25
"""At most as many sockets are being opened at a time as the rate gives in this time. A host that stalls for seconds
would otherwise meet all that was begun meanwhile in one second."""

LEAST_IN_FLIGHT = 4
"""So many sockets a daemon may always be opening at a time: the way to the host takes its time, too."""


def steady_per_s(per_s: float) -> float:
    """How many sockets a second are opened in the long run where the host allows ``per_s``."""
    return per_s * USED_SHARE


class Connecting(Protocol):
    """A feed that wants to open a socket."""

    def connect(self) -> bool:
        """Open it now; False where it does not want to any more."""
        ...


class ConnectPacer:
    """Lets feeds connect one by one, evenly: all daemons together no more than ``connects_per_s`` in any second.

    Each reserves slots in the store, so that the one that needs the rate gets all of it: also one that seems to be
    alone, since another may be about to begin or to end. Without the store each daemon keeps to its share. Feeds whose
    caller has no socket go before those that only move.
    """

    def __init__(
        self,
        fleet: Fleet,
        settings: DaemonSettings,
        *,
        members: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        """``members`` tells how many daemons may connect; ``now`` does not go back."""
        self._fleet = fleet
        self._per_s = steady_per_s(settings.connects_per_s)
        self._members = members
        self._now = now
        self._most = settings.max_connecting
        self.in_flight = 0
        """Sockets being opened now; counted by those who open them."""
        self._urgent: dict[Connecting, None] = {}
        self._moving: dict[Connecting, None] = {}
        self._some = asyncio.Event()
        self._free_at_s = float("-inf")

    def __len__(self) -> int:
        return len(self._urgent) + len(self._moving)

    def ask(self, feed: Connecting, *, urgent: bool) -> None:
        """Call ``feed.connect`` when it may connect. ``urgent``: no other daemon has a socket for the caller."""
        (self._urgent if urgent else self._moving)[feed] = None
        self._some.set()

    def drop(self, feed: Connecting) -> None:
        """The feed does not want to connect any more."""
        self._urgent.pop(feed, None)
        self._moving.pop(feed, None)

    def room(self, within_s: float) -> int:
        """How many feeds more could connect within so many seconds."""
        return max(0, math.ceil(within_s * self._per_s) - len(self))

    async def run(self) -> None:
        """Let feeds connect until cancelled."""
        while True:
            await self._some.wait()
            slots = await self._reserve(len(self))
            first_s = self._now() + slots.first_in_s
            for number in range(slots.count):
                await self._use(first_s + number * slots.every_s)
            if not slots.count:
                await asyncio.sleep(max(slots.every_s, slots.first_in_s - HORIZON_S / 2))
            if not len(self):
                self._some.clear()

    async def _use(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._now()))
        most = min(self._most, max(LEAST_IN_FLIGHT, math.ceil(IN_FLIGHT_S * self._per_s / self._members())))
        while self.in_flight < most and self._now() <= at_s + LATE_S and len(self):
            queue = self._urgent or self._moving
            feed = next(iter(queue))
            del queue[feed]
            try:
                if feed.connect():
                    return
            except Exception:
                # One feed's fault must not keep all others from connecting.
                log.exception("a feed could not connect", extra={"action": "connect_failed", **SELDOM})

    async def _reserve(self, count: int) -> ConnectSlots:
        try:
            return await self._fleet.reserve_connects(count, per_s=self._per_s, within_s=HORIZON_S)
        except LedgerError:
            log.debug("connect slots are shared without the store", extra={"action": "slots_without_store"})
        except Exception:
            # A daemon whose pacer ended would open no socket any more.
            log.exception("no slots to connect could be reserved", extra={"action": "slots_failed", **SELDOM})
        every_s = max(1, self._members()) / self._per_s
        slots, self._free_at_s = reserve_slots(
            self._free_at_s, self._now(), count=count, every_s=every_s, within_s=HORIZON_S
        )
        return slots


GROWTH = 5.0
"""By how much each comparison that finds nothing lengthens the interval of a quiet caller: from one to five minutes at
once. Ten thousand quiet callers listed each minute would be most of what an idle daemon does."""

SPREAD = 0.25
"""Part of an interval by which it varies either way. Feeds that began together drift apart within some rounds."""


class ReconcilePace:
    """How often feeds compare the host's list with their ledger. One for all feeds of a daemon: they share a host.

    The interval is short for a caller to whom something came and grows while nothing does. After a loss it is short
    for everybody for a while. It is never so short that all feeds together would list more than ``lists_per_s``.
    """

    def __init__(self, settings: DaemonSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._alarmed_until_s = float("-inf")

    def alarmed(self, now_s: float) -> bool:
        """Whether events were lost lately."""
        return now_s < self._alarmed_until_s

    def alarm(self, now_s: float) -> bool:
        """An event was lost. Returns whether that is news: then all feeds should compare soon."""
        news = not self.alarmed(now_s)
        self._alarmed_until_s = now_s + self._settings.alarm_s
        return news

    def interval_s(self, now_s: float, *, quiet_rounds: int, feeds: int) -> float:
        """Until a feed's next comparison, after ``quiet_rounds`` that found nothing; ``feeds`` share the host."""
        settings = self._settings
        if self.alarmed(now_s):
            target_s = settings.reconcile_alarmed_s
        else:
            # The exponent is bounded since a float's is: a caller can be quiet for thousands of rounds.
            target_s = min(settings.reconcile_quiet_s, settings.reconcile_s * GROWTH ** min(quiet_rounds, 64))
        target_s = max(target_s, feeds / settings.lists_per_s)
        return target_s * self._rng.uniform(1.0 - SPREAD, 1.0 + SPREAD)

    def soon_s(self, *, feeds: int) -> float:
        """When all feeds are to compare as soon as the rate allows: a moment for one of them."""
        return self._rng.uniform(0.0, max(1.0, feeds / self._settings.lists_per_s))


NEVER = math.inf
"""The time of what is not due at all."""

SLACK_S = 0.02
"""Things due this close together are done in one wake-up, so that an idle daemon sleeps longer."""

STALE_SHARE = 4
"""The heap is rebuilt when it holds this many times more entries than items: an item that moves leaves one behind."""

SLICE = 200
"""Items done before other tasks get a turn. After a long sleep of the machine everything is due at once."""


class Due(Protocol):
    """Something with a moment of its own."""

    due_at_s: float
    """When it is due, by the loop's clock; set by `Schedule`."""

    def due(self, now_s: float) -> None:
        """Its moment came. Must not block; may schedule itself again."""
        ...


class Schedule:
    """Calls ``due`` of each item at its time: one heap and one task instead of a timer for each of 10,000 feeds.

    An item has one time; a new one replaces it.
    """

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
                    log.exception("a scheduled step failed", extra={"action": "schedule_step_failed", **SELDOM})
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
