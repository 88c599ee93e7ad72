"""The queue of a fleet, on arq: the only module that knows arq.

What arq leaves to its users is done here: a Redis error ends its loop, so the loop is begun again; a stop cancels
running jobs, so they are waited for first; job ids and the queue's name carry the deployment's prefix, since arq's key
names are fixed; values are MessagePack, not pickle.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any, cast

import msgspec
import redis.exceptions as faults
from arq.connections import ArqRedis
from arq.worker import Function, Retry, Worker
from redis.exceptions import RedisError

from fmsg.backoff import backoff_s
from ledger.redis.topology import SentinelTopology, Standalone, connect, parse_url
from workers.queue import Job, TryLater, attempt, tick

log = logging.getLogger(__name__)

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


_SAID: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
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
"""What errors mean, from narrow to wide. Their own texts hold the command with all that was to be stored."""


def said(error: BaseException | None) -> str:
    """An error of the queue's Redis in words."""
    for kinds, words in _SAID:
        if isinstance(error, kinds):
            return words
    return "it ended by itself" if error is None else f"the queue's Redis failed ({type(error).__name__})"


class QueueNeedsOneNode(ValueError):
    """The queue cannot be in a Redis Cluster: its keys are in different slots."""

    def __init__(self) -> None:
        super().__init__(
            "FMSG_QUEUE_REDIS_URL: a Redis Cluster cannot hold the job queue, whose keys are in different slots. "
            "Name a standalone Redis or one behind Sentinel; a small one will do."
        )


class ArqQueue:
    """See `workers.queue.Queue`. Raises `QueueNeedsOneNode` and `ledger.redis.topology.BadRedisUrl` when made."""

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
        """See `workers.queue.Queue`. A periodic job not begun within its period is dropped: the next one is there."""
        try:
            put = await self._client.enqueue_job(
                job, *args, _job_id=f"{self._prefix}:{job_id}", _expires=self._expires_s.get(job)
            )
        except (RedisError, OSError) as error:
            raise TryLater(said(error)) from error
        return put is not None

    async def run(self, jobs: Sequence[Job], *, stop: asyncio.Event) -> None:
        """See `workers.queue.Queue`."""
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
                extra={"action": "queue_lost", "error": type(error).__name__},
                exc_info=None if isinstance(error, RedisError | OSError) else error,
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
                    task.exception()  # seen: whoever needs it has it
        with suppress(RedisError, OSError):
            await self._client.delete(worker.health_check_key)

    def _worker(self, jobs: Sequence[Job]) -> Worker:
        longest_s = max(job.timeout_s for job in jobs)
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
