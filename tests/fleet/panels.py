"""The Grafana dashboard of the deploy files, panel by panel, asked of a Prometheus as Grafana would ask."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from tests.fleet.prometheus import Prometheus, Series, duration

DASHBOARD = Path(__file__).resolve().parents[2] / "ops" / "deploy" / "grafana" / "dashboard.json"


class Place(msgspec.Struct, frozen=True):
    """Where a panel is on Grafana's grid of 24 columns."""

    x: int
    y: int
    w: int
    h: int


class Target(msgspec.Struct, frozen=True):
    """One query of a panel, and how the series of its answer are called."""

    expr: str
    legend: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A panel, or the title of a row (``kind`` "row")."""

    kind: str
    title: str
    place: Place
    targets: tuple[Target, ...] = ()
    unit: str = "short"
    decimals: int | None = None
    stacked: bool = False
    fill: int = 0
    """Opacity of the area below a line, in per cent."""
    steps: tuple[tuple[float, str], ...] = ()
    """From which value on which colour, rising."""
    marked: bool = False
    """Whether the steps are drawn as lines."""


class Line(msgspec.Struct, frozen=True):
    """A series with its name in the legend."""

    name: str
    samples: tuple[tuple[float, float], ...]


class Shown(msgspec.Struct, frozen=True):
    """A panel with what it shows."""

    panel: Panel
    lines: tuple[Line, ...]

    @property
    def filled(self) -> bool:
        """Whether there is something to be seen: a number, or a line that leaves zero."""
        values = [value for line in self.lines for _, value in line.samples]
        return any(values) or bool(values and self.panel.kind == "stat")


def panels() -> tuple[Panel, ...]:
    """Those of the dashboard in the order of their places."""
    told: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    found = [_panel(one) for one in told]
    return tuple(sorted(found, key=lambda panel: (panel.place.y, panel.place.x)))


def _panel(told: dict[str, Any]) -> Panel:
    defaults = told.get("fieldConfig", {}).get("defaults", {})
    custom = defaults.get("custom", {})
    thresholds = defaults.get("thresholds", {}).get("steps", ())
    return Panel(
        kind=told["type"],
        title=told["title"],
        place=Place(**told["gridPos"]),
        targets=tuple(Target(one["expr"], one.get("legendFormat") or "") for one in told.get("targets", ())),
        unit=defaults.get("unit", "short"),
        decimals=defaults.get("decimals"),
        stacked=custom.get("stacking", {}).get("mode") == "normal",
        fill=custom.get("fillOpacity", 0),
        steps=tuple((float("-inf") if one["value"] is None else one["value"], one["color"]) for one in thresholds),
        marked=custom.get("thresholdsStyle", {}).get("mode") == "line",
    )


def as_asked(expression: str, *, every_s: float, step_s: float) -> str:
    """An expression with Grafana's own variables replaced as Grafana does, where Prometheus looks every ``every_s``."""
    return expression.replace("$__rate_interval", duration(max(step_s + every_s, 4 * every_s)))


async def show(panel: Panel, source: Prometheus, *, start_s: float, end_s: float, step_s: float) -> Shown:
    """Ask every query of a panel. Raises `tests.fleet.prometheus.BadQuery`."""
    lines: list[Line] = []
    for target in panel.targets:
        expression = as_asked(target.expr, every_s=source.every_s, step_s=step_s)
        answer = await source.over(expression, start_s=start_s, end_s=end_s, step_s=step_s)
        lines += [Line(_name(target, series), series.samples) for series in answer if series.samples]
    return Shown(panel, tuple(sorted(lines, key=_size, reverse=True) if panel.stacked else lines))


def _name(target: Target, series: Series) -> str:
    return re.sub(r"{{(\w+)}}", lambda label: series.labels.get(label[1], ""), target.legend)


def _size(line: Line) -> float:
    return sum(value for _, value in line.samples)
