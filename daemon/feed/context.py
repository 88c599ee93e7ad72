"""What all feeds of a daemon share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from daemon.feed.machine import State
from daemon.pace import ReconcilePace, TokenBucket
from daemon.schedule import Schedule
from daemon.settings import DaemonSettings
from fmsg.http import HostHttp
from ledger.port import Store
from ledger.values import CallerKey
from telemetry.metrics import FEEDS

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task that belongs to the daemon."""

MAX_ROOTING = 16
"""Searches for thread roots at the same time. They go beside the comparisons: a wait for one thread hangs on them."""


class Watcher(Protocol):
    """Who wants to know what becomes of the feeds: the daemon."""

    def changed(self, caller: CallerKey, state: State) -> None:
        """The feed moved to a state, or something else of its report changed."""
        ...

    def lost(self) -> None:
        """The socket of a feed was found to lose events."""
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
        watcher: Watcher,
    ) -> None:
        self.ledger = store.ledger
        self.activations = store.activations
        self.http = http
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.spawn = spawn
        self.watcher = watcher
        self.schedule = Schedule()
        self.pace = ReconcilePace(settings, rng)
        self.connect_rate = TokenBucket(settings.connects_per_s)
        self.connecting = asyncio.Semaphore(settings.max_connecting)
        self.listing = asyncio.Semaphore(settings.max_listing)
        self.rooting = asyncio.Semaphore(MAX_ROOTING)
        self.feeds = 0
        """How many feeds the daemon runs."""


def count_move(before: State, now: State) -> None:
    """A feed moved from one state to another; those that rest are not counted."""
    if before is not State.IDLE:
        FEEDS.labels(before.value).dec()
    if now is not State.IDLE:
        FEEDS.labels(now.value).inc()
