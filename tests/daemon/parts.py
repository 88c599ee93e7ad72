"""A daemon's context without a daemon, and a feed that only notes what it is told, for tests of one part."""

from __future__ import annotations

import random
import time

from daemon.feed.context import FeedContext, Spawn
from daemon.feed.diagnosis import Diagnosis
from fmsg.events import Event
from ledger.catch_up import CaughtUp
from ledger.values import CallerKey, Source
from tests.daemon.world import World, quick


class Parts:
    """Owns the tasks of feeds and notes what the daemon would be told."""

    def __init__(self, world: World, spawn: Spawn) -> None:
        self.losses = 0
        """How often a loss was told."""
        self.met: list[Diagnosis | None] = []
        """What feeds met at the host or the store."""
        self.ctx = FeedContext(
            world.store,
            world.http,
            settings=quick(),
            clock=time.time,
            rng=random.Random(1),
            spawn=spawn,
            members=lambda: 1,
            changed=lambda _: None,
            events_lost=self._lost,
            host_met=self._met,
        )

    def _lost(self) -> None:
        self.losses += 1

    def _met(self, caller: CallerKey, diagnosis: Diagnosis | None) -> None:
        self.met.append(diagnosis)


class NotingFeed:
    """`daemon.feed.context.Feed` that notes what it is told, and rings."""

    def __init__(self, world: World) -> None:
        self.told: list[str] = []
        """Words of the socket."""
        self.fault: Exception | None = None
        """Raised when an event comes."""
        self.behind = self.far = 0
        self.failures: list[Diagnosis] = []
        self.checks: list[float] = []
        self.comparisons: list[tuple[Source, CaughtUp | Diagnosis]] = []
        self._world = world

    def opened(self) -> None:
        self._tell("opened")

    def take(self, event: Event) -> None:
        self._tell(event.type)
        if self.fault is not None:
            raise self.fault

    def closed(self, reason: str) -> None:
        self._tell(f"closed: {reason}")

    def connect_failed(self, diagnosis: Diagnosis) -> None:
        self._tell(f"failed: {diagnosis.remedy}")

    def fell_behind(self) -> None:
        self.behind += 1
        self._world.bell.ring()

    def write_failed(self, diagnosis: Diagnosis) -> None:
        self.failures.append(diagnosis)
        self._world.bell.ring()

    def check_within(self, delay_s: float) -> None:
        self.checks.append(delay_s)
        self._world.bell.ring()

    def compared(self, result: CaughtUp, source: Source) -> None:
        self.comparisons.append((source, result))
        self._world.bell.ring()

    def far_behind(self) -> None:
        self.far += 1

    def compare_failed(self, diagnosis: Diagnosis, source: Source) -> None:
        self.comparisons.append((source, diagnosis))
        self._world.bell.ring()

    async def until(self, *told: str) -> None:
        """Wait until the socket told exactly this."""
        await self._world.bell.until(lambda: self.told == list(told))

    async def result(self, number: int = 1) -> CaughtUp | Diagnosis:
        """Wait until so many comparisons were told; the last one."""
        await self._world.bell.until(lambda: len(self.comparisons) >= number)
        return self.comparisons[-1][1]

    def _tell(self, word: str) -> None:
        self.told.append(word)
        self._world.bell.ring()
