"""When things may happen: a token bucket, and the interval between reconciliations. Pure; time is passed in."""

from __future__ import annotations

import random

from daemon.settings import DaemonSettings

BURST_SHARE = 0.2
"""Part of a second's moments that may be used at once; the rest flows evenly. So a single caller never waits, and even
the second after a pause does not see more than the whole."""


def steady_per_s(per_s: float) -> float:
    """How many moments a second a bucket of so many gives out in the long run."""
    return per_s * (1.0 - BURST_SHARE)


class TokenBucket:
    """Gives out moments, at most ``per_s`` (or one, if that is more) in any second.

    ``now_s`` is any clock that does not go back.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = self._burst = 0.0
        self.set_rate(per_s)
        self._level = self._burst
        self._at_s = float("-inf")

    def set_rate(self, per_s: float) -> None:
        """Another rate from now on; moments given out already stay."""
        self._per_s = steady_per_s(per_s)
        self._burst = max(1.0, per_s * BURST_SHARE)

    def reserve(self, now_s: float) -> float:
        """Take one; the seconds to wait until it may be used."""
        self._refill(now_s)
        self._level -= 1.0
        return max(0.0, -self._level / self._per_s)

    def ready(self, now_s: float, *, within_s: float = 0.0) -> int:
        """How many could be used within so many seconds."""
        self._refill(now_s)
        return max(0, int(self._level + within_s * self._per_s))

    def _refill(self, now_s: float) -> None:
        if now_s > self._at_s:
            elapsed_s = now_s - self._at_s
            self._level = min(self._burst, self._level + elapsed_s * self._per_s)
            self._at_s = now_s


GROWTH = 5.0
"""By how much each reconciliation that finds nothing lengthens the interval of a quiet caller: from one to five minutes
at once. Ten thousand quiet callers listed each minute would be most of what an idle daemon does."""

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
        """An event was lost. Returns whether that is news: then all feeds should reconcile soon."""
        news = not self.alarmed(now_s)
        self._alarmed_until_s = now_s + self._settings.alarm_s
        return news

    def interval_s(self, now_s: float, *, quiet_rounds: int, feeds: int) -> float:
        """Until a feed's next reconciliation, after ``quiet_rounds`` that found nothing; ``feeds`` share the host."""
        settings = self._settings
        if self.alarmed(now_s):
            target_s = settings.reconcile_alarmed_s
        else:
            # The exponent is bounded since a float's is: a caller can be quiet for thousands of rounds.
            target_s = min(settings.reconcile_quiet_s, settings.reconcile_s * GROWTH ** min(quiet_rounds, 64))
        target_s = max(target_s, feeds / settings.lists_per_s)
        return target_s * self._rng.uniform(1.0 - SPREAD, 1.0 + SPREAD)

    def soon_s(self, *, feeds: int) -> float:
        """When all feeds are to reconcile as soon as the rate allows: a moment for one of them."""
        return self._rng.uniform(0.0, max(1.0, feeds / self._settings.lists_per_s))
