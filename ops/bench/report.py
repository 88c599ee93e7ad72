"""The page about performance, made from a run: aims and figures, a table per scenario, plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ops.bench.aims import AIMS, shown
from ops.bench.figures import Figure, Run, Scene, write
from ops.terminal import table

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points by the name of what they are about."""

FOLDER = "performance"
"""Pictures and JSON beside the page."""

BEGIN_NOTES = "<!-- notes: written by hand, kept by `fmsg-mcpd bench --report` -->"
END_NOTES = "<!-- end of notes -->"


def publish(run: Run, directory: Path) -> None:
    """Write ``performance.md`` with what belongs to it; what was written by hand between the marks is kept."""
    page = directory / "performance.md"
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    notes = _notes(page.read_text()) if page.exists() else ""
    from ops.bench.plot import plot  # and with it matplotlib, which only a developer has

    pictures = _pictures(run)
    for name, (title, series, axis, log_x) in pictures.items():
        (folder / f"{name}.svg").write_text(plot(title, series, x=axis, log_x=log_x))
    (folder / "run.json").write_bytes(write(run))
    page.write_text(_page(run, {name: title for name, (title, *_) in pictures.items()}, notes))


def printed(run: Run) -> str:
    """The figures for a terminal, and whether the aims are reached."""
    lines: list[str] = []
    for scene in run.scenes:
        rows = [("", "measured", "spread", "bare", "ratio")]
        rows += [(name, *_cells(figure)) for name, figure in scene.figures.items()]
        lines += [scene.title, *(table(rows) if scene.figures else []), ""]
    reached = [(aim, aim.reached(run)) for aim in AIMS]
    aims = [
        (aim.what, aim.bound(), f"{shown(found)} {aim.unit}".strip(), "reached" if aim.holds(found) else "NOT REACHED")
        for aim, found in reached
        if found is not None
    ]
    return "\n".join([*lines, *(["Aims", *table([("", "aim", "measured", ""), *aims])] if aims else [])]).rstrip()


def _notes(text: str) -> str:
    _, found, rest = text.partition(BEGIN_NOTES)
    return rest.partition(END_NOTES)[0].strip() if found else ""


def _page(run: Run, pictures: dict[str, str], notes: str) -> str:
    machine = run.machine
    parts = [
        "# Performance\n",
        "What a waiting agent costs and how soon it is woken. This page is made by `fmsg-mcpd bench --report docs` (or "
        "`make bench`) from one run; the figures are in [performance/run.json](performance/run.json).\n",
        f"Run of {run.began} UTC, size {run.size}, {run.took_s / 60:.0f} minutes, on {run.target}: "
        f"{machine.cores} cores, {machine.system}, Python {machine.python}; load average {machine.load_before} before "
        f"and {machine.load_after} after. Host, Redis, daemon, front, yardstick and the load itself share the cores.\n",
        "The yardstick is a bare ASGI application on the same uvicorn and event loop in the same run: it holds a "
        "request, answers at once, or answers after the same request to the host. Ratios are ours over the "
        "yardstick's.\n",
        "## Aims\n",
        "| | aim | measured | | spread |",
        "|---|---|---|---|---|",
    ]
    for aim in AIMS:
        found = aim.reached(run)
        measured = "not measured" if found is None else f"{shown(found)}{f' {aim.unit}' if aim.unit else ''}"
        verdict = "" if found is None else ("reached" if aim.holds(found) else "**not reached**")
        parts.append(f"| {aim.what} | {aim.bound()} | {measured} | {verdict} | {aim.spread(run)} |")
    parts += ["", BEGIN_NOTES, "", *([notes, ""] if notes else []), END_NOTES, ""]
    for scene in run.scenes:
        parts += _scene(scene, pictures)
    return "\n".join(parts).rstrip() + "\n"


def _scene(scene: Scene, pictures: dict[str, str]) -> list[str]:
    parts = [f"## {scene.title}\n", f"{scene.how}\n"]
    parts += [f"![{title}](performance/{name}.svg)\n" for name, title in pictures.items() if _of(name, scene)]
    if scene.failures:
        parts += ["What failed:\n", *(f"- {failure}" for failure in scene.failures), ""]
    parts += ["| | measured | spread | bare | ratio |", "|---|---|---|---|---|"]
    parts += [f"| {name} | {' | '.join(_cells(figure))} |" for name, figure in scene.figures.items()]
    return [*parts, ""]


def _cells(figure: Figure) -> tuple[str, str, str, str]:
    """What was measured, its spread, the yardstick's, and the ratio."""
    unit = f" {figure.unit}" if figure.unit else ""
    spread = ""
    if figure.percentiles is not None:
        found = figure.percentiles
        spread = f"p90 {shown(found.p90)}, p99 {shown(found.p99)}, most {shown(found.worst)} ({found.count:,})"
    elif figure.low is not None and figure.high is not None:
        spread = f"{shown(figure.low)} – {shown(figure.high)} ({figure.rounds})"
    bare = "" if figure.bare is None else f"{shown(figure.bare)}{unit}"
    ratio = "" if figure.ratio is None else shown(figure.ratio)
    return f"{shown(figure.value)}{unit}", spread, bare, ratio


def _of(picture: str, scene: Scene) -> bool:
    return picture.startswith(scene.name.replace(" ", "-") + "-")


def _pictures(run: Run) -> dict[str, tuple[str, Series, str, bool]]:
    found: dict[str, tuple[str, Series, str, bool]] = {}
    for scene in run.scenes:
        for stem, title, wanted, axis, log_x in _PICTURES.get(scene.name, ()):
            series = {_short(name): line for name, line in scene.series.items() if wanted(name) and line}
            if series:
                found[f"{scene.name.replace(' ', '-')}-{stem}"] = (title, series, axis, log_x)
    return found


def _short(name: str) -> str:
    """The process that a series is about: the title says the rest."""
    return name.partition(" memory")[0].partition(" CPU")[0].partition(" data")[0]


_PICTURES: dict[str, tuple[tuple[str, str, Callable[[str], bool], str, bool], ...]] = {
    "hold": (
        (
            "memory",
            "Memory per waiting caller, kB",
            lambda name: name.endswith(", kB") and not name.startswith("redis"),
            "waiting callers",
            True,
        ),
        ("cpu", "CPU per new caller, ms", lambda name: name.endswith("per new caller, ms"), "waiting callers", True),
        (
            "idle",
            "Idle CPU of all processes, % of a core",
            lambda name: name.startswith("idle"),
            "waiting callers",
            True,
        ),
    ),
    "wake": (
        (
            "all-at-once",
            "All at once: share of the waits answered",
            lambda name: name.startswith("all at once"),
            "ms after the push",
            False,
        ),
    ),
    "soak": (
        ("memory", "Memory over the soak, MB", lambda name: name.endswith("memory, MB"), "minutes", False),
        ("keys", "Redis keys over the soak", lambda name: name == "Redis keys", "minutes", False),
    ),
}
"""By scenario: file name, title, which of its series, the x axis, and whether that is logarithmic."""
