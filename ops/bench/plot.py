"""Line plots as SVG, readable on light and dark pages, without a library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 48
COLOURS = ("#3b82c4", "#d97706", "#4d9e5b", "#b4538f", "#7c6bc4")
"""Apart from each other also for those who see colours differently, and visible on white and on black."""

_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#555}"
    ".title{font-size:14px;font-weight:600}"
    ".grid{stroke:#8884;stroke-width:1}"
    "@media (prefers-color-scheme:dark){text{fill:#bbb}}"
)

Series = Mapping[str, Sequence[tuple[float, float]]]


def plot(title: str, series: Series, *, x: str, log_x: bool = False) -> str:
    """A plot of some series. The y axis begins at 0; ``x`` names the x axis."""
    points = [point for one in series.values() for point in one]
    low, high = min(at for at, _ in points), max(at for at, _ in points)
    top = _nice(max(value for _, value in points))

    def across(at: float) -> float:
        if high == low:
            share = 0.5
        elif log_x and low > 0:
            share = math.log(at / low) / math.log(high / low)
        else:
            share = (at - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
    ]
    for step in range(5):
        value = top * step / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{up(value) + 4:.1f}" text-anchor="end">{value:,.4g}</text>')
    marks = sorted({at for at, _ in points})
    if len(marks) > 6:
        marks = [low + (high - low) * step / 5 for step in range(6)]
    below = HEIGHT - BOTTOM + 18
    parts += [
        f'<text x="{across(at):.1f}" y="{below}" text-anchor="middle">{_mark(at, high - low)}</text>' for at in marks
    ]
    parts.append(f'<text x="{(WIDTH + LEFT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x)}</text>')
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(line) <= 12:
            parts += [f'<circle cx="{across(at):.1f}" cy="{up(v):.1f}" r="3" fill="{colour}"/>' for at, v in line]
        parts.append(
            f'<text x="{WIDTH - RIGHT}" y="{TOP + 4 + 15 * number}" text-anchor="end" style="fill:{colour}">'
            f"{escape(name)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def _nice(value: float) -> float:
    """A round number a little above."""
    if value <= 0:
        return 1.0
    step: float = 10.0 ** math.floor(math.log10(value))
    return next(step * factor for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * factor >= value)


def _mark(at: float, over: float) -> str:
    return f"{at:,.0f}" if over >= 20 or at == int(at) else f"{at:,.1f}"
