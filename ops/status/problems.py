"""What is wrong with a deployment, the worst first: pure decisions over a picture of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ops.presence import ENDED
from ops.status.picture import OWNERLESS, UNREPORTED, Picture, ShownDaemon
from ops.terminal import many, span

Level = Literal["bad", "warning", "note"]
"""``bad``: agents notice it. ``warning``: agents will notice it, or wait longer already. ``note``: worth knowing."""

ROLES = ("front", "daemon", "worker", "up")
"""The parts of a deployment."""

_ORDER: dict[Level, int] = {"bad": 0, "warning": 1, "note": 2}

NOT_LIVE_BAD = 0.1
"""If this part of the callers has no live feed, the trouble is not one of single callers."""

NOT_LIVE_NOTED = 0.01
"""Below this part of the callers it is the usual coming and going."""

YOUNG_S = 60.0
"""A daemon needs a moment to open its sockets. So long after its start, missing ones are no problem."""

STARTS_S = 30.0
"""So long after its start a daemon has sent ten heartbeats."""

QUEUE_LATE_S = 300.0
"""Jobs are due within seconds. A job that is this late is taken by no worker."""

MANY_DEFERRED = 1000
"""Every deferred task is a send or a draft that went wrong. An outage of the host makes some; this many do not get
done."""

LOOP_LAG_S = 0.1
"""A mean above it over a minute: the process has more to do than one core does."""

INGEST_LAG_S = 10.0
"""A mean above it over a minute: messages reach the ledgers late."""

SLOW_REDIS_S = 0.05
"""One round trip of this command: a wake-up of an agent takes three or four."""

FULL_SHARE = 0.85
"""Of ``maxmemory``, above which a burst of new callers fills the server."""

FULL = 0.99
"""Of ``maxmemory``, from which any write of some size is refused."""

JUST_STARTED_S = 15.0
"""A Redis that runs for less has not heard of every process yet."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and what to do."""

    level: Level
    what: str
    do: str


def problems_of(picture: Picture) -> tuple[Problem, ...]:
    """All problems, the worst first."""
    unheard = _is_full(picture) or picture.refuses is not None or _has_just_started(picture)
    found = [problem for rule in RULES if not (unheard and rule in BY_PRESENCE) for problem in rule(picture)]
    return tuple(sorted(found, key=lambda problem: _ORDER[problem.level]))


def is_well(picture: Picture) -> bool:
    """Whether there is nothing worse than a note."""
    return all(problem.level == "note" for problem in problems_of(picture))


def _is_full(picture: Picture) -> bool:
    """Whether no process can write, and so announce itself."""
    server = picture.server
    return server is not None and server.used_memory_bytes >= FULL * server.max_memory_bytes > 0


def _has_just_started(picture: Picture) -> bool:
    """Whether Redis was started again a moment ago, and knows processes that it was told of before that."""
    uptime_s = JUST_STARTED_S if picture.server is None else picture.server.uptime_s
    return uptime_s < JUST_STARTED_S and any(picture.silent_for_s(one) > uptime_s for one in picture.processes)


def _outages(picture: Picture) -> Iterator[Problem]:
    if picture.refuses is not None and not _is_full(picture):
        yield Problem(
            level="bad",
            what=f"Redis answers and refuses writes, so no wait returns anything new: {picture.refuses}",
            do="Look at its log and role (replica, failed save, min-replicas, ACL): fmsg-mcpd doctor --only redis.",
        )
    lost = [(daemon.host_lost_at_s, daemon) for daemon in picture.daemons if daemon.host_lost_at_s is not None]
    if lost:
        since_s, daemon = min(lost, key=lambda one: one[0])
        total = len(picture.daemons)
        reason = (daemon.host_error or "no reason is known").removesuffix(".")
        of_them = "" if len(lost) == total else f" {len(lost)} of {many(total, 'daemon')}"
        yield Problem(
            level="bad",
            what=f"the fmsg host has not answered{of_them} for {span(picture.at_s - since_s)}: {reason}",
            do="Look at the host, and at the way to it: fmsg-mcpd doctor --only host. Nothing is lost meanwhile: waits "
            "hold, and sends fail with an error.",
        )


def _silent(picture: Picture) -> Iterator[Problem]:
    replaced = []
    for process, successor in picture.silent().values():
        ago = span(picture.silent_for_s(process))
        if successor is not None:
            replaced.append(f"{process.role} {process.name} ({ago} ago)")
            continue
        told = f"ended without saying so, {ago} ago" if ENDED in process.facts else f"has said nothing for {ago}"
        yield Problem(
            level="warning",
            what=f"{process.role} {process.name} {told}",
            do="If it was killed, start it again. If it still runs, it hangs or cannot reach Redis: look at its log. "
            "If it is not wanted any more: fmsg-mcpd status --forget-silent.",
        )
    if replaced:
        count = len(replaced)
        yield Problem(
            level="note",
            what=f"{many(count, 'process')} ended without saying so within the last hour and "
            f"{'was' if count == 1 else 'were'} replaced: {', '.join(replaced)}",
            do="Look in their logs, and in the kernel's (out of memory?), why.",
        )


def _daemons(picture: Picture) -> Iterator[Problem]:
    working = [daemon for daemon in picture.daemons if not daemon.draining]
    active = picture.callers.active
    if not working and active:
        yield Problem(
            level="bad",
            what=f"no daemon runs, so fronts poll for {many(active, 'caller')}",
            do="Start one: fmsg-mcpd daemon (systemctl start fmsg-mcpd-daemon@1).",
        )
    elif not working:
        yield Problem(level="warning", what="no daemon runs", do="Start one before agents come: fmsg-mcpd daemon.")
    elif len(working) == 1 and not _is_all_in_one(working[0]):
        yield Problem(
            level="note", what="only one daemon runs", do="With a second one no front polls while the first restarts."
        )
    members = {daemon.name for daemon in picture.daemons}
    for process in picture.of_role("daemon", "up"):
        if (
            process.name not in members
            and "draining" not in process.facts
            and picture.at_s - process.since_s > STARTS_S
        ):
            yield Problem(
                level="warning",
                what=f"daemon {process.name} runs and sends no heartbeat",
                do="Look at its log: it hangs, or has trouble with Redis. Its callers went to other daemons.",
            )
    for daemon in picture.daemons:
        if daemon.draining and daemon.feeds:
            yield Problem(
                level="note",
                what=f"daemon {daemon.name} is draining, {many(daemon.feeds, 'feed')} are left",
                do="Wait; if it stays so, look at its log and end it: the others take over.",
            )


def _is_all_in_one(daemon: ShownDaemon) -> bool:
    return daemon.process is not None and daemon.process.role == "up"


def _fronts(picture: Picture) -> Iterator[Problem]:
    if all("draining" in front.facts for front in picture.of_role("front", "up")):
        yield Problem(
            level="bad" if picture.callers.active else "warning",
            what="no front runs",
            do="Start one: fmsg-mcpd front. If one runs, look at its log: it may not reach this Redis.",
        )


def _workers(picture: Picture) -> Iterator[Problem]:
    if not picture.of_role("worker", "up"):
        yield Problem(
            level="warning",
            what="no worker runs, so lists are not compared deeply, and failed sends and drafts are left as they are",
            do="Start one: fmsg-mcpd worker.",
        )
    queue = picture.queue
    if queue.error is not None:
        yield Problem(level="warning", what=f"the job queue cannot be read: {queue.error}", do="Look at its Redis.")
    elif queue.late_s > QUEUE_LATE_S:
        yield Problem(
            level="warning",
            what=f"the oldest of {many(queue.jobs, 'job')} is {queue.late_s / 60:.0f} min late",
            do="Look at the workers' logs; start more of them if they are busy.",
        )
    if picture.deferred > MANY_DEFERRED:
        yield Problem(
            level="warning",
            what=f"{picture.deferred} deferred tasks are left to do",
            do="Look at the workers' logs: the host may refuse them.",
        )


def _callers(picture: Picture) -> Iterator[Problem]:
    callers = picture.callers
    if picture.daemons and all(daemon.host_lost_at_s is not None for daemon in picture.daemons):
        return  # said as an outage of the host
    missing = callers.looked_at - callers.live
    fresh = any(picture.at_s - daemon.since_s < YOUNG_S for daemon in picture.daemons)
    if not missing or not picture.daemons or missing < NOT_LIVE_NOTED * callers.looked_at:
        return
    level: Level = "bad" if missing >= NOT_LIVE_BAD * callers.looked_at and not fresh else "note"
    states = ", ".join(f"{count} {state}" for state, count in callers.states.items())
    yield Problem(
        level=level,
        what=f"{missing} of {callers.looked_at} callers have no live feed, so fronts poll for them: {states}",
        do=_feed_advice(picture, fresh=fresh),
    )


def _feed_advice(picture: Picture, *, fresh: bool) -> str:
    callers = picture.callers
    if fresh:
        return "A daemon has just started: look again in a minute."
    if callers.errors:
        error, count = callers.errors[0]
        return f"The most frequent reason ({count}): {error.removesuffix('.')}. Look at one: fmsg-mcpd caller @address."
    if callers.states.get("asking", 0) + callers.states.get("stopped", 0) > callers.looked_at / 2:
        return "They lack a valid token: their next request brings one."
    if callers.states.get(UNREPORTED, 0) or callers.states.get(OWNERLESS, 0):
        return (
            "Either no daemon has them, so look at the daemons' logs, or this FMSG_SEAL_KEY is not the fleet's: "
            "fmsg-mcpd doctor --only redis tells."
        )
    return "Look at one: fmsg-mcpd caller @address."


def _loads(picture: Picture) -> Iterator[Problem]:
    for process in picture.of_role(*ROLES):
        lag_s = process.facts.get("loop_lag_s", 0.0)
        if lag_s > LOOP_LAG_S:
            yield Problem(
                level="warning",
                what=f"{process.role} {process.name} runs {lag_s * 1000:.0f} ms behind",
                do="It has too much to do: start another one, or give the machine more processors.",
            )
        late_s = process.facts.get("ingest_lag_s", 0.0)
        if late_s > INGEST_LAG_S:
            yield Problem(
                level="warning",
                what=f"messages reach the ledgers {late_s:.0f} s late ({process.role} {process.name})",
                do="Look at the host's clock and at its event socket: fmsg-mcpd doctor.",
            )
        lost = process.facts.get("lost_events", 0.0)
        if lost:
            yield Problem(
                level="warning",
                what=f"{many(int(lost), 'message')} came only by comparing lists within 15 minutes ({process.name})",
                do="The host's event socket loses events: tell its operator. Nothing is lost, but it is late.",
            )


def _redis(picture: Picture) -> Iterator[Problem]:
    if picture.round_trip_s > SLOW_REDIS_S:
        yield Problem(
            level="note",
            what=f"Redis took {picture.round_trip_s * 1000:.0f} ms to answer here",
            do="If it is as slow for the fleet: SLOWLOG GET, INFO commandstats.",
        )
    server = picture.server
    if server is None:
        return
    for advice in server.advice():
        what, _, do = advice.rpartition(". ")
        yield Problem(level="warning", what=what if what.startswith("Redis") else f"Redis {what}", do=do)
    if server.max_memory_bytes and server.used_memory_bytes > FULL_SHARE * server.max_memory_bytes:
        used = f"Redis uses {100 * server.used_memory_bytes / server.max_memory_bytes:.0f} % of its maxmemory"
        full = _is_full(picture)
        yield Problem(
            level="bad" if full else "warning",
            what=f"{used} and refuses writes: waits return nothing new, and which processes run cannot be seen here"
            if full
            else f"{used}. A full Redis refuses writes, and waits then return nothing new",
            do="Raise maxmemory: CONFIG SET maxmemory …, and in its configuration.",
        )


def _versions(picture: Picture) -> Iterator[Problem]:
    versions = sorted({process.version for process in picture.processes})
    if len(versions) > 1:
        yield Problem(
            level="note",
            what=f"processes of several versions run: {', '.join(versions)}",
            do="Fine during an upgrade; afterwards restart those that are left behind.",
        )


RULES: tuple[Callable[[Picture], Iterator[Problem]], ...] = (
    _outages,
    _silent,
    _daemons,
    _fronts,
    _callers,
    _workers,
    _loads,
    _redis,
    _versions,
)
"""Each looks at one side of a picture."""

BY_PRESENCE = frozenset({_silent, _daemons, _fronts, _workers})
"""Go by what processes announce every few seconds."""
