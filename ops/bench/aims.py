"""What the product is meant to reach, and which figure of a run says whether it does."""

from __future__ import annotations

import msgspec

from ops.bench.figures import Figure, Run


class Aim(msgspec.Struct, frozen=True):
    """A bound on one figure. ``of``: which number of it counts."""

    what: str
    scene: str
    figure: str
    most: float | None = None
    least: float | None = None
    of: str = "value"
    """``value``, ``p99``, ``ratio`` to the yardstick, or ``growth``: to the same figure of ``since``, less one."""
    since: str = ""
    factor: float = 1.0
    """What the figure is multiplied by to be in the unit of the bound."""
    unit: str = ""

    def bound(self) -> str:
        """The bound, to be read."""
        return (
            f"≤ {shown(self.most)}{_unit(self.unit)}"
            if self.most is not None
            else (f"≥ {shown(self.least or 0)}{_unit(self.unit)}")
        )

    def reached(self, run: Run) -> float | None:
        """The number that counts, or None where the run did not measure it."""
        figure = run.figure(self.scene, self.figure)
        if figure is None:
            return None
        found = _number(figure, self.of)
        if self.of == "growth":
            earlier = run.figure(self.scene, self.since)
            found = None if earlier is None or not earlier.value else (figure.value / earlier.value - 1) * 100
        return None if found is None else found * self.factor

    def spread(self, run: Run) -> str:
        """How far the figure scattered, to be read."""
        figure = run.figure(self.scene, self.figure)
        if figure is None:
            return ""
        if figure.percentiles is not None:
            found = figure.percentiles
            return f"p50 {shown(found.p50)}, p90 {shown(found.p90)}, p99 {shown(found.p99)}, most {shown(found.worst)}"
        if figure.low is None or figure.high is None:
            return ""
        return f"{shown(figure.low * self.factor)} – {shown(figure.high * self.factor)} in {figure.rounds} rounds"

    def holds(self, found: float) -> bool:
        """Whether a number is within the bound."""
        return (self.most is None or found <= self.most) and (self.least is None or found >= self.least)


def _number(figure: Figure, of: str) -> float | None:
    if of == "p99":
        return None if figure.percentiles is None else figure.percentiles.p99
    return figure.ratio if of == "ratio" else figure.value


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def shown(value: float) -> str:
    """A number with about three digits that say something."""
    if value != value or value in (float("inf"), float("-inf")):
        return "–"
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


N = "10,000"

AIMS = (
    Aim("waits held at the end of the growth", "hold", f"held at the end of {N} (as the front counts)", least=10_000),
    Aim("waits cut or refused while growing", "hold", "waits lost while growing", most=0),
    Aim("60 s waits that ran out and were renewed", "hold", "waits that ran out and were renewed", least=10_000),
    Aim("of them cut or refused", "hold", "connections cut or calls refused", most=0),
    Aim("front memory per held wait", "hold", f"{N}: front memory per caller", most=22, unit="kB"),
    Aim("daemon memory per caller", "hold", f"{N}: daemon memory per caller", most=14, unit="kB"),
    Aim("Redis memory per idle caller", "hold", f"{N}: Redis data per caller", most=10, unit="kB"),
    Aim(
        "front CPU per wait established, caller known", "hold", f"{N}: front CPU per known caller", most=0.5, unit="ms"
    ),
    Aim("front CPU per wait established, caller new", "hold", f"{N}: front CPU per new caller", most=1.2, unit="ms"),
    Aim(
        "idle CPU with 10,000 held, all processes", "hold", f"{N}: idle CPU, all processes", most=3, unit="% of a core"
    ),
    Aim(
        "push to result, 1,000 waiting, without thread, p50",
        "wake",
        "push to result, one at a time, without thread",
        most=3,
        unit="ms",
    ),
    Aim("the same, p99", "wake", "push to result, one at a time, without thread", of="p99", most=8, unit="ms"),
    Aim(
        "1,000 get a message at once: last result",
        "wake",
        "all at once: from the first push to the last result",
        most=2,
        unit="s",
    ),
    Aim("the same: CPU per wake, all processes", "wake", "all at once: CPU per wake, all processes", most=1, unit="ms"),
    Aim("upstream sockets of a caller with 1 wait", "one caller", "1: upstream sockets of the caller", most=1),
    Aim("upstream sockets of a caller with 50 waits", "one caller", "50: upstream sockets of the caller", most=1),
    Aim("upstream requests per wake without thread", "wake", "upstream requests per wake, without thread", most=1),
    Aim("upstream requests per wake with thread", "wake", "upstream requests per wake, with thread", most=2),
    Aim("`whoami`, 16 connections", "tools", "whoami, 16 connections: calls per second", least=1_200, unit="/s"),
    Aim("the same, p99", "tools", "whoami, 16 connections: time", of="p99", most=50, unit="ms"),
    Aim(
        "`list_messages` (20), 16 connections",
        "tools",
        "list_messages, 16 connections: calls per second",
        least=2_000,
        unit="/s",
    ),
    Aim("the same, p99", "tools", "list_messages, 16 connections: time", of="p99", most=50, unit="ms"),
    Aim(
        "`list_messages`, calls per second over the bare handler's with the same upstream request",
        "tools",
        "list_messages, 16 connections: calls per second",
        of="ratio",
        least=0.2,
    ),
    Aim(
        "`get_thread` (20), 16 connections",
        "tools",
        "get_thread, 16 connections: calls per second",
        least=1_000,
        unit="/s",
    ),
    Aim(
        "`send_message` (1 kB, idempotency key), 16 connections",
        "tools",
        "send_message, 16 connections: calls per second",
        least=500,
        unit="/s",
    ),
    Aim(
        "the same: CPU per call, all processes",
        "tools",
        "send_message, 16 connections: CPU per call, all processes",
        most=2.5,
        unit="ms",
    ),
    Aim(
        "waits held at the same time on two cores", "crowd", "held at the same time, as the fronts count", least=40_000
    ),
    Aim("of them run out and renewed", "crowd", "callers whose wait ran out and was renewed", least=40_000),
    Aim("of them cut or refused", "crowd", "connections cut or calls refused", most=0),
    Aim(
        "front memory per wait, from 1,000 to 10,000",
        "hold",
        f"{N}: front memory per caller",
        of="growth",
        since="1,000: front memory per caller",
        most=20,
        unit="%",
    ),
    Aim(
        "daemon memory per caller, from 1,000 to 10,000",
        "hold",
        f"{N}: daemon memory per caller",
        of="growth",
        since="1,000: daemon memory per caller",
        most=20,
        unit="%",
    ),
    Aim(
        "front CPU per new caller, from 1,000 to 10,000",
        "hold",
        f"{N}: front CPU per new caller",
        of="growth",
        since="1,000: front CPU per new caller",
        most=20,
        unit="%",
    ),
    Aim("stdio: spawn to `tools/list` answered, median", "stdio", "spawn to tools/list answered", most=400, unit="ms"),
    Aim("stdio: spawn to the first `whoami`, median", "stdio", "spawn to whoami answered", most=500, unit="ms"),
    Aim("stdio: memory when idle", "stdio", "memory when idle", most=60, unit="MB"),
    Aim(
        "soak: front growth after the first two minutes", "soak", "front growth after the first fifth", most=5, unit="%"
    ),
    Aim(
        "soak: daemon growth after the first two minutes",
        "soak",
        "daemon growth after the first fifth",
        most=5,
        unit="%",
    ),
    Aim("soak: waits still held", "soak", "waits still held", most=0),
    Aim(
        "soak: front descriptors left over, beyond connections to Redis and to the host",
        "soak",
        "front descriptors more than before, neither to Redis nor to the host",
        most=0,
    ),
    Aim(
        "soak: daemon descriptors left over (the same)",
        "soak",
        "daemon descriptors more than before, neither to Redis nor to the host",
        most=0,
    ),
    Aim("soak: Redis keys that would stay for ever", "soak", "Redis keys without a TTL", most=0),
)
"""All of them, in the order of the page."""
