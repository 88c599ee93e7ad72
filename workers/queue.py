"""The port to a job queue, a queue within one process, and the queue of a fleet, on arq.

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
from datetime import UTC
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from fmsg.backoff import backoff_s
from fmsg.errors import FmsgError, Transient
from ledger.port import LedgerError
from telemetry.logs import SELDOM
from telemetry.metrics import JOB_DURATION, JOBS

if TYPE_CHECKING:
    from arq.worker import Function, Worker

    from ledger.redis.topology import SentinelTopology, Standalone

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_DELAY_S, MAX_DELAY_S = 4.0, 120.0
"""Back-off between the tries of a job: an outage of a minute is over by the third or fourth."""

MAX_WAITING = 10_000
"""Jobs a queue within a process holds. More are refused: the next sweep puts them in again."""

IN_A_ROW = 3
"""Callers that fail one after the other before the rest of a batch is put off."""

MIN_KNOWN = 1000
"""Ids of jobs kept before the expired ones are looked for."""


class TryLater(Exception):
    """A job did not get through; another try may. ``after_s`` is how long to wait where somebody said so."""

    def __init__(self, reason: str, *, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


async def do_each(items: Sequence[T], do: Callable[[T], Awaitable[None]], *, at_once: int) -> None:
    """Do something for each item, ``at_once`` at a time.

    Raises `TryLater` once the host or the store failed `IN_A_ROW` items, or all there are, with no success in between.
    What fails one caller alone stops no others.
    """
    places = asyncio.Semaphore(at_once)
    trouble: list[Transient | LedgerError] = []
    enough = min(IN_A_ROW, len(items))

    async def one(item: T) -> None:
        async with places:
            if len(trouble) >= enough:
                return
            try:
                await do(item)
            except (Transient, LedgerError) as error:
                trouble.append(error)
            except Exception:
                # A fault of ours that one caller's data shows must not keep the others from their turn.
                log.exception("an item of a job failed", extra={"action": "job_item_failed", **SELDOM})
            else:
                if len(trouble) < enough:
                    trouble.clear()

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
    if enough and len(trouble) >= enough:
        raise TryLater(str(trouble[0]), after_s=getattr(trouble[0], "retry_after_s", None))


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
            log.warning(
                "job given up: %s", reason, extra={"action": "job_given_up", "job": job.name, "tries": tries, **SELDOM}
            )
            return "given_up", None
        log.info("job put off: %s", reason, extra={"action": "job_put_off", "job": job.name, "tries": tries, **SELDOM})
        asked_s = getattr(error, "after_s", None) or 0.0
        return "put_off", max(asked_s, backoff_s(tries, rng, base_s=FIRST_DELAY_S, cap_s=MAX_DELAY_S, least=0.5))
    except Exception:
        log.exception("job failed", extra={"action": "job_failed", "job": job.name, **SELDOM})
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
            log.warning("job not asked for: %s", error, extra={"action": "job_not_put", "job": name, **SELDOM})
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


MARGIN_S = 5.0
"""By how much arq's own timeout is longer than ours, which tells a slow job from a cancelled one."""

RESTART_FIRST_S, RESTART_MAX_S = 1.0, 10.0
"""The pause before the loop begins again after a Redis error: at first, and at most."""

STEADY_S = 60.0
"""A loop that ran for so long had no trouble of its own: the next failure is followed by a short pause again."""

CANCEL_AGAIN_S = 0.2
"""How long a cancelled task has to end before it is cancelled again."""

_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
_decode = msgspec.msgpack.Decoder().decode


def said(error: BaseException | None) -> str:
    """An error of the queue's Redis in words. Its own text holds the command with all that was to be stored."""
    import redis.exceptions as faults

    kinds: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
        (
            faults.OutOfMemoryError,
            "the queue's Redis is full and takes no more jobs. Raise its maxmemory, or find what fills it",
        ),
        (
            faults.ReadOnlyError,
            "the queue's Redis is a replica, which takes no jobs. After a failover that passes by itself",
        ),
        (
            (faults.AuthenticationError, faults.AuthorizationError, faults.NoPermissionError),
            "the queue's Redis refuses the user or the command. Check FMSG_QUEUE_REDIS_URL and the user's ACL",
        ),
        (faults.BusyLoadingError, "the queue's Redis is still loading its data"),
        (faults.TimeoutError, "the queue's Redis does not answer"),
        ((faults.ConnectionError, OSError), "the queue in Redis cannot be reached"),
    )
    for kind, words in kinds:
        if isinstance(error, kind):
            return words
    return "it ended by itself" if error is None else f"the queue's Redis failed ({type(error).__name__})"


def _redis_errors() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisError

    return RedisError, OSError


class QueueNeedsOneNode(ValueError):
    """The queue cannot be in a Redis Cluster: its keys are in different slots."""

    def __init__(self) -> None:
        super().__init__(
            "FMSG_QUEUE_REDIS_URL: a Redis Cluster cannot hold the job queue, whose keys are in different slots. "
            "Name a standalone Redis or one behind Sentinel; a small one will do."
        )


class ArqQueue:
    """The queue of a fleet, in Redis through arq. Raises `QueueNeedsOneNode` and `BadRedisUrl` when made.

    What arq leaves to its users is done here: a Redis error ends its loop, so the loop is begun again; a stop cancels
    running jobs, so they are waited for first; job ids and the queue's name carry the deployment's prefix, since arq's
    key names are fixed; values are MessagePack, not pickle.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "fmsg",
        max_jobs: int = 10,
        poll_s: float = 0.5,
        health_s: float = 20.0,
        drain_s: float = 25.0,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        # With arq and redis-py, which stdio can do without.
        from arq.connections import ArqRedis

        from ledger.redis.topology import connect, parse_url

        if parse_url(url).kind == "cluster":
            raise QueueNeedsOneNode
        self._topology = connect(url, prefix=prefix)
        client = cast("Standalone | SentinelTopology", self._topology).client
        self.name = f"arq:{prefix}:queue"
        """The key of the queue."""
        self._prefix = prefix
        self._max_jobs = max_jobs
        self._poll_s = poll_s
        self._health_s = health_s
        self._drain_s = drain_s
        self._clock = clock
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._client = ArqRedis(
            pool_or_conn=client.connection_pool,
            job_serializer=_encode,
            job_deserializer=_decode,
            default_queue_name=self.name,
        )
        self._expires_s: dict[str, float] = {}

    async def put(self, job: str, *args: Sequence[str], job_id: str) -> bool:
        # A periodic job that was not begun within its period is dropped: the next one is there.
        try:
            put = await self._client.enqueue_job(
                job, *args, _job_id=f"{self._prefix}:{job_id}", _expires=self._expires_s.get(job)
            )
        except _redis_errors() as error:
            raise TryLater(said(error)) from error
        return put is not None

    async def run(self, jobs: Sequence[Job], *, stop: asyncio.Event) -> None:
        self._expires_s = {job.name: job.every_s for job in jobs if job.every_s is not None}
        try:
            async with asyncio.TaskGroup() as group:
                ticking = [
                    group.create_task(tick(self, job.name, job.every_s, clock=self._clock, sleep=self._sleep))
                    for job in jobs
                    if job.every_s is not None
                ]
                await self._run_until(jobs, stop)
                for task in ticking:
                    task.cancel()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; `run` does so itself in the end."""
        await self._topology.aclose()

    async def _run_until(self, jobs: Sequence[Job], stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            began_s = self._clock()
            error = await self._run_once(jobs, stop)
            if stop.is_set():
                return
            failures = 1 if self._clock() - began_s > STEADY_S else failures + 1
            log.warning(
                "the queue's loop ended: %s",
                said(error),
                extra={"action": "queue_lost", "error": type(error).__name__, **SELDOM},
                exc_info=None if isinstance(error, _redis_errors()) else error,
            )
            delay_s = backoff_s(failures, self._rng, base_s=RESTART_FIRST_S, cap_s=RESTART_MAX_S, least=0.5)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await stop.wait()

    async def _run_once(self, jobs: Sequence[Job], stop: asyncio.Event) -> BaseException | None:
        """Run jobs until told to stop or until the loop fails; what it failed with."""
        worker = self._worker(jobs)
        loop = asyncio.create_task(worker.async_run())  # ended by _end
        stopping = asyncio.create_task(stop.wait())  # ended below
        try:
            await asyncio.wait({loop, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return loop.exception() if loop.done() else None
        finally:
            stopping.cancel()
            await self._end(worker, loop, drain=stop.is_set())

    async def _end(self, worker: Worker, loop: asyncio.Task[None], *, drain: bool) -> None:
        """End a worker and its jobs. What is cancelled is run again, here or elsewhere."""
        worker.allow_pick_jobs = False
        running = [task for task in worker.tasks.values() if not task.done()]
        if drain and running:
            await asyncio.wait(running, timeout=self._drain_s)
        left: set[asyncio.Task[Any]] = {*worker.tasks.values(), loop}
        while left:
            # More than once: `asyncio.wait_for` can lose a cancellation that meets the end of what it waits for.
            for task in left:
                task.cancel()
            ended, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
            for task in ended:
                if not task.cancelled():
                    task.exception()  # seen, so that asyncio does not log it
        with suppress(*_redis_errors()):
            await self._client.delete(worker.health_check_key)

    def _worker(self, jobs: Sequence[Job]) -> Worker:
        longest_s = max(job.timeout_s for job in jobs)
        from arq.worker import Worker

        return Worker(
            [self._function(job) for job in jobs],
            queue_name=self.name,
            redis_pool=self._client,
            handle_signals=False,
            max_jobs=self._max_jobs,
            job_timeout=longest_s + MARGIN_S,
            keep_result=0,
            poll_delay=self._poll_s,
            max_tries=max(job.max_tries for job in jobs),
            health_check_interval=self._health_s,
            job_serializer=_encode,
            job_deserializer=_decode,
            timezone=UTC,
            log_results=False,
        )

    def _function(self, job: Job) -> Function:
        from arq.worker import Function, Retry

        async def run(context: dict[Any, Any], *args: Any, **_named: Any) -> None:
            delay_s = await attempt(job, args, tries=context["job_try"], rng=self._rng)
            if delay_s is not None:
                raise Retry(defer=delay_s)

        return Function(
            name=job.name,
            coroutine=cast("Any", run),
            timeout_s=job.timeout_s + MARGIN_S,
            keep_result_s=job.once_s,
            keep_result_forever=False,
            max_tries=job.max_tries,
        )
