"""The port to a job queue, and a queue within one process.

A job is safe to run twice and bounded in what it does. It returns a word for its outcome, or raises: `TryLater` and
what `fmsg` and `ledger` raise for trouble elsewhere mean another try, anything else a fault of ours that no try mends.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from fmsg.backoff import backoff_s
from fmsg.errors import FmsgError
from ledger.port import LedgerError
from telemetry.metrics import JOB_DURATION, JOBS

log = logging.getLogger(__name__)

FIRST_DELAY_S, MAX_DELAY_S = 4.0, 120.0
"""Back-off between the tries of a job: an outage of a minute is over by the third or fourth."""

MAX_WAITING = 10_000
"""Jobs a queue within a process holds. More are refused: the next sweep puts them in again."""

MIN_KNOWN = 1000
"""Ids of jobs kept before the expired ones are looked for."""


class TryLater(Exception):
    """A job did not get through; another try may. ``after_s`` is how long to wait where somebody said so."""

    def __init__(self, reason: str, *, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be done: on request, or every ``every_s`` seconds by one worker of all.

    ``run`` takes lists and strings and returns a word for its outcome. For ``once_s`` after it ended it is not run
    again under the same id.
    """

    name: str
    run: Callable[..., Awaitable[str]]
    every_s: float | None = None
    once_s: float = 60.0
    timeout_s: float = 120.0
    max_tries: int = 5


FAILURES = ("failed", "given_up")
"""The outcomes that an alert goes by."""


def count_failures_from_zero(jobs: Sequence[Job]) -> None:
    """Export their failures from the start: to Prometheus, a counter that appears with the first one has not risen."""
    for job in jobs:
        for outcome in FAILURES:
            JOBS.labels(job.name, outcome)


class Queue(Protocol):
    """Jobs of all workers. A job runs at least once; several workers may do it where one of them was lost."""

    async def put(self, job: str, *args: Sequence[str], job_id: str) -> bool:
        """Ask for a job, unless one of the same id is waiting, running or just done. Raises `TryLater`."""
        ...

    async def run(self, jobs: Sequence[Job], *, stop: asyncio.Event) -> None:
        """Run jobs until told to stop; then finish those that run."""
        ...


async def attempt(job: Job, args: Sequence[Any], *, tries: int, rng: random.Random) -> float | None:
    """Run a job and count it; the seconds until the next try, or None where it is over. ``tries`` counts from 1."""
    started_s = time.perf_counter()
    outcome, delay_s = await _outcome(job, args, tries=tries, rng=rng)
    JOB_DURATION.labels(job.name).observe(time.perf_counter() - started_s)
    JOBS.labels(job.name, outcome).inc()
    return delay_s


async def _outcome(job: Job, args: Sequence[Any], *, tries: int, rng: random.Random) -> tuple[str, float | None]:
    try:
        async with asyncio.timeout(job.timeout_s):
            return await job.run(*args), None
    except (TryLater, FmsgError, LedgerError, TimeoutError) as error:
        reason = str(error) or f"not done within {job.timeout_s} s"
        if tries >= job.max_tries:
            log.warning("job given up: %s", reason, extra={"action": "job_given_up", "job": job.name, "tries": tries})
            return "given_up", None
        log.info("job put off: %s", reason, extra={"action": "job_put_off", "job": job.name, "tries": tries})
        asked_s = getattr(error, "after_s", None) or 0.0
        return "put_off", max(asked_s, backoff_s(tries, rng, base_s=FIRST_DELAY_S, cap_s=MAX_DELAY_S, least=0.5))
    except Exception:
        log.exception("job failed", extra={"action": "job_failed", "job": job.name})
        return "failed", None


async def tick(
    queue: Queue,
    name: str,
    every_s: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Ask for a job once per period, at once for the current one. Every worker does so, and one id gets through."""
    while True:
        period = int(clock() // every_s)
        try:
            await queue.put(name, job_id=f"{name}:{period}")
        except TryLater as error:
            log.warning("job not asked for: %s", error, extra={"action": "job_not_put", "job": name})
        await sleep(max(0.01, (period + 1) * every_s - clock()))


class MemoryQueue:
    """A queue for the jobs of this process alone: stdio, the all-in-one, tests."""

    def __init__(
        self,
        *,
        max_jobs: int = 10,
        drain_s: float = 25.0,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._drain_s = drain_s
        self._clock = clock
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._places = asyncio.Semaphore(max_jobs)
        self._waiting: asyncio.Queue[tuple[str, tuple[Any, ...], str, int]] = asyncio.Queue(MAX_WAITING)
        self._known: dict[str, float | None] = {}
        self._purge_at = MIN_KNOWN
        self._running: set[asyncio.Task[None]] = set()
        self._resting: set[asyncio.Task[None]] = set()

    async def put(self, job: str, *args: Sequence[str], job_id: str) -> bool:
        """See `Queue`."""
        if len(self._known) >= self._purge_at:
            self._known = {id_: until_s for id_, until_s in self._known.items() if self._lasts(until_s)}
            self._purge_at = 2 * len(self._known) + MIN_KNOWN
        if (job_id in self._known and self._lasts(self._known[job_id])) or self._waiting.full():
            return False
        self._known[job_id] = None
        self._waiting.put_nowait((job, args, job_id, 1))
        return True

    def _lasts(self, until_s: float | None) -> bool:
        return until_s is None or until_s > self._clock()

    async def run(self, jobs: Sequence[Job], *, stop: asyncio.Event) -> None:
        """See `Queue`."""
        by_name = {job.name: job for job in jobs}
        async with asyncio.TaskGroup() as group:
            always = [group.create_task(self._dispatch(by_name, group))]
            always += [
                group.create_task(tick(self, job.name, job.every_s, clock=self._clock, sleep=self._sleep))
                for job in jobs
                if job.every_s is not None
            ]
            await stop.wait()
            for task in (*always, *self._resting):
                task.cancel()
            if self._running:
                await asyncio.wait(self._running, timeout=self._drain_s)
            for task in self._running:
                task.cancel()

    async def _dispatch(self, jobs: dict[str, Job], group: asyncio.TaskGroup) -> None:
        while True:
            await self._places.acquire()
            name, args, job_id, tries = await self._waiting.get()
            task = group.create_task(self._attempt(jobs[name], args, job_id, tries, group))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _attempt(
        self, job: Job, args: tuple[Any, ...], job_id: str, tries: int, group: asyncio.TaskGroup
    ) -> None:
        try:
            delay_s = await attempt(job, args, tries=tries, rng=self._rng)
        finally:
            self._places.release()
        if delay_s is None:
            self._known[job_id] = self._clock() + job.once_s
            return
        task = group.create_task(self._again(delay_s, (job.name, args, job_id, tries + 1)))
        self._resting.add(task)
        task.add_done_callback(self._resting.discard)

    async def _again(self, delay_s: float, item: tuple[str, tuple[Any, ...], str, int]) -> None:
        await self._sleep(delay_s)
        with suppress(asyncio.QueueFull):
            self._waiting.put_nowait(item)
            return
        self._known.pop(item[2], None)
