"""A picture of a deployment for people: as plain text, or as tables on a terminal."""

from __future__ import annotations

import datetime

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ledger.operators import Process
from ops.status.picture import Daemon, Picture
from ops.status.problems import Level, Problem, problems_of

_SHOWN: dict[Level, tuple[str, str]] = {
    "bad": ("BAD", "bold red"),
    "warning": ("WARNING", "yellow"),
    "note": ("note", "cyan"),
}
"""Each level as it is shown, and its style on a terminal."""

NOTHING = "-"
"""In place of a number nobody gave."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the picture: a title, and rows under headers, or a sentence where there are no rows."""

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
    return Section(
        title="DAEMONS",
        headers=("name", "feeds", "share", "sockets", "lag", "lost", "up", "version", "metrics", ""),
        rows=tuple(_daemon(daemon, picture.at_s) for daemon in picture.daemons),
        sentence="none",
    )


def _daemon(daemon: Daemon, now_s: float) -> tuple[str, ...]:
    process = daemon.process
    return (
        daemon.name,
        str(daemon.feeds),
        f"{100 * daemon.share:.0f} %",
        _fact(process, "sockets"),
        _lag(process, "ingest_lag_s"),
        _fact(process, "lost_events"),
        span(now_s - daemon.since_s),
        NOTHING if process is None else process.version,
        NOTHING if process is None else process.metrics or NOTHING,
        "draining" if daemon.draining else "",
    )


def _fronts(picture: Picture) -> Section:
    fronts = picture.of_role("front") + picture.of_role("up")
    return Section(
        title="FRONTS",
        headers=("name", "waits", "loop lag", "up", "version", "metrics", ""),
        rows=tuple(
            (
                front.name,
                _fact(front, "waits_held"),
                _lag(front, "loop_lag_s"),
                span(picture.at_s - front.since_s),
                front.version,
                front.metrics or NOTHING,
                _state(front),
            )
            for front in fronts
        ),
        sentence="none",
    )


def _others(picture: Picture) -> Section:
    others = [process for process in picture.processes if process.role not in ("front", "up", "daemon")]
    none = "none of their own: `fmsg-mcpd up` does the jobs" if picture.of_role("up") else "none"
    return Section(
        title="WORKERS",
        headers=("name", "loop lag", "up", "version", "metrics", ""),
        rows=tuple(
            (
                process.name if process.role == "worker" else f"{process.role} {process.name}",
                _lag(process, "loop_lag_s"),
                span(picture.at_s - process.since_s),
                process.version,
                process.metrics or NOTHING,
                _state(process),
            )
            for process in others
        ),
        sentence=none,
    )


def _callers(picture: Picture) -> str:
    callers = picture.callers
    parts = [f"{callers.active} active"]
    if callers.looked_at < callers.active:
        parts.append(f"of the first {callers.looked_at}")
    parts.append(f"{callers.live} live")
    parts += [f"{count} {state}" for state, count in callers.states.items()]
    if callers.needs_credential:
        parts.append(f"{callers.needs_credential} in want of a token")
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
    table = [section.headers, *section.rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(section.headers))]
    return [section.title] + [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    ]


def pretty(picture: Picture) -> RenderableType:
    """The whole picture as tables."""
    parts: list[RenderableType] = [Text(_title(picture), style="bold"), *map(_pretty_problem, problems_of(picture))]
    for section in sections(picture):
        parts.append(Text(""))
        if not section.rows:
            parts.append(Text.assemble((f"{section.title:<8} ", "bold"), section.sentence))
            continue
        table = Table(title=section.title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        for header in section.headers:
            table.add_column(header, style="bold" if header == "name" else "", overflow="fold")
        for row in section.rows:
            table.add_row(*row)
        parts.append(table)
    return Group(*parts)


def _pretty_problem(problem: Problem) -> Text:
    word, style = _SHOWN[problem.level]
    return Text.assemble((f"{word:<8} ", style), problem.what, ("  → " + problem.do, "dim"))


def _title(picture: Picture) -> str:
    when = datetime.datetime.fromtimestamp(picture.at_s, datetime.UTC)
    count = sum(problem.level != "note" for problem in problems_of(picture))
    told = "all is well" if not count else "1 problem" if count == 1 else f"{count} problems"
    return f"{when:%Y-%m-%d %H:%M:%S} UTC, {told}"


def to_json(picture: Picture) -> bytes:
    """The whole picture for programs."""
    told = {"problems": problems_of(picture), **msgspec.structs.asdict(picture)}
    return msgspec.json.format(msgspec.json.encode(told), indent=2)


def span(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for size_s, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def _fact(process: Process | None, name: str) -> str:
    return NOTHING if process is None else f"{process.facts.get(name, 0.0):.0f}"


def _lag(process: Process | None, name: str) -> str:
    value = None if process is None else process.facts.get(name)
    if value is None:
        return NOTHING
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _state(process: Process) -> str:
    return "draining" if "draining" in process.facts else ""
