"""A process announces itself and how it does, for `fmsg-mcpd status`. Trouble with that never ends a process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

import msgspec
from prometheus_client import Counter, Gauge, Histogram

from ledger.operators import Process, Processes
from ledger.port import LedgerError
from ops.version import version as our_version
from telemetry import metrics

log = logging.getLogger("ops.presence")

EVERY_S = 5.0
"""Between announcements of a process: `status --watch` shows no older numbers, and a thousand processes cost Redis 200
writes a second."""

WITHDRAW_WITHIN_S = 2.0
"""How long a process that ends tries to withdraw. If it fails, operators are told that the process fell silent."""

MEAN_OVER_S = 60.0
"""Lags are means over the last minute: long enough not to jump, short enough to show the present."""

LOST_OVER_S = 900.0
"""Lost events are counted over as long as the alert about them looks back."""

EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound
"""Bind addresses that name no address to connect to."""

FEEDS_IN = "feeds_"
"""Begins the fact of how many feeds of a daemon are in a state."""

ENDED = "ended"
"""The fact of a process that its supervisor found dead."""

Facts = Callable[[], Mapping[str, float]]


class Registered(Protocol):
    """A store that knows the processes: `ledger.store.RedisStore`, `ledger.store.MemoryStore`."""

    @property
    def processes(self) -> Processes:
        """Which processes run."""
        ...


class ProcessFacts:
    """What a process announces of itself: numbers read off its own metrics. Zeros are left out."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lags = {"ingest_lag_s": metrics.INGEST_LAG, "loop_lag_s": metrics.LOOP_LAG}
        self._seen: defaultdict[str, deque[tuple[float, float, float]]] = defaultdict(deque)

    def __call__(self) -> Mapping[str, float]:
        """The facts now."""
        facts = {
            "waits_held": _total(metrics.WAITS_HELD),
            "sockets": _total(metrics.SOCKETS),
            "leases": _total(metrics.LEASES),
            "lost_events": self._gains("lost_events", _total(metrics.LOST_EVENTS), 0.0, over_s=LOST_OVER_S)[0],
            "redis_errors": _total(metrics.REDIS_ERRORS),
            **_feeds(),
            **{name: self._mean(name, lag) for name, lag in self._lags.items()},
        }
        return {name: round(value, 6) for name, value in facts.items() if value}

    def _mean(self, name: str, histogram: Histogram) -> float:
        """The mean of what was observed within the last minute; 0 where nothing was."""
        total, count = self._gains(name, _total(histogram, "_sum"), _total(histogram, "_count"), over_s=MEAN_OVER_S)
        return total / count if count > 0 else 0.0

    def _gains(self, name: str, first: float, second: float, *, over_s: float) -> tuple[float, float]:
        """By how much two sums have grown within the time, or since the first look."""
        now_s, seen = self._now(), self._seen[name]
        seen.append((now_s, first, second))
        while len(seen) > 2 and seen[1][0] <= now_s - over_s:
            seen.popleft()
        return first - seen[0][1], second - seen[0][2]


class Presence:
    """What is known of this process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        """As it was announced last."""


@contextlib.asynccontextmanager
async def presence(
    store: Registered,
    *,
    role: str,
    facts: Facts | None = None,
    name: str | None = None,
    version: str | None = None,
    metrics_host: str | None = None,
    metrics_port: int | None = None,
    stop: asyncio.Event | None = None,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.time,
    rng: random.Random | None = None,
) -> AsyncIterator[Presence]:
    """Announce this process while the context is open.

    ``facts`` is asked for its numbers each time (`ProcessFacts` unless given); ``name`` is host and process id unless
    given, as a daemon's is. Once ``stop`` is set, the process is shown as draining. A Redis that is away does not
    matter.
    """
    name = name or process_name()
    process = Process(
        id=f"{role}-{name}-{secrets.token_hex(4)}",
        role=role,
        name=name,
        version=our_version() if version is None else version,
        since_s=clock(),
        metrics=_address(metrics_host, metrics_port),
    )
    here = Presence(process)
    words = _Words(store.processes, here, facts or ProcessFacts(), stop)
    speaking = asyncio.create_task(words.speak(every_s, rng or random.Random()))  # ended below
    try:
        yield here
    finally:
        speaking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await speaking
        with contextlib.suppress(LedgerError, TimeoutError):
            async with asyncio.timeout(WITHDRAW_WITHIN_S):
                await store.processes.withdraw(process.id)


class _Words:
    def __init__(self, processes: Processes, here: Presence, facts: Facts, stop: asyncio.Event | None) -> None:
        self._processes = processes
        self._here = here
        self._facts = facts
        self._stop = stop

    async def speak(self, every_s: float, rng: random.Random) -> None:
        """Announce the process until cancelled, and at once when it begins to drain."""
        while True:
            told_of_stop = self._stop is not None and self._stop.is_set()
            await self._announce(draining=told_of_stop)
            pause_s = every_s * rng.uniform(0.9, 1.1)
            if self._stop is None or told_of_stop:
                await asyncio.sleep(pause_s)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stop.wait()

    async def _announce(self, *, draining: bool) -> None:
        try:
            facts = dict(self._facts())
            if draining:
                facts["draining"] = 1.0
            self._here.process = msgspec.structs.replace(self._here.process, facts=facts)
            await self._processes.announce(self._here.process)
        except LedgerError as error:
            log.debug("presence not announced: %s", error, extra={"action": "presence_put_off"})
        except Exception:
            # One fault must not end the announcements of a process that goes on.
            log.exception("presence not announced", extra={"action": "presence_failed"})


def _feeds() -> Mapping[str, float]:
    """How many feeds are in each state, those at rest left out."""
    (family,) = metrics.FEEDS.collect()
    states = {sample.labels["state"]: sample.value for sample in family.samples}
    return {FEEDS_IN + state: count for state, count in states.items() if state != "idle"}


def process_name(pid: int | None = None) -> str:
    """How a process on this machine is named to operators: the machine's name and the process id."""
    return f"{socket.gethostname()}-{os.getpid() if pid is None else pid}"


async def tell_ended(store: Registered, *, role: str, pid: int) -> None:
    """Say that a process of this machine has ended, in its place. A store that is away does not matter."""
    with contextlib.suppress(LedgerError):
        for process in await store.processes.present():
            if (process.role, process.name) == (role, process_name(pid)):
                await store.processes.announce(msgspec.structs.replace(process, facts={ENDED: 1.0}))


def _total(metric: Counter | Gauge | Histogram, suffix: str | None = None) -> float:
    """The sum of a metric over its labels; ``suffix`` picks the samples of a histogram."""
    wanted = suffix or ("_total" if isinstance(metric, Counter) else "")
    return sum(
        sample.value for family in metric.collect() for sample in family.samples if sample.name == family.name + wanted
    )


def _address(host: str | None, port: int | None) -> str | None:
    if port is None:
        return None
    name = socket.gethostname() if host is None or host in EVERYWHERE else host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
