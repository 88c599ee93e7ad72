"""The dashboard over canned metrics: a real Prometheus answers the query of every panel, and the picture shows it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.fleet.dashboard import ALERTS
from tests.fleet.drawing import Mark, Span, amount, draw
from tests.fleet.panels import Line, Panel, Place, Shown, Target, as_asked, panels, show
from tests.fleet.prometheus import INSTALL, BadQuery, Prometheus, adapted, find_prometheus, watching
from tests.ops.deploy_files import PROCESS_METRICS, exported

ROLES = ("front", "daemon", "worker")
WITHIN_S = 60.0
needs_prometheus = pytest.mark.skipif(find_prometheus() is None, reason=INSTALL)


def exposition(turn: int) -> Iterator[str]:
    """Every series that the processes export, a little higher each time it is asked for."""
    for name, series in exported().items():
        labels = ",".join(f'{label}="connecting"' for label in sorted(series.labels - {"le"}))
        limits = ("1", "+Inf") if "le" in series.labels else ()
        for limit in limits:
            yield f'{name}{{{labels}{"," * bool(labels)}le="{limit}"}} {turn}'
        if not limits:
            yield f"{name}{{{labels}}} {turn}"
    for name in PROCESS_METRICS:
        yield f"{name} {turn}"


@contextlib.asynccontextmanager
async def exporter() -> AsyncIterator[str]:
    """A process that exports them; its ``host:port``."""
    turns = itertools.count(1)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text="\n".join([*exposition(next(turns)), ""]))

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield "{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


async def seen(source: Prometheus, start_s: float) -> tuple[list[Shown], set[str]]:
    """All panels and the alerts that fire, once something is to be seen on each; as they are when it takes too long."""
    while True:
        over = {"start_s": start_s, "end_s": time.time(), "step_s": 1.0}
        shown = [await show(one, source, **over) for one in panels()]
        alerts = {series.labels["alertname"] for series in await source.over(ALERTS, **over)}
        all_filled = all(one.filled or one.panel.kind == "row" for one in shown)
        if ("FmsgEventsLost" in alerts and all_filled) or over["end_s"] > start_s + WITHIN_S:
            return shown, alerts
        await asyncio.sleep(0.5)


@pytest.mark.processes
@needs_prometheus
async def test_something_is_to_be_seen_on_every_panel(tmp_path: Path) -> None:
    """Every query is understood, and finds the series that the processes export."""
    start_s = time.time()
    async with exporter() as address:
        targets = {f"fmsg-{role}": {f"{role}-0": address} for role in ROLES}
        async with watching(targets, tmp_path, every_s=0.5) as source:
            shown, alerts = await seen(source, start_s)
            with pytest.raises(BadQuery, match="parse error"):
                await source.over("sum(", start_s=start_s, end_s=time.time(), step_s=1.0)
    assert [one.panel.title for one in shown if one.panel.kind != "row" and not one.filled] == []
    assert "FmsgEventsLost" in alerts
    names = {line.name for one in shown for line in one.lines if one.panel.kind != "stat"}
    assert "" not in names
    assert not [name for name in names if name.startswith(",") or name.endswith(",")]


def line(name: str, *values: float) -> Line:
    return Line(name, tuple((1000.0 + at_s, value) for at_s, value in enumerate(values)))


def panel(kind: str = "timeseries", **changes: object) -> Panel:
    fields = {"kind": kind, "title": "A < B", "place": Place(0, 0, 8, 8), "targets": (Target("x", "{{a}}"),)}
    return Panel(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "is_filled"),
    [
        (Shown(panel(), ()), False),
        (Shown(panel(), (line("a", 0.0, 0.0),)), False),
        (Shown(panel(), (line("a", 0.0, 2.0),)), True),
        (Shown(panel("stat"), (line("", 0.0),)), True),
        (Shown(panel("stat"), ()), False),
    ],
)
def test_a_line_that_never_leaves_zero_fills_nothing(shown: Shown, is_filled: bool) -> None:
    assert shown.filled is is_filled


def test_a_picture_has_everything_and_holes_stay_holes() -> None:
    gap = Line("b", ((1000.0, 5.0), (1003.0, 5.0)))
    many = tuple(line(f"n{number}", 1.0, 2.0, 3.0, 4.0) for number in range(15))
    shown = [
        Shown(panel("row", title="Row"), ()),
        Shown(panel("stat", title="How many", steps=((float("-inf"), "green"), (3.0, "red"))), (line("", 1.0, 4.0),)),
        Shown(panel("stat", title="Nothing", steps=((float("-inf"), "green"),)), ()),
        Shown(panel(title="Holes & lines", unit="s"), (line("a", 0.1, 0.2, 0.3, 0.2), gap)),
        Shown(panel(title="Stack", stacked=True), many),
        Shown(panel(title="Empty"), ()),
    ]
    marks = [Mark(1.0, "something", "A"), Mark(2.0, "An alert fires")]
    svg = draw(shown, Span(1000.0, 1003.0, 1.0), title="T", notes=["a note"], marks=marks)
    root = ET.fromstring(svg)
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]
    for expected in ("Row", "How many", "4", "Holes & lines", "a", "b", "n0", "6 more", "a note", "A, 0:01: something"):
        assert expected in texts
    assert texts.count("no data") == 2
    assert "#c0443f" in svg
    paths = [node.get("d", "") for node in root.iter() if node.get("class") == "line"]
    assert any(path.count("M") == 2 for path in paths), "the hole was drawn over"
    assert not re.search(r"\bnan\b", svg)


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0, "s", "0"),
        (0.25, "s", "250 ms"),
        (90.0, "s", "1.5 min"),
        (0.125, "percentunit", "12.5 %"),
        (3 * 2.0**20, "bytes", "3 MiB"),
        (1500.0, "ops", "1.5 k/s"),
        (0.5, "ops", "0.5/s"),
        (1234.0, "short", "1.23 k"),
    ],
)
def test_values_have_units(value: float, unit: str, said: str) -> None:
    assert amount(value, unit) == said


def test_the_deployed_configuration_is_what_is_tried() -> None:
    config = adapted({"fmsg-daemon": {"daemon-0": "127.0.0.1:1"}}, every_s=2.0)
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "fmsg-daemon"
    assert job["static_configs"] == [{"targets": ["127.0.0.1:1"], "labels": {"instance": "daemon-0"}}]
    assert [Path(name).name for name in config["rule_files"]] == ["rules.yml"]
    with pytest.raises(KeyError):
        adapted({"other": {}}, every_s=2.0)


def test_intervals_are_grafanas() -> None:
    """Four looks, or a look and a step where steps are long."""
    assert as_asked("rate(x[$__rate_interval])", every_s=5.0, step_s=3.0) == "rate(x[20000ms])"
    assert as_asked("rate(x[$__rate_interval])", every_s=5.0, step_s=60.0) == "rate(x[65000ms])"


def test_every_panel_is_one_that_can_be_drawn() -> None:
    """A new kind of panel, unit or colour of the dashboard wants to be known to the drawing."""
    assert {one.kind for one in panels()} == {"row", "stat", "timeseries"}
    shown = [Shown(one, (line("a", 1.0, 2.0),) if one.targets else ()) for one in panels()]
    ET.fromstring(draw(shown, Span(1000.0, 1001.0, 1.0), title="T", notes=[], marks=[]))
