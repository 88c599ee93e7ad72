"""A picture of a deployment for people, as plain text or as tables on a terminal, and for programs."""

from __future__ import annotations

import datetime

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ledger.operators import Process
from ops.presence import ENDED
from ops.status.picture import Picture, ShownDaemon
from ops.status.problems import Level, Problem, is_well, problems_of
from ops.terminal import many, span, table

_SHOWN: dict[Level, tuple[str, str]] = {
    "bad": ("BAD", "bold red"),
    "warning": ("WARNING", "yellow"),
    "note": ("note", "cyan"),
}
"""Each level as it is shown, and its style on a terminal."""

NOTHING = "-"
"""In place of a number that was not announced."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the picture: a title with rows under headers, or with a sentence where there are no rows."""

    title: str
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    sentence: str = ""


def sections(picture: Picture) -> tuple[Section, ...]:
    """All parts but the problems."""
    return (
        _daemons(picture),
        _fronts(picture),
        _others(picture),
        Section(title="CALLERS", sentence=_callers(picture)),
        Section(title="QUEUE", sentence=_queue(picture)),
        Section(title="REDIS", sentence=_redis(picture)),
    )


def _daemons(picture: Picture) -> Section:
    members = {daemon.name for daemon in picture.daemons}
    return Section(
        title="DAEMONS",
        headers=("name", "feeds", "share", "sockets", "lag", "lost", "up", "version", "metrics", ""),
        rows=(
            *(_daemon(daemon, picture) for daemon in picture.daemons),
            *(_dead_daemon(process, picture) for process in picture.shown("daemon") if process.name not in members),
        ),
        sentence="none",
    )


def _dead_daemon(process: Process, picture: Picture) -> tuple[str, ...]:
    return (process.name, *[NOTHING] * 6, process.version, process.metrics or NOTHING, _state(process, picture))


def _daemon(daemon: ShownDaemon, picture: Picture) -> tuple[str, ...]:
    process = _heard(daemon.process, picture)
    return (
        daemon.name,
        str(daemon.feeds),
        f"{100 * daemon.share:.0f} %",
        _fact(process, "sockets"),
        _lag(process, "ingest_lag_s"),
        _fact(process, "lost_events"),
        span(picture.at_s - daemon.since_s),
        NOTHING if process is None else process.version,
        NOTHING if process is None else process.metrics or NOTHING,
        "draining" if daemon.draining else "" if daemon.process is None else _state(daemon.process, picture),
    )


def _fronts(picture: Picture) -> Section:
    return Section(
        title="FRONTS",
        headers=("name", "waits", "loop lag", "up", "version", "metrics", ""),
        rows=tuple(
            (front.name, _fact(_heard(front, picture), "waits_held"), *_common(front, picture))
            for front in picture.shown("front", "up")
        ),
        sentence="none",
    )


def _others(picture: Picture) -> Section:
    roles = {process.role for process in picture.processes} - {"front", "up", "daemon"}
    none = "none of their own: `fmsg-mcpd up` does the jobs" if picture.of_role("up") else "none"
    return Section(
        title="WORKERS",
        headers=("name", "loop lag", "up", "version", "metrics", ""),
        rows=tuple(
            (
                process.name if process.role == "worker" else f"{process.role} {process.name}",
                *_common(process, picture),
            )
            for process in picture.shown(*roles)
        ),
        sentence=none,
    )


def _common(process: Process, picture: Picture) -> tuple[str, ...]:
    """Loop lag, age, version, metrics address and state."""
    age = span(picture.at_s - process.since_s)
    metrics = process.metrics or NOTHING
    return _lag(_heard(process, picture), "loop_lag_s"), age, process.version, metrics, _state(process, picture)


def _callers(picture: Picture) -> str:
    callers = picture.callers
    parts = [f"{callers.active} active"]
    if 0 < callers.looked_at < callers.active:
        parts.append(f"of the first {callers.looked_at}")
    parts.append(f"{callers.live} live")
    parts += [f"{count} {state}" for state, count in callers.states.items()]
    if callers.needs_credential:
        parts.append(f"{callers.needs_credential} that need a new token")
    return ", ".join(parts)


def _queue(picture: Picture) -> str:
    queue = picture.queue
    deferred = f"{picture.deferred} deferred tasks"
    if queue.error is not None:
        return f"unknown, {deferred}"
    late = f" ({queue.late_s:.0f} s late)" if queue.late_s >= 1 else ""
    return f"{queue.jobs} jobs{late}, {deferred}"


def _redis(picture: Picture) -> str:
    shown = f"{picture.redis}, {picture.round_trip_s * 1000:.1f} ms away"
    server = picture.server
    if server is None:
        return shown
    used = f"{server.used_memory_bytes / 2**20:.0f} MiB"
    if server.max_memory_bytes:
        used += f" of {server.max_memory_bytes / 2**20:.0f} MiB"
    return f"{shown}, {server.product} {server.version}, {used} used"


def plain(picture: Picture) -> str:
    """The whole picture as text."""
    lines = [_title(picture)]
    for problem in problems_of(picture):
        word, _ = _SHOWN[problem.level]
        lines += [f"{word:<8} {problem.what}", f"{'':<8} -> {problem.do}"]
    apart = True
    for section in sections(picture):
        lines += [*([""] if apart or section.rows else []), *_plain_section(section)]
        apart = bool(section.rows)
    return "\n".join(lines)


def _plain_section(section: Section) -> list[str]:
    if not section.rows:
        return [f"{section.title:<8} {section.sentence}"]
    return [section.title, *table([section.headers, *section.rows])]


def pretty(picture: Picture) -> RenderableType:
    """The whole picture as tables."""
    parts: list[RenderableType] = [Text(_title(picture), style="bold"), *map(_pretty_problem, problems_of(picture))]
    for section in sections(picture):
        parts.append(Text(""))
        if not section.rows:
            parts.append(Text.assemble((f"{section.title:<8} ", "bold"), section.sentence))
            continue
        grid = Table(title=section.title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        for header in section.headers:
            grid.add_column(header, style="bold" if header == "name" else "", overflow="fold")
        for row in section.rows:
            grid.add_row(*row, style="red" if row[-1].startswith(("silent", "ended")) else "")
        parts.append(grid)
    return Group(*parts)


def _pretty_problem(problem: Problem) -> Text:
    word, style = _SHOWN[problem.level]
    return Text.assemble((f"{word:<8} ", style), problem.what, ("  → " + problem.do, "dim"))


def _title(picture: Picture) -> str:
    when = datetime.datetime.fromtimestamp(picture.at_s, datetime.UTC)
    count = sum(problem.level != "note" for problem in problems_of(picture))
    told = many(count, "problem") if count else "all is well"
    return f"{when:%Y-%m-%d %H:%M:%S} UTC, {told}"


def to_json(picture: Picture) -> bytes:
    """The whole picture for programs."""
    told = {"well": is_well(picture), "problems": problems_of(picture), **msgspec.structs.asdict(picture)}
    return msgspec.json.format(msgspec.json.encode(told), indent=2)


def _heard(process: Process | None, picture: Picture) -> Process | None:
    """The process where it was heard lately: what a silent one announced last is not true any more."""
    return None if process is None or picture.is_silent(process) else process


def _fact(process: Process | None, name: str) -> str:
    return NOTHING if process is None else f"{process.facts.get(name, 0.0):.0f}"


def _lag(process: Process | None, name: str) -> str:
    """A mean lag of the last minute."""
    value = None if process is None else process.facts.get(name)
    if value is None:
        return NOTHING
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _state(process: Process, picture: Picture) -> str:
    if ENDED in process.facts:
        return "ended"
    if picture.is_silent(process):
        return f"silent for {span(picture.silent_for_s(process))}"
    return "draining" if "draining" in process.facts else ""
