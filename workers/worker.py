"""A worker: all jobs on one queue, until told to stop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from fmsg.http import HostHttp
from ledger.port import Store
from workers.callers import Callers
from workers.queue import ArqQueue, Job, MemoryQueue, Queue, count_failures_from_zero
from workers.reconcile import Reconciler
from workers.retention import Retention
from workers.settings import WorkerSettings
from workers.tasks import DeferredTaskRunner


async def run_worker(
    settings: WorkerSettings,
    store: Store,
    http: HostHttp,
    *,
    stop: asyncio.Event,
    clock: Callable[[], float] = time.time,
    rng: random.Random | None = None,
) -> None:
    """Run jobs until ``stop`` is set, then finish those that run; with ``queue_url`` None, in this process alone.

    The store and the host's HTTP session are the caller's to open and close. Raises `QueueNeedsOneNode` and
    `ledger.redis.topology.BadRedisUrl` for a queue that cannot be; a Redis that is away is waited for.
    """
    rng = rng or random.Random()
    queue = make_queue(settings, clock=clock, rng=rng)
    await queue.run(make_jobs(settings, store, http, queue, clock=clock, rng=rng), stop=stop)


def make_queue(settings: WorkerSettings, *, clock: Callable[[], float], rng: random.Random) -> ArqQueue | MemoryQueue:
    """The queue that the settings name."""
    if settings.queue_url is None:
        return MemoryQueue(max_jobs=settings.max_jobs, drain_s=settings.drain_s, clock=clock, rng=rng)
    return ArqQueue(
        settings.queue_url,
        prefix=settings.prefix,
        max_jobs=settings.max_jobs,
        poll_s=settings.poll_s,
        health_s=settings.health_s,
        drain_s=settings.drain_s,
        clock=clock,
        rng=rng,
    )


def make_jobs(
    settings: WorkerSettings,
    store: Store,
    http: HostHttp,
    queue: Queue,
    *,
    clock: Callable[[], float],
    rng: random.Random,
) -> tuple[Job, ...]:
    """All jobs there are. ``sweep`` asks ``queue`` for the ``reconcile`` of every batch of callers."""
    callers = Callers(store.activations, http, clock=clock)
    reconciler = Reconciler(store.ledger, store.activations, store.fleet, store.documents, callers, settings=settings)
    deferred = DeferredTaskRunner(store.deferred, callers, settings=settings, clock=clock, rng=rng)
    retention = Retention(store.activations, store.fleet, abandoned_after_s=settings.abandoned_after_s, clock=clock)

    async def sweep() -> str:
        active = sorted(await store.activations.active())
        period = int(clock() // settings.sweep_every_s)
        for number, start in enumerate(range(0, len(active), settings.batch)):
            batch = active[start : start + settings.batch]
            await queue.put("reconcile", batch, job_id=f"reconcile:{period}:{number}")
        return "done"

    def job(name: str, run: Callable[..., Awaitable[str]], once_s: float, *, every_s: float | None) -> Job:
        return Job(
            name=name,
            run=run,
            every_s=every_s,
            once_s=once_s,
            timeout_s=settings.job_timeout_s,
            max_tries=settings.max_tries,
        )

    made = (
        job("sweep", sweep, settings.sweep_every_s, every_s=settings.sweep_every_s),
        job("reconcile", reconciler.run, settings.sweep_every_s, every_s=None),
        job("deferred", deferred.run, settings.deferred_every_s, every_s=settings.deferred_every_s),
        job("retention", retention.run, settings.retention_every_s, every_s=settings.retention_every_s),
    )
    count_failures_from_zero(made)
    return made
