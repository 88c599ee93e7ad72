"""Deadlines of thousands of things on one timer of the event loop, instead of a timer for each."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

SLACK_S = 0.05
"""What falls due so soon after is handled at the same time: at most 20 wake-ups a second, however many entries."""
AT_ONCE = 250
"""Entries handled before the loop gets its turn: at 20 µs each, they take 5 ms of everybody's time."""


class Timed(Protocol):
    """Something with a deadline."""

    def due(self) -> None:
        """Called when the deadline has come, after the entry was taken off its list. Must not block."""
        ...


class TimerWheel:
    """Keeps a list of entries for each delay. The entries of one delay fall due in the order in which they came."""

    def __init__(self, *, now: Callable[[], float], call_at: Callable[..., asyncio.Handle]) -> None:
        """``now`` and ``call_at`` are an event loop's ``time`` and ``call_at``."""
        self._now = now
        self._call_at = call_at
        self._lists: dict[float, OrderedDict[Timed, float]] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_s = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._lists.values()))

    def add(self, entry: Timed, delay_s: float) -> None:
        """Have ``entry.due()`` called after the delay. Each different delay costs a list, so there should be few."""
        entries = self._lists.get(delay_s)
        if entries is None:
            entries = self._lists[delay_s] = OrderedDict()
        entries[entry] = due_s = self._now() + delay_s
        entries.move_to_end(entry)
        if self._timer is None or due_s < self._timer_s:
            self._arm(due_s)

    def forget(self, entry: Timed, delay_s: float) -> None:
        """Take an entry off the list of a delay, if it is there."""
        entries = self._lists.get(delay_s)
        if entries is not None:
            entries.pop(entry, None)

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # uvloop gives a handle that knows no time for what is overdue already.
        self._timer = self._call_at(due_s, self._turn)
        self._timer_s = due_s

    def _turn(self) -> None:
        self._timer = None
        until_s = self._now() + SLACK_S
        left = AT_ONCE
        for entries in tuple(self._lists.values()):
            while entries and left:
                entry, due_s = next(iter(entries.items()))
                if due_s > until_s:
                    break
                del entries[entry]
                left -= 1
                try:
                    entry.due()
                except Exception:
                    # One that fails must not stop the clock of all the others.
                    log.exception("a deadline failed", extra={"action": "deadline_failed"})
        heads = [next(iter(entries.values())) for entries in self._lists.values() if entries]
        if heads:
            # What is left over from this turn is overdue: the loop comes to it after what else is ready.
            self._arm(min(heads))
