"""Line plots as SVG, readable on light and dark pages."""

from __future__ import annotations

import io
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from ops.bench.report import Series

COLOURS = ("#3b82c4", "#d97706", "#4d9e5b", "#b4538f", "#7c6bc4")
"""Apart from each other also for people who see colours differently, and visible on white and on black."""

INK = "#808080"
"""Of texts and lines: readable on white and on black."""

FEW = 12
"""Up to so many points are marked, and are the ticks of the x axis."""

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fmsg-mcpd",
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
}
"""Texts stay texts, and the same figures give the same file."""


def plot(title: str, series: Series, *, x: str, log_x: bool = False) -> str:
    """A plot of some series. The y axis begins at 0; ``x`` names the x axis."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.subplots()
        for colour, (name, line) in zip(COLOURS * len(series), series.items(), strict=False):
            marker = "o" if len(line) <= FEW else None
            axes.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=4, label=name)
        axes.set_title(title, loc="left", fontsize="large", pad=12)
        axes.set_xlabel(x)
        axes.set_ylim(bottom=0.0, top=None if any(value > 0 for line in series.values() for _, value in line) else 1.0)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
        places = sorted({at for line in series.values() for at, _ in line})
        if log_x and places[0] > 0:
            axes.set_xscale("log")
        if len(places) <= FEW:
            axes.set_xticks(places)
            axes.xaxis.set_minor_locator(NullLocator())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        if len(series) > 1:
            # Beside the plot: inside of it a legend lies on lines.
            figure.legend(loc="outside lower center", ncols=min(len(series), 3), frameon=False)
        with io.StringIO() as text:
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Title": title})
            return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
