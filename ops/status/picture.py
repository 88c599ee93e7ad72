"""What a deployment looks like at one moment, as Redis tells it: no process is asked, so none can hold this up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from ledger.operators import Process
from ledger.port import ActiveFeed, LedgerError, Member
from ledger.redis.operators import ServerFacts, server_facts
from ledger.redis.scripts import Key, Scripts
from ledger.redis.topology import connect
from ledger.store import RedisStore
from workers.queue import ArqQueue

FEEDS_SHOWN = 50_000
"""Callers whose feeds are looked at: some seconds. Where there are more, the shares of those are shown."""

ERRORS_SHOWN = 5
"""Most frequent reasons for which feeds are not live."""

UNREPORTED = "unreported"
"""The state of a feed of which no daemon has said anything yet."""

OWNERLESS = "ownerless"
"""The state of a feed that was live and whose daemon is gone: another one takes it within a heartbeat's time."""


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon: how many callers it has and which part of all that is, and what its process says of itself."""

    id: str
    name: str
    since_s: float
    feeds: int
    share: float
    draining: bool
    process: Process | None


class Callers(msgspec.Struct, frozen=True, kw_only=True):
    """The active callers. What is counted by feed is about the ``looked_at`` of them."""

    active: int
    looked_at: int
    live: int
    states: Mapping[str, int]
    """Feeds that are not live, by their state."""
    needs_credential: int
    errors: tuple[tuple[str, int], ...]
    """The most frequent reasons of those that are not live."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The job queue: how many jobs wait or run, and how late the oldest is. ``error`` where it cannot be read."""

    jobs: int = 0
    late_s: float = 0.0
    error: str | None = None


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `fmsg-mcpd status` knows. Times are POSIX seconds of Redis' clock."""

    at_s: float
    redis: str
    round_trip_s: float
    server: ServerFacts | None
    daemons: tuple[Daemon, ...]
    processes: tuple[Process, ...]
    """All processes that say that they are there, daemons among them."""
    callers: Callers
    queue: Queue
    deferred: int

    def of_role(self, role: str) -> tuple[Process, ...]:
        """The processes of a role."""
        return tuple(process for process in self.processes if process.role == role)


async def take_picture(store: RedisStore, *, queue_url: str, limit: int = FEEDS_SHOWN) -> Picture:
    """Look once. Raises `LedgerUnavailable`."""
    await store.scripts.command("PING", idempotent=True)  # connects, so that what is measured is the way alone
    began_s = time.perf_counter()
    seconds, micros = await store.scripts.command("TIME", idempotent=True)
    round_trip_s = time.perf_counter() - began_s
    server, members, processes, active, feeds, deferred, queue = await _together(
        _server(store),
        store.fleet.members(),
        store.processes.present(),
        store.activations.count(),
        store.activations.feeds(limit=limit),
        store.deferred.depth(),
        look_at_queue(queue_url, prefix=store.topology.prefix),
    )
    return Picture(
        at_s=int(seconds) + int(micros) / 1e6,
        redis=store.topology.shown,
        round_trip_s=round_trip_s,
        server=server,
        daemons=daemons_of(members, processes),
        processes=tuple(processes),
        callers=callers_of(feeds, active=active, alive={member.id for member in members}),
        queue=queue,
        deferred=deferred,
    )


async def _together(*looks: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results, in order; the first failure ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(look) for look in looks]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _server(store: RedisStore) -> ServerFacts | None:
    try:
        return await server_facts(store.scripts)
    except (LedgerError, KeyError):
        return None  # the ACL user may not ask


def daemons_of(members: Sequence[Member], processes: Sequence[Process]) -> tuple[Daemon, ...]:
    """The daemons of a fleet; which process each one is in is known by the name they share."""
    by_name = {process.name: process for process in processes if process.role in ("daemon", "up")}
    total = sum(member.load for member in members)
    return tuple(
        Daemon(
            id=member.id,
            name=member.name,
            since_s=member.since_s,
            feeds=member.load,
            share=member.load / total if total else 0.0,
            draining=member.draining,
            process=by_name.get(member.name),
        )
        for member in members
    )


def callers_of(feeds: Sequence[ActiveFeed], *, active: int, alive: set[str]) -> Callers:
    """The active callers, counted. ``alive`` are the ids of the daemons whose word counts."""
    states: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    live = needs_credential = 0
    for feed in feeds:
        report = feed.report
        if report is not None and report.needs_credential:
            needs_credential += 1
        if report is None:
            states[UNREPORTED] += 1
        elif report.daemon not in alive:
            states[OWNERLESS] += 1
        elif report.live:
            live += 1
        else:
            states[report.state] += 1
            if report.error:
                errors[report.error] += 1
    return Callers(
        active=max(active, len(feeds)),
        looked_at=len(feeds),
        live=live,
        states=dict(states.most_common()),
        needs_credential=needs_credential,
        errors=tuple(errors.most_common(ERRORS_SHOWN)),
    )


async def look_at_queue(url: str, *, prefix: str) -> Queue:
    """The job queue. Never raises for trouble with it: the rest of the picture is worth having."""
    try:
        key = Key(ArqQueue(url, prefix=prefix).name)
        topology = connect(url, prefix=prefix)
    except ValueError as error:
        return Queue(error=str(error))
    scripts = Scripts(topology.commands)
    try:
        jobs = int(await scripts.command("ZCARD", key, idempotent=True))
        oldest = await scripts.command("ZRANGE", key, 0, 0, "WITHSCORES", idempotent=True)
        seconds, _ = await scripts.command("TIME", idempotent=True)
    except LedgerError as error:
        return Queue(error=str(error))
    finally:
        await topology.aclose()
    late_s = int(seconds) - _score(oldest) / 1000 if oldest else 0.0
    return Queue(jobs=jobs, late_s=max(0.0, late_s))


def _score(pairs: Sequence[object]) -> float:
    """The score of the first member, however the client gives it."""
    first = pairs[0]
    value = first[1] if isinstance(first, list | tuple) else pairs[1]
    return float(value)  # type: ignore[arg-type]  # a number, as bytes or not
