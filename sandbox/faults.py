"""What can be made to go wrong on a host, and what it counts.

Routes go by name: ``token list sent create get update delete send read add_to data thread thread_messages attach fetch
detach react ws``; ``*`` is any of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
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
        self.delays_s: dict[str, float] = {}
        """How long each request of a route is held before it is looked at."""
        self.failures: defaultdict[str, deque[Failure]] = defaultdict(deque)
        """What the next requests of a route are answered with, without doing anything."""
        self.hangs_left: Counter[str] = Counter()
        """How many requests of a route are never answered, until `release`."""
        self.lost_answers_left: Counter[str] = Counter()
        """How many requests of a route are carried out and then cut instead of answered."""
        self._connects_by_second: deque[tuple[int, int]] = deque(maxlen=_SECONDS_KEPT)

    def release(self) -> None:
        """Let every request go that hangs or is delayed."""
        self.released.set()
        self.released = asyncio.Event()

    def clear(self) -> None:
        """Disarm everything and let go what hangs. Counters stay."""
        self.delays_s.clear()
        self.failures.clear()
        self.hangs_left.clear()
        self.lost_answers_left.clear()
        self.release()

    def delay_s(self, route: str) -> float:
        """How long a request of the route is held."""
        return self.delays_s.get(route, self.delays_s.get(ANY, 0.0))

    def failure(self, route: str) -> Failure | None:
        """The failure for this request. Asking uses it up."""
        for name in (route, ANY):
            armed = self.failures.get(name)
            if armed:
                return armed.popleft()
        return None

    def hangs(self, route: str) -> bool:
        """Whether this request hangs. Asking uses it up."""
        return _take(self.hangs_left, route)

    def loses_answer(self, route: str) -> bool:
        """Whether this request's answer gets lost. Asking uses it up."""
        return _take(self.lost_answers_left, route)

    @property
    def armed(self) -> bool:
        """Whether any request may meet a fault. Where none does, nothing else is asked."""
        return bool(self.delays_s or self.hangs_left or self.lost_answers_left or any(self.failures.values()))

    def reset_counters(self) -> None:
        """Set all counters to 0."""
        self.requests.clear()
        self.statuses.clear()
        self.connects = self.cut_bursts = 0
        self._connects_by_second.clear()

    def count_connect(self, clock: Callable[[], float]) -> None:
        """Count an opened socket."""
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
