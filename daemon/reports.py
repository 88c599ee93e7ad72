"""What the daemon says of its feeds: one writer, the latest word only, and nothing about callers that are not ours."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from daemon.feed.machine import PASSING, State
from daemon.heartbeat import Heart
from daemon.holding import Holding
from ledger.port import Activations, LedgerError
from ledger.values import CallerKey

log = logging.getLogger(__name__)

TOGETHER = 32
"""Reports written at the same time: after a host's restart every feed has something to say."""

REPEATS_PER_S = 1000.0
"""Reports that say nothing new, per second: 10,000 feeds are through in ten seconds, and a server that has just come
back has other things to do, too."""

AGAIN_S = 1.0
"""A store that fails over needs seconds; every feed has the same to say to it when it is back."""


class Reporter:
    """Writes the reports of feeds that changed."""

    def __init__(
        self,
        activations: Activations,
        holdings: Mapping[CallerKey, Holding],
        heart: Heart,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        again_s: float = AGAIN_S,
    ) -> None:
        """``clock`` gives POSIX seconds; ``again_s`` is the pause, on average, after the store took no report."""
        self._activations = activations
        self._holdings = holdings
        self._heart = heart
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
        for holding in self._holdings.values():
            holding.said_live = True  # for all we know
        self._repeats = dict.fromkeys(
            sorted(self._holdings, key=lambda caller: self._holdings[caller].runner.state is State.LIVE)
        )
        if self._repeats:
            self._some.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._some.wait()
            await self._heart.sure()
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
        holding = self._holdings.get(caller)
        if holding is None or not holding.owned:
            return True
        report = holding.runner.report(self._heart.id)
        if not report.live and (
            self._clock() < holding.quiet_until_s or (holding.runner.state in PASSING and not holding.said_live)
        ):
            return True
        try:
            await self._activations.report(caller, report)
        except LedgerError:
            self.changed(caller)
            return False
        except Exception:
            # One report that cannot be written must not end a daemon that holds thousands of sockets.
            log.exception("a feed could not be reported", extra={"action": "report_failed", "caller": caller})
            self.changed(caller)
            return False
        holding.said_live = report.live
        return True
