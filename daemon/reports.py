"""What the daemon says of its feeds: one writer, the latest word only, and nothing about callers that are not ours."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from daemon.feed.machine import PASSING, State
from daemon.feed.runner import FeedRunner
from daemon.heartbeat import Heartbeat
from ledger.port import Activations, LedgerError
from ledger.values import CallerKey
from telemetry.logs import SELDOM

log = logging.getLogger(__name__)

TOGETHER = 32
"""Reports written at the same time: after a host's restart every feed has something to say."""

REPEATS_PER_S = 1000.0
"""Reports that say nothing new, per second: 10,000 feeds are through in ten seconds, and a server that has just come
back has other things to do, too."""

AGAIN_S = 1.0
"""A store that fails over needs seconds; every feed has the same to say to it when it is back."""


class HeldFeed:
    """The feed of a caller and what the daemon remembers of it. Times are POSIX seconds."""

    __slots__ = ("asked_at_s", "epoch", "missing_since_s", "owned", "pulled", "quiet_until_s", "runner", "said_live")

    def __init__(
        self,
        runner: FeedRunner,
        *,
        epoch: int,
        asked_at_s: float,
        quiet_until_s: float = 0.0,
        pulled: bool = False,
    ) -> None:
        self.runner = runner
        """Its feed."""
        self.epoch = epoch
        """Of the lease, when we looked last: another one means that it changed hands or the store was emptied."""
        self.owned = True
        """Whether the lease was ours then. The reports of a caller are its owner's business."""
        self.asked_at_s = asked_at_s
        """When somebody asked for the caller, as far as we know."""
        self.missing_since_s: float | None = None
        """Since when its activation is gone."""
        self.quiet_until_s = quiet_until_s
        """Until then only good news is reported: the daemon it came from still listens."""
        self.pulled = pulled
        """Whether another daemon had a socket for the caller when we took it."""
        self.said_live = False
        """Whether the last report said ``live``, or may have, as far as we know what the store holds."""


class Reporter:
    """Writes the reports of feeds that changed."""

    def __init__(
        self,
        activations: Activations,
        held: Mapping[CallerKey, HeldFeed],
        heartbeat: Heartbeat,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        again_s: float = AGAIN_S,
    ) -> None:
        """``clock`` gives POSIX seconds; ``again_s`` is the pause, on average, after the store took no report."""
        self._activations = activations
        self._held = held
        self._heartbeat = heartbeat
        self._clock = clock
        self._rng = rng
        self._again_s = again_s
        self._changed: dict[CallerKey, None] = {}
        self._repeats: dict[CallerKey, None] = {}
        self._some = asyncio.Event()

    def changed(self, caller: CallerKey) -> None:
        """A feed may have something to say; what it is is decided when it is written."""
        self._changed[caller] = None
        self._some.set()

    def repeat(self) -> None:
        """The store may have lost reports or hold old ones: say everything again, news first, the rest evenly.

        Those that are not live come first: an old ``live`` of theirs is what readers would rely on.
        """
        for feed in self._held.values():
            feed.said_live = True  # for all we know
        self._repeats = dict.fromkeys(
            sorted(self._held, key=lambda caller: self._held[caller].runner.state is State.LIVE)
        )
        if self._repeats:
            self._some.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._some.wait()
            await self._heartbeat.sure()
            repeats = not self._changed
            batch = self._next()
            written = await asyncio.gather(*(self._write(caller) for caller in batch))
            if not all(written):
                await asyncio.sleep(self._again_s * self._rng.uniform(0.5, 1.5))
            elif repeats:
                await asyncio.sleep(len(batch) / REPEATS_PER_S)

    def _next(self) -> list[CallerKey]:
        batch = list(self._changed or self._repeats)[:TOGETHER]
        for caller in batch:
            self._changed.pop(caller, None)
            self._repeats.pop(caller, None)
        if not (self._changed or self._repeats):
            self._some.clear()
        return batch

    async def _write(self, caller: CallerKey) -> bool:
        feed = self._held.get(caller)
        if feed is None or not feed.owned:
            return True
        report = feed.runner.report(self._heartbeat.id)
        if not report.live and (
            self._clock() < feed.quiet_until_s or (feed.runner.state in PASSING and not feed.said_live)
        ):
            return True
        try:
            await self._activations.report(caller, report)
        except LedgerError:
            self.changed(caller)
            return False
        except Exception:
            # One report that cannot be written must not end a daemon that holds thousands of sockets.
            log.exception("a feed could not be reported", extra={"action": "report_failed", "caller": caller, **SELDOM})
            self.changed(caller)
            return False
        feed.said_live = report.live
        return True
