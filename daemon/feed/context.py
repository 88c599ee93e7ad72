"""What all feeds of a daemon share, and what the parts of one feed tell it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from daemon.feed.diagnosis import Diagnosis
from daemon.pacing import ConnectPacer, ReconcilePace, Schedule
from daemon.settings import DaemonSettings
from fmsg.events import Event
from fmsg.http import HostHttp
from ledger.catch_up import CaughtUp
from ledger.port import Store
from ledger.values import CallerKey, Source

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task that belongs to the daemon."""

MAX_ROOTING = 16
"""Searches for thread roots at the same time. They go beside the comparisons: a wait for one thread hangs on them."""


class Feed(Protocol):
    """A feed, as its socket, its recorder and its comparisons see it."""

    def opened(self) -> None:
        """The host accepted the upgrade; events follow."""
        ...

    def take(self, event: Event) -> None:
        """The socket pushed an event."""
        ...

    def closed(self, reason: str) -> None:
        """The socket that was open is gone."""
        ...

    def connect_failed(self, diagnosis: Diagnosis) -> None:
        """The socket could not be opened."""
        ...

    def fell_behind(self) -> None:
        """The ledger is gone or frames were dropped: only the list knows now what the ledger lacks."""
        ...

    def write_failed(self, diagnosis: Diagnosis) -> None:
        """The store does not take what was pushed. It waits and is written when asked again."""
        ...

    def check_within(self, delay_s: float) -> None:
        """Look for lost events and missing roots in so many seconds at the latest."""
        ...

    def compared(self, result: CaughtUp, source: Source) -> None:
        """A comparison is complete: everything listed is known."""
        ...

    def far_behind(self) -> None:
        """So much is not known yet that the comparison goes on for long. `compared` tells of its end."""
        ...

    def compare_failed(self, diagnosis: Diagnosis, source: Source) -> None:
        """A comparison could not be made."""
        ...


class FeedContext:
    """The store, the host, the paces and the clocks of all feeds of a daemon.

    ``clock`` gives POSIX seconds; durations go by the event loop's clock.
    """

    def __init__(
        self,
        store: Store,
        http: HostHttp,
        *,
        settings: DaemonSettings,
        clock: Callable[[], float],
        rng: random.Random,
        spawn: Spawn,
        members: Callable[[], int],
        changed: Callable[[CallerKey], None],
        events_lost: Callable[[], None],
        host_met: Callable[[CallerKey, Diagnosis | None], None],
    ) -> None:
        """``members`` tells how many daemons may connect.

        The rest is called: when there is something new to report of a feed, when a socket was found to lose events, and
        with what a feed met at the host or the store (None: the host answered).
        """
        self.ledger = store.ledger
        self.activations = store.activations
        self.http = http
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.spawn = spawn
        self.changed = changed
        self.events_lost = events_lost
        self.host_met = host_met
        self.schedule = Schedule()
        self.pace = ReconcilePace(settings, rng)
        self.connects = ConnectPacer(store.fleet, settings, members=members, now=asyncio.get_running_loop().time)
        self.listing = asyncio.Semaphore(settings.max_listing)
        self.rooting = asyncio.Semaphore(MAX_ROOTING)
        self.feeds = 0
        """How many feeds the daemon runs."""

    def soon_s(self) -> float:
        """A moment for one of all feeds, that are to compare as soon as the rate of lists allows."""
        return self.pace.soon_s(feeds=self.feeds)
