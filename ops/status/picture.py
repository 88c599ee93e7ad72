"""What a deployment looks like at one moment. All of it is read from Redis, so a process that hangs delays nothing."""

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
from ops.doctor.trials import brief
from ops.presence import ENDED, EVERY_S, FEEDS_IN
from workers.queue import ArqQueue

SILENT_S = 2.4 * EVERY_S
"""A process that is silent for so long missed two announcements. It was killed, hangs, or cannot reach Redis."""

CLOCKS_APART_S = 1.0
"""A process says by its own clock when it started; when it was heard is by Redis' clock."""

FEEDS_SHOWN = 50_000
"""Callers whose feeds are looked at, which takes some seconds. Of more callers only the first ones are counted."""

ERRORS_SHOWN = 5
"""Most frequent reasons for which feeds are not live."""

UNREPORTED = "unreported"
"""The state of a feed that no daemon has reported yet."""

OWNERLESS = "ownerless"
"""The state of a feed whose daemon is gone. Another daemon takes it within a heartbeat's time."""


class ShownDaemon(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon: how many callers it has, which part of all that is, and what its process announced."""

    id: str
    name: str
    since_s: float
    feeds: int
    share: float
    draining: bool
    process: Process | None
    host_lost_at_s: float | None = None
    """Since when the fmsg host does not answer this daemon, None while it does."""
    host_error: str | None = None


class CallerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The active callers. Feeds are counted for ``looked_at`` of them."""

    active: int
    looked_at: int
    live: int
    states: Mapping[str, int]
    """Feeds that are not live, by their state."""
    needs_credential: int
    errors: tuple[tuple[str, int], ...]
    """The most frequent reasons of the feeds that are not live."""


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
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
    daemons: tuple[ShownDaemon, ...]
    processes: tuple[Process, ...]
    """All processes that run, daemons among them, and those that fell silent within the last hour."""
    callers: CallerCounts
    queue: QueueState
    deferred: int
    refuses: str | None = None
    """Why Redis takes no write, None while it does."""

    def of_role(self, *roles: str) -> tuple[Process, ...]:
        """The processes of these roles that were heard of lately."""
        return tuple(process for process in self.processes if process.role in roles and not self.is_silent(process))

    def is_silent(self, process: Process) -> bool:
        """Whether a process ended without a withdrawal, hangs, or cannot reach Redis."""
        return ENDED in process.facts or self.silent_for_s(process) > SILENT_S

    def silent_for_s(self, process: Process) -> float:
        """How long ago a process was heard last."""
        return self.at_s - process.heard_at_s

    def silent(self) -> Mapping[str, tuple[Process, Process | None]]:
        """Each silent process by its id, and the process that was started in its place (None: there is none)."""
        successors = sorted(self.processes, key=lambda process: process.since_s)
        found: dict[str, tuple[Process, Process | None]] = {}
        for process in sorted(self.processes, key=lambda process: process.heard_at_s):
            if not self.is_silent(process):
                continue
            after = next((one for one in successors if _is_successor(one, process)), None)
            if after is not None:
                successors.remove(after)
            found[process.id] = process, after
        return found

    def shown(self, *roles: str) -> tuple[Process, ...]:
        """The processes of these roles, without the silent ones that were replaced."""
        replaced = {process.id for process, after in self.silent().values() if after is not None}
        return tuple(process for process in self.processes if process.role in roles and process.id not in replaced)


def _is_successor(process: Process, of: Process) -> bool:
    """Whether a process was started on the machine of another, for the same role, after that one was heard last."""
    machine, _, _ = process.name.rpartition("-")
    return (
        process.role == of.role
        and process.id != of.id
        and machine == of.name.rpartition("-")[0]
        and process.since_s > of.heard_at_s - CLOCKS_APART_S
    )


async def take_picture(store: RedisStore, *, queue_url: str, sealed: bool = False, limit: int = FEEDS_SHOWN) -> Picture:
    """Look once. ``sealed``: the store's seal key is not the deployment's, so no report of a feed can be opened.

    Of a Redis that refuses writes little can be read, since readers tidy up. Raises `LedgerUnavailable`.
    """
    try:
        return await _look(store, queue_url=queue_url, sealed=sealed, limit=limit)
    except LedgerError:
        seconds, micros = await store.scripts.command("TIME", idempotent=True)
        refuses = await _refusal(store)
        if refuses is None:
            raise
        return Picture(
            at_s=int(seconds) + int(micros) / 1e6,
            redis=store.topology.shown,
            round_trip_s=0.0,
            server=await _server(store),
            daemons=(),
            processes=(),
            callers=callers_of((), active=0, alive=set()),
            queue=QueueState(),
            deferred=0,
            refuses=refuses,
        )


async def _look(store: RedisStore, *, queue_url: str, sealed: bool, limit: int) -> Picture:
    await store.scripts.command("PING", idempotent=True)  # connects, so that what is measured is the way alone
    began_s = time.perf_counter()
    seconds, micros = await store.scripts.command("TIME", idempotent=True)
    round_trip_s = time.perf_counter() - began_s
    server, refuses, members, processes, active, feeds, deferred, queue = await _together(
        _server(store),
        _refusal(store),
        store.fleet.members(),
        store.processes.present(),
        store.activations.count(),
        _no_feeds() if sealed else store.activations.feeds(limit=limit),
        store.deferred.depth(),
        look_at_queue(queue_url, prefix=store.topology.prefix),
    )
    picture = Picture(
        at_s=int(seconds) + int(micros) / 1e6,
        redis=store.topology.shown,
        round_trip_s=round_trip_s,
        server=server,
        daemons=daemons_of(members, processes),
        processes=tuple(processes),
        callers=callers_of(feeds, active=active, alive={member.id for member in members}),
        queue=queue,
        deferred=deferred,
        refuses=refuses,
    )
    return msgspec.structs.replace(picture, callers=callers_told(picture)) if sealed else picture


async def _no_feeds() -> Sequence[ActiveFeed]:
    return ()


async def _refusal(store: RedisStore) -> str | None:
    """Why Redis takes no write. It has answered already."""
    try:
        await store.ping()
    except LedgerError as error:
        return brief(error)
    return None


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
        return None  # the ACL forbids INFO


def daemons_of(members: Sequence[Member], processes: Sequence[Process]) -> tuple[ShownDaemon, ...]:
    """The daemons of a fleet. A daemon and its process share a name."""
    by_name = {process.name: process for process in processes if process.role in ("daemon", "up")}
    total = sum(member.load for member in members)
    return tuple(
        ShownDaemon(
            id=member.id,
            name=member.name,
            since_s=member.since_s,
            feeds=member.load,
            share=member.load / total if total else 0.0,
            draining=member.draining,
            process=by_name.get(member.name),
            host_lost_at_s=member.host_lost_at_s,
            host_error=member.host_error,
        )
        for member in members
    )


def callers_of(feeds: Sequence[ActiveFeed], *, active: int, alive: set[str]) -> CallerCounts:
    """The active callers, counted. ``alive`` are the ids of the daemons that have a heartbeat."""
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
    return CallerCounts(
        active=max(active, len(feeds)),
        looked_at=len(feeds),
        live=live,
        states=dict(states.most_common()),
        needs_credential=needs_credential,
        errors=tuple(errors.most_common(ERRORS_SHOWN)),
    )


def callers_told(picture: Picture) -> CallerCounts:
    """The active callers, counted by what the daemons announced of their feeds."""
    states: Counter[str] = Counter()
    for process in picture.of_role("daemon", "up"):
        for fact, count in process.facts.items():
            if fact.startswith(FEEDS_IN):
                states[fact.removeprefix(FEEDS_IN)] += int(count)
    live, total = states.pop("live", 0), states.total()
    return CallerCounts(
        active=picture.callers.active,
        looked_at=live + total,
        live=live,
        states=dict(states.most_common()),
        needs_credential=states.get("asking", 0),
        errors=(),
    )


async def look_at_queue(url: str, *, prefix: str) -> QueueState:
    """The job queue. Trouble with it is returned, not raised: the rest of the picture is worth having."""
    try:
        key = Key(ArqQueue(url, prefix=prefix).name)
        topology = connect(url, prefix=prefix)
    except ValueError as error:
        return QueueState(error=str(error))
    scripts = Scripts(topology.commands)
    try:
        jobs = int(await scripts.command("ZCARD", key, idempotent=True))
        oldest = await scripts.command("ZRANGE", key, 0, 0, "WITHSCORES", idempotent=True)
        seconds, _ = await scripts.command("TIME", idempotent=True)
    except LedgerError as error:
        return QueueState(error=str(error))
    finally:
        await topology.aclose()
    late_s = int(seconds) - _score(oldest) / 1000 if oldest else 0.0
    return QueueState(jobs=jobs, late_s=max(0.0, late_s))


def _score(pairs: Sequence[object]) -> float:
    """The score of the first member, however the client gives it."""
    first = pairs[0]
    value = first[1] if isinstance(first, list | tuple) else pairs[1]
    return float(value)  # type: ignore[arg-type]  # a number, as bytes or not
