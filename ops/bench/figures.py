"""What a run of the bench found, as values that go to JSON and come back from it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from ops.bench.measure import Spread, spread


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure. ``low`` and ``high``: the spread over its rounds; ``bare``: what the yardstick took for the same."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    rounds: int = 1
    percentiles: Spread | None = None
    bare: float | None = None

    @property
    def ratio(self) -> float | None:
        """This figure over the yardstick's."""
        return self.value / self.bare if self.bare else None


class Scene(msgspec.Struct, kw_only=True):
    """One scenario: its figures by name, and its series, lists of (x, y), for plots."""

    name: str
    title: str
    how: str
    """What was done, for the reader of the report."""
    figures: dict[str, Figure] = {}
    series: dict[str, list[tuple[float, float]]] = {}
    failures: list[str] = []
    """What went wrong meanwhile: calls that were cut or refused, counts that do not fit."""

    def note(self, name: str, value: float, unit: str, *, bare: float | None = None) -> None:
        """Keep a figure that was measured once."""
        self.figures[name] = Figure(value=value, unit=unit, bare=bare)

    def note_rounds(self, name: str, values: Sequence[float], unit: str, *, bare: Sequence[float] = ()) -> None:
        """Keep the median of several rounds, with their spread."""
        self.figures[name] = Figure(
            value=median(values),
            unit=unit,
            low=min(values),
            high=max(values),
            rounds=len(values),
            bare=median(bare) if bare else None,
        )

    def note_times(self, name: str, times_ms: Sequence[float], *, bare: float | None = None) -> None:
        """Keep a sample of times, in milliseconds; its figure is the median."""
        found = spread(times_ms)
        self.figures[name] = Figure(value=found.p50, unit="ms", percentiles=found, bare=bare)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it ran."""

    cores: int
    python: str
    system: str
    load_before: float
    load_after: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    began: str
    """UTC, ISO 8601."""
    took_s: float
    target: str
    """``own processes``, or the host and port of a server that was there already."""
    size: str
    machine: Machine
    scenes: list[Scene]

    def figure(self, scene: str, name: str) -> Figure | None:
        """A figure, or None where it was not measured."""
        found = (one for one in self.scenes if one.name == scene)
        return next((one.figures.get(name) for one in found), None)


def read(data: bytes) -> Run:
    """A run from its JSON. Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(data, type=Run)


def write(run: Run) -> bytes:
    """A run as JSON, made to be read."""
    return msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n"
