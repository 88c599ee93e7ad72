"""A dashboard as one SVG, laid out as Grafana does, readable on light and dark pages, without a library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import msgspec

from tests.fleet.panels import Line, Place, Shown

COLUMN, ROW, GAP = 50, 28, 8
"""Pixels of a column and of a row of Grafana's grid, and between two panels."""
MARGIN, HEAD = 16, 44
LEFT, TOP, AXIS = 54, 42, 18
"""Of a panel: for the numbers at the left, the title, the times below."""
LEGEND_LINE, LEGEND_LINES = 14, 5
LETTER = 6.6
"""About as wide is a letter of a legend."""
STEPS = 4
MOST = 9
"""Lines of a panel with a colour and a name of their own; there is a rest, if there are more."""

COLOURS = (
    *("#3b82c4", "#d97706", "#4d9e5b", "#b4538f", "#7c6bc4", "#c0504d", "#2a9d96", "#a98a2f", "#6f7f94"),
    "#999999",
)
NAMED = {"green": "#3f8f50", "red": "#c0443f", "orange": "#c96f06", "blue": "#3573b1"}

_STYLE = (
    "text{font:11px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#555}"
    ".page{fill:#f3f4f6}.panel{fill:#fff;stroke:#dcdfe4}"
    ".grid{stroke:#8883;stroke-width:1}.mark{stroke:#8889;stroke-dasharray:2 3}.fault{font-size:10px;fill:#888}"
    ".alert{stroke:#d33;stroke-dasharray:4 3}.limit{stroke:#d33;stroke-opacity:.6}"
    ".title{font-size:12.5px;font-weight:600;fill:#222}.head{font-size:20px;font-weight:600;fill:#222}"
    ".row{font-size:14px;font-weight:600;fill:#222}"
    ".stat{fill:#fff;font-size:12px}.big{fill:#fff;font-size:34px;font-weight:600}.spark{fill:#fff;fill-opacity:.2}"
    ".e{text-anchor:end}.m{text-anchor:middle}.line{fill:none;stroke-width:3;stroke-linejoin:round}"
    "@media (prefers-color-scheme:dark){text{fill:#aaa}.page{fill:#0f1115}.panel{fill:#181b20;stroke:#2b2f36}"
    ".title,.head,.row{fill:#e4e6ea}.stat,.big{fill:#fff}}"
)


class Mark(msgspec.Struct, frozen=True):
    """Something that happened, at so many seconds of the run. An alert is drawn in red and has no letter."""

    at_s: float
    text: str
    letter: str = ""


class Span(msgspec.Struct, frozen=True):
    """The time that is shown, in POSIX seconds, and the step between two samples."""

    start_s: float
    end_s: float
    step_s: float

    def share(self, at_s: float) -> float:
        """Where a time is, from 0 to 1."""
        return (at_s - self.start_s) / (self.end_s - self.start_s)


def draw(shown: Sequence[Shown], span: Span, *, title: str, notes: Sequence[str], marks: Sequence[Mark]) -> str:
    """The dashboard; ``notes`` and what the marks mean stand above it."""
    words = [*notes, *(f"{mark.letter or 'Alert'}, {_clock(mark.at_s)}: {mark.text}" for mark in marks)]
    top = MARGIN + HEAD + 17 * math.ceil(len(words) / 2)
    width = 24 * COLUMN + 2 * MARGIN - GAP
    height = top + ROW * max(one.panel.place.y + one.panel.place.h for one in shown) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="head" x="{MARGIN}" y="{MARGIN + 20}">{escape(title)}</text>',
    ]
    half = math.ceil(len(words) / 2)
    for number, text in enumerate(words):
        x, y = MARGIN + (width // 2) * (number // half), MARGIN + HEAD + 17 * (number % half)
        parts.append(f'<text style="font-size:12px" x="{x}" y="{y}">{escape(text)}</text>')
    for one in shown:
        place = one.panel.place
        parts.append(f'<g transform="translate({MARGIN + place.x * COLUMN} {top + place.y * ROW})">')
        parts += {"row": _row, "stat": _stat}.get(one.panel.kind, _graph)(one, span, marks)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _box(place: Place) -> tuple[int, int]:
    return place.w * COLUMN - GAP, place.h * ROW - GAP


def _row(one: Shown, _span: Span, _marks: Sequence[Mark]) -> Iterator[str]:
    yield f'<text class="row" y="{ROW - GAP - 3}">{escape(one.panel.title)}</text>'


def _stat(one: Shown, span: Span, _marks: Sequence[Mark]) -> Iterator[str]:
    width, height = _box(one.panel.place)
    value = one.lines[0].samples[-1][1] if one.lines else math.nan
    colour = next((name for least, name in reversed(one.panel.steps) if value >= least), "blue")
    yield f'<rect width="{width}" height="{height}" rx="3" fill="{NAMED[colour]}"/>'
    if one.lines:
        most = max(value for _, value in one.lines[0].samples) or 1.0
        tops = [height - at / most * height * 0.4 for at in _sampled(one.lines[0], span)]
        yield f'<path class="spark" transform="scale(.5)" d="{_area(tops, [height] * len(tops), 0, width)}"/>'
    for number, words in enumerate(_wrapped(one.panel.title, int(width / 6.6))):
        yield f'<text class="stat" x="8" y="{18 + 15 * number}">{escape(words)}</text>'
    shown = value if one.panel.decimals is None or math.isnan(value) else round(value, one.panel.decimals)
    said = "no data" if math.isnan(value) else amount(shown, one.panel.unit)
    size = min(34, int(1.6 * width / len(said)))
    yield f'<text class="big m" style="font-size:{size}px" x="{width / 2:g}" y="{height - 16}">{escape(said)}</text>'


def _graph(one: Shown, span: Span, marks: Sequence[Mark]) -> Iterator[str]:
    width, height = _box(one.panel.place)
    yield f'<rect class="panel" width="{width}" height="{height}" rx="3"/>'
    yield f'<text class="title" x="10" y="20">{escape(one.panel.title)}</text>'
    lines = _gathered(one.lines, span, stacked=one.panel.stacked)
    legend = _legend([name for name, _ in lines], width - 20)
    right, bottom = width - 12, height - AXIS - 8 - LEGEND_LINE * max(1, legend[-1][1] + 1 if legend else 0)
    below = [[0.0] * len(values) for _, values in lines]
    if one.panel.stacked:
        for number in range(1, len(lines)):
            below[number] = [
                low + value for low, value in zip(below[number - 1], _solid(lines[number - 1][1]), strict=True)
            ]
    tops = [
        [value + low for value, low in zip(values, lows, strict=True)]
        for (_, values), lows in zip(lines, below, strict=True)
    ]
    most = max((value for values in tops for value in values if not math.isnan(value)), default=0.0)
    top = _round(most, one.panel.unit)
    for step in range(STEPS + 1):
        y = bottom - (bottom - TOP) * step / STEPS
        yield f'<path class="grid" d="M{LEFT} {y:g}H{right}"/>'
        said = escape(amount(top * step / STEPS, one.panel.unit))
        yield f'<text class="e" x="{LEFT - 6}" y="{y + 4:g}">{said}</text>'
    for minute in range(int((span.end_s - span.start_s) // 60) + 1):
        x = LEFT + (right - LEFT) * 60 * minute / (span.end_s - span.start_s)
        anchor = "e" if x > right - 12 else "m"
        yield f'<text class="{anchor}" x="{x:.0f}" y="{bottom + 15}">{minute}:00</text>'
    for mark in marks:
        x = LEFT + (right - LEFT) * mark.at_s / (span.end_s - span.start_s)
        yield f'<path class="{"mark" if mark.letter else "alert"}" d="M{x:.0f} {TOP}V{bottom}"/>'
        yield f'<text class="fault m" x="{x:.0f}" y="{TOP - 4}">{mark.letter}</text>'

    def up(value: float) -> float:
        return bottom - value / top * (bottom - TOP)

    if one.panel.marked:
        for least, _ in one.panel.steps:
            if 0 < least <= top:
                yield f'<path class="limit" d="M{LEFT} {up(least):.1f}H{right}"/>'
    yield '<g transform="scale(.5)">'
    for number, (values, lows) in enumerate(zip(tops, below, strict=True)):
        colour = COLOURS[number]
        if one.panel.stacked or one.panel.fill:
            area = _area([up(value) for value in _solid(values, lows)], [up(low) for low in lows], LEFT, right)
            yield f'<path fill="{colour}" fill-opacity="{0.4 if one.panel.stacked else 0.1}" d="{area}"/>'
        yield f'<path class="line" stroke="{colour}" d="{_path([up(value) for value in values], LEFT, right)}"/>'
    yield "</g>"
    if not lines:
        yield f'<text class="m" x="{(LEFT + right) / 2:g}" y="{(TOP + bottom) / 2:g}">no data</text>'
    for number, (x, line) in enumerate(legend):
        y = height - 9 - LEGEND_LINE * (legend[-1][1] - line)
        yield f'<rect x="{10 + x:.0f}" y="{y - 7}" width="9" height="5" fill="{COLOURS[number]}"/>'
        yield f'<text x="{23 + x:.0f}" y="{y}">{escape(lines[number][0])}</text>'


def _sampled(line: Line, span: Span) -> list[float]:
    """A value per step, NaN where there is none."""
    known = {round((at_s - span.start_s) / span.step_s): value for at_s, value in line.samples}
    return [known.get(step, math.nan) for step in range(round((span.end_s - span.start_s) / span.step_s) + 1)]


def _gathered(lines: Sequence[Line], span: Span, *, stacked: bool) -> list[tuple[str, list[float]]]:
    """What is drawn: no more than there are colours. Of a stack those that are nothing are left out."""
    if stacked:
        lines = [line for line in lines if any(value for _, value in line.samples)] or list(lines[:1])
    found = [(line.name, _sampled(line, span)) for line in lines]
    if len(found) <= MOST + 1:
        return found
    rest = found[MOST:]
    together = [
        math.fsum(column) if stacked else max(column) for column in zip(*(_solid(v) for _, v in rest), strict=True)
    ]
    return [*found[:MOST], (f"{len(rest)} more", together)]


def _solid(values: Sequence[float], instead: Sequence[float] | None = None) -> list[float]:
    """Values without holes."""
    return [(instead[n] if instead else 0.0) if math.isnan(value) else value for n, value in enumerate(values)]


def _legend(names: Sequence[str], width: float) -> list[tuple[float, int]]:
    """Where each name stands: x, and the line from the top."""
    places: list[tuple[float, int]] = []
    x, line = 0.0, 0
    for name in names:
        wide = 13 + LETTER * len(name) + 12
        if x and x + wide > width + 12:
            x, line = 0.0, line + 1
        if line == LEGEND_LINES:
            break
        places.append((x, line))
        x += wide
    return places


def _path(tops: Sequence[float], left: int, right: int) -> str:
    """A line in half pixels, in short steps; it is broken where a value is not a number."""
    parts: list[str] = []
    at: tuple[int, int] | None = None
    for number, top in enumerate(tops):
        if math.isnan(top):
            at = None
            continue
        x, y = _point(number, top, len(tops), left, right)
        parts.append(f"M{x} {y}" if at is None else f"l{x - at[0]} {y - at[1]}".replace(" -", "-"))
        at = x, y
    return "".join(parts)


def _area(tops: Sequence[float], bottoms: Sequence[float], left: int, right: int) -> str:
    """The area between two lines, in half pixels."""
    count = len(tops)
    points = [_point(number, top, count, left, right) for number, top in enumerate(_solid(tops, bottoms))]
    flat = len(set(bottoms)) == 1
    steps = (count - 1, 0) if flat else range(count - 1, -1, -1)
    points += [_point(number, bottoms[number], count, left, right) for number in steps]
    first, *others = points
    moves, at = [f"M{first[0]} {first[1]}"], first
    for point in others:
        moves.append(f"l{point[0] - at[0]} {point[1] - at[1]}".replace(" -", "-"))
        at = point
    return "".join([*moves, "z"])


def _point(number: int, top: float, count: int, left: int, right: int) -> tuple[int, int]:
    return round(2 * (left + (right - left) * number / max(1, count - 1))), round(2 * top)


def _wrapped(text: str, letters: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > letters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"


def _round(most: float, unit: str) -> float:
    """The top of an axis: a round number of the unit that is written, not below ``most``."""
    if most <= 0:
        return 1.0
    scale = _scaled(most, unit)[0]
    part = most / scale
    step = 10.0 ** math.floor(math.log10(part))
    return scale * next(
        step * factor for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10, 12) if step * factor >= part
    )


def _scaled(value: float, unit: str) -> tuple[float, str]:
    """What one of the unit is that a value is written in, and its name."""
    steps: dict[str, tuple[tuple[float, str], ...]] = {
        "s": ((60.0, " min"), (1.0, " s"), (1e-3, " ms")),
        "bytes": ((2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B")),
        "percentunit": ((0.01, " %"),),
        "ops": ((1000.0, " k/s"), (1.0, "/s")),
    }
    known = steps.get(unit, ((1000.0, " k"), (1.0, "")))
    return next(((one, name) for one, name in known if abs(value) >= one), known[-1])


def amount(value: float, unit: str) -> str:
    """A value in one of Grafana's units."""
    scale, name = _scaled(value, unit)
    if not value:
        return "0"
    return f"{value / scale:.3g}{name}"
