"""Faults of a host, armed from outside: delays, refusals, hanging requests, lost answers; and what was counted.

Routes go by name: ``token list sent create get update delete send read add_to data thread thread_messages attach fetch
detach react ws``; ``*`` is any of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

import msgspec

ANY = "*"
"""The route name that stands for every route."""

_SECONDS_KEPT = 600
"""Seconds of connects remembered for the rate: a load test's ramp fits in."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An armed answer. ``html`` imitates a proxy before the host; ``cut`` closes the connection without an answer."""

    status: int = 500
    text: str = "internal server error"
    code: str | None = None
    html: bool = False
    cut: bool = False
    retry_after_s: int | None = None


class Faults:
    """Armed faults, each per route, and counters."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """Requests by route name, refused ones included."""
        self.statuses: Counter[str] = Counter()
        """Answers by ``"<route> <status>"``, those of armed failures not among them."""
        self.connects = 0
        """Sockets opened so far."""
        self.cut_bursts = 0
        """Sockets closed because their send buffer was full."""
        self.released = asyncio.Event()
        """Set to let hanging requests go."""
        self._delays_s: dict[str, float] = {}
        self._failures: dict[str, deque[Failure]] = {}
        self._hangs: Counter[str] = Counter()
        self._lost_answers: Counter[str] = Counter()
        self._connects_by_second: deque[tuple[int, int]] = deque(maxlen=_SECONDS_KEPT)

    def delay(self, route: str, delay_s: float) -> None:
        """Hold every request of the route this long before it is looked at; 0 ends it."""
        if delay_s > 0:
            self._delays_s[route] = delay_s
        else:
            self._delays_s.pop(route, None)

    def fail_next(self, route: str, failure: Failure, *, times: int = 1) -> None:
        """Answer the next requests of the route with the failure, without doing anything."""
        self._failures.setdefault(route, deque()).extend([failure] * times)

    def hang_next(self, route: str, *, times: int = 1) -> None:
        """Never answer the next requests of the route, until `release`."""
        self._hangs[route] += times

    def lose_answers(self, route: str, *, times: int = 1) -> None:
        """Do what the next requests of the route ask, then cut the connection instead of answering."""
        self._lost_answers[route] += times

    def release(self) -> None:
        """Let everything go that hangs or is held back."""
        self.released.set()
        self.released = asyncio.Event()

    def clear(self) -> None:
        """Disarm everything and let go what hangs. Counters stay."""
        self._delays_s.clear()
        self._failures.clear()
        self._hangs.clear()
        self._lost_answers.clear()
        self.release()

    def delay_s(self, route: str) -> float:
        """How long to hold a request of the route."""
        return self._delays_s.get(route, self._delays_s.get(ANY, 0.0))

    def failure(self, route: str) -> Failure | None:
        """The failure for this request, used up by asking."""
        for name in (route, ANY):
            armed = self._failures.get(name)
            if armed:
                return armed.popleft()
        return None

    def hangs(self, route: str) -> bool:
        """Whether this request hangs; used up by asking."""
        return _take(self._hangs, route)

    def loses_answer(self, route: str) -> bool:
        """Whether this request's answer gets lost; used up by asking."""
        return _take(self._lost_answers, route)

    @property
    def armed(self) -> bool:
        """Whether any request may meet a fault: spares the others the questions."""
        return bool(self._delays_s or self._failures or self._hangs or self._lost_answers)

    def reset_counters(self) -> None:
        """Start counting anew."""
        self.requests.clear()
        self.statuses.clear()
        self.connects = self.cut_bursts = 0
        self._connects_by_second.clear()

    def count_connect(self, clock: Callable[[], float]) -> None:
        """A socket was opened."""
        self.connects += 1
        second = int(clock())
        if self._connects_by_second and self._connects_by_second[-1][0] == second:
            self._connects_by_second[-1] = (second, self._connects_by_second[-1][1] + 1)
        else:
            self._connects_by_second.append((second, 1))

    def peak_connects_per_s(self) -> int:
        """The most sockets opened within one second of the clock."""
        return max((count for _, count in self._connects_by_second), default=0)


def _take(armed: Counter[str], route: str) -> bool:
    for name in (route, ANY):
        if armed[name] > 0:
            armed[name] -= 1
            return True
        armed.pop(name, None)
    return False
