"""What is wrong with a deployment, worst first: pure decisions over a picture of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ops.status.picture import OWNERLESS, UNREPORTED, Picture

Level = Literal["bad", "warning", "note"]
"""``bad``: agents notice. ``warning``: they will, or already lose comfort. ``note``: worth knowing."""

_ORDER: dict[Level, int] = {"bad": 0, "warning": 1, "note": 2}

NOT_LIVE_BAD = 0.1
"""With this part of the callers without a live feed something is wrong with more than single callers."""

NOT_LIVE_NOTED = 0.01
"""Below this part of the callers it is the daily coming and going."""

YOUNG_S = 60.0
"""A daemon needs a moment to open its sockets; so long after its start they are not missed."""

STARTS_S = 30.0
"""So long after its start a daemon's heart has beaten ten times."""

QUEUE_LATE_S = 300.0
"""Jobs are due within seconds of being put in; this late nobody takes them."""

MANY_DEFERRED = 1000
"""Every deferred task is a send or a draft that went wrong; a host's outage makes some, this many do not get done."""

LOOP_LAG_S = 0.1
"""A mean above it over a minute: the process has more to do than it can."""

INGEST_LAG_S = 10.0
"""A mean above it over a minute: messages come late into the ledgers."""

SLOW_REDIS_S = 0.05
"""One round trip of this command line, connection included: agents feel three or four of them."""

FULL_SHARE = 0.85
"""Of ``maxmemory``, above which a burst of new callers fills the server."""

FULL = 0.99
"""Of ``maxmemory``, from which a write is refused as soon as it takes a little."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and what to do."""

    level: Level
    what: str
    do: str


def problems_of(picture: Picture) -> tuple[Problem, ...]:
    """All problems, the worst first."""
    rules = [rule for rule in RULES if rule not in BY_PRESENCE] if _is_full(picture) else RULES
    found = [problem for rule in rules for problem in rule(picture)]
    return tuple(sorted(found, key=lambda problem: _ORDER[problem.level]))


def _is_full(picture: Picture) -> bool:
    """Whether nobody can write, and so say that it is there."""
    server = picture.server
    return server is not None and server.used_memory_bytes >= FULL * server.max_memory_bytes > 0


def _daemons(picture: Picture) -> Iterator[Problem]:
    working = [daemon for daemon in picture.daemons if not daemon.draining]
    active = picture.callers.active
    if not working and active:
        yield Problem(
            level="bad",
            what=f"no daemon runs, and {_many(active, 'caller')} wait by polling the host",
            do="Start one: fmsg-mcpd daemon (systemctl start fmsg-mcpd-daemon@1).",
        )
    elif not working:
        yield Problem(level="warning", what="no daemon runs", do="Start one before agents come: fmsg-mcpd daemon.")
    elif len(working) == 1:
        yield Problem(
            level="note", what="only one daemon runs", do="With a second one nobody polls while one restarts."
        )
    members = {daemon.name for daemon in picture.daemons}
    for process in picture.of_role("daemon"):
        if (
            process.name not in members
            and "draining" not in process.facts
            and picture.at_s - process.since_s > STARTS_S
        ):
            yield Problem(
                level="warning",
                what=f"daemon {process.name} ran a moment ago, and its heart does not beat",
                do="If it was killed, start it again. If it still runs, it hangs or has trouble with Redis: look at "
                "its log. Its callers went to others.",
            )
    for daemon in picture.daemons:
        if daemon.draining and daemon.feeds:
            yield Problem(
                level="note",
                what=f"daemon {daemon.name} is draining, {_many(daemon.feeds, 'feed')} are left",
                do="Wait; if it stays so, look at its log and end it: the others take over.",
            )


def _fronts(picture: Picture) -> Iterator[Problem]:
    fronts = picture.of_role("front") + picture.of_role("up")
    if not any("draining" not in front.facts for front in fronts):
        yield Problem(
            level="bad" if picture.callers.active else "warning",
            what="no front says that it is there",
            do="Start one: fmsg-mcpd front. If one runs, look at its log: it may not reach this Redis.",
        )


def _workers(picture: Picture) -> Iterator[Problem]:
    if not picture.of_role("worker") + picture.of_role("up"):
        yield Problem(
            level="warning",
            what="no worker says that it is there: nobody sweeps, settles sends or deletes orphaned drafts",
            do="Start one: fmsg-mcpd worker.",
        )
    queue = picture.queue
    if queue.error is not None:
        yield Problem(level="warning", what=f"the job queue cannot be read: {queue.error}", do="Look at its Redis.")
    elif queue.late_s > QUEUE_LATE_S:
        yield Problem(
            level="warning",
            what=f"the oldest of {_many(queue.jobs, 'job')} is {queue.late_s / 60:.0f} min late",
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
    missing = callers.looked_at - callers.live
    fresh = any(picture.at_s - daemon.since_s < YOUNG_S for daemon in picture.daemons)
    if not missing or not picture.daemons or missing < NOT_LIVE_NOTED * callers.looked_at:
        return
    level: Level = "bad" if missing >= NOT_LIVE_BAD * callers.looked_at and not fresh else "note"
    states = ", ".join(f"{count} {state}" for state, count in callers.states.items())
    yield Problem(
        level=level,
        what=f"{missing} of {_many(callers.looked_at, 'caller')} have no live feed, so their waits poll: {states}",
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
            "No daemon has them, or this FMSG_SEAL_KEY is not the fleet's (`fmsg-mcpd doctor --only redis` tells): "
            "else look at the daemons' logs (FMSG_SEAL_KEY, FMSG_API_URL)."
        )
    return "Look at one: fmsg-mcpd caller @address."


def _loads(picture: Picture) -> Iterator[Problem]:
    for process in picture.processes:
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
                what=f"{_many(int(lost), 'message')} came only by comparing lists since {process.name} started",
                do="The host's event socket loses events: tell whoever runs it. Nothing is lost, but it is late.",
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
            what=f"{used} and refuses writes: waits poll, and who runs cannot be seen here"
            if full
            else f"{used}; full, it refuses writes and waits poll",
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
    _daemons,
    _fronts,
    _callers,
    _workers,
    _loads,
    _redis,
    _versions,
)
"""Each looks at one side of a picture."""

BY_PRESENCE = frozenset({_daemons, _fronts, _workers})
"""Go by what processes say of themselves every few seconds."""


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
