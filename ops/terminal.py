"""Text for people at a terminal: lengths of time, tables, colours, and lines that break between words."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

WIDTH = 120
"""Columns where there is no terminal to ask: what a log or a page shows."""


def span(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for size_s, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def many(count: int, thing: str) -> str:
    """A number of things: ``1 caller``, ``2 callers``, ``2 processes``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}{'es' if thing.endswith('s') else 's'}"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, indented by two, each column as wide as its widest cell. The first row holds the headers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def width() -> int:
    """The columns of the terminal; `WIDTH` where standard output is none."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def wrapped(text: str, *, indent: int, columns: int) -> str:
    """The text broken between words. Every line but the first is indented, so that a first column stays free."""
    return textwrap.fill(
        text,
        max(columns, indent + 30),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def in_colour() -> bool:
    """Whether standard output shows colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def coloured(text: str, colour: str, *, wanted: bool) -> str:
    """The text in a colour (an ECMA-48 SGR parameter such as ``31``), where ``wanted``."""
    return f"\x1b[{colour}m{text}\x1b[0m" if wanted else text
