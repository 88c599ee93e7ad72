"""An outage of what the process depends on: a log line when it begins, one when it ends, a gauge meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import Gauge

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 60.0
"""An outage that begins so soon after the last one is shown by the gauge only: what comes and goes every few seconds
must not fill the log."""


class Outage:
    """Whether something is away now, and since when."""

    def __init__(self, what: str, gauge: Gauge, *, clock: Callable[[], float]) -> None:
        """``what`` names it in log lines and actions (``host``, ``store``); ``clock`` gives POSIX seconds."""
        self.lost_at_s: float | None = None
        """Since when it is away (POSIX seconds)."""
        self.reason: str | None = None
        """Why, in words."""
        self._what = what
        self._gauge = gauge
        self._clock = clock
        self._told_at_s = float("-inf")
        self._told = False
        gauge.set(1)

    def __bool__(self) -> bool:
        return self.lost_at_s is not None

    def begin(self, reason: str, *, since_s: float | None = None) -> bool:
        """It is away, since ``since_s`` or now. Returns whether that is news."""
        self.reason = reason
        if self.lost_at_s is not None:
            return False
        now_s = self._clock()
        self.lost_at_s = now_s if since_s is None else since_s
        self._gauge.set(0)
        self._told = now_s - self._told_at_s >= AGAIN_AFTER_S
        if self._told:
            self._told_at_s = now_s
            log.warning("the %s is lost: %s", self._what, reason, extra={"action": f"{self._what}_lost"})
        return True

    def end(self) -> bool:
        """It is there. Returns whether that is news."""
        if self.lost_at_s is None:
            return False
        lasted_s = max(0.0, self._clock() - self.lost_at_s)
        self.lost_at_s = self.reason = None
        self._gauge.set(1)
        if self._told:
            extra = {"action": f"{self._what}_back", "lasted_s": round(lasted_s, 1)}
            log.warning("the %s is back after %.0f s", self._what, lasted_s, extra=extra)
        return True
