"""What an operator can set of a worker."""

from __future__ import annotations

import msgspec


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the queue is, how much is done at once and how often; times in seconds."""

    queue_url: str | None = None
    """Redis of the queue: standalone or Sentinel. None keeps the queue in this process (stdio, all-in-one)."""

    prefix: str = "fmsg"
    """Tells the queues of several deployments in one Redis apart."""

    max_jobs: int = 10
    """Jobs at the same time in this process. Each waits for the host most of its time."""

    poll_s: float = 0.5
    """Between looks at the queue. Nobody waits for a job."""

    health_s: float = 20.0
    """How often the worker says in Redis that it lives; the key is gone about a second later than it should have."""

    drain_s: float = 25.0
    """How long running jobs may go on after a stop; what does not end by then runs elsewhere. Service managers kill
    after 30 s by default."""

    sweep_every_s: float = 600.0
    """How often the lists of all active callers are compared with their ledgers, deeper than daemons do it."""

    sweep_pages: int = 3
    """Pages of 100 that a sweep looks at: a draft may be sent days after newer messages came."""

    batch: int = 25
    """Callers per job of a sweep: a job that fails is repeated whole, and one of a handful is soon done."""

    concurrency: int = 4
    """Callers of a batch at the same time. Times ``max_jobs`` it is what a worker asks of the host at once."""

    deferred_every_s: float = 15.0
    """How often deferred tasks are looked for."""

    deferred_at_once: int = 200
    """Deferred tasks taken at a time: what is left comes next time, a few seconds later."""

    retention_every_s: float = 3600.0
    """How often records are looked through that nobody needs any more."""

    abandoned_after_s: float = 6 * 3600.0
    """A caller that nobody asked for in this long and whose token is gone is not active, though no daemon was there to
    say so. Longer than any idle time of a daemon, which does this itself."""

    job_timeout_s: float = 120.0
    """A job that takes longer is stopped and repeated: hosts answer within seconds, and a batch is small."""

    max_tries: int = 5
    """A job that failed so often is given up: the next sweep does the same again."""
