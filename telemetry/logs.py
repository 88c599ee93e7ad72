"""Logs of every process: one line an event, JSON or for people, scrubbed of credentials.

The parts log through the standard library with ``extra={"action": "…", …}``. This module decides what becomes of it.
Scrubbing is the last step before a line is rendered and works on every value of it, tracebacks included, so that no
logger, library or level goes around it. What only JSON needs is imported for JSON only: a stdio process starts quickly.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, TextIO

LogFormat = Literal["human", "json"]

SELDOM = {"seldom": True}
"""Into ``extra`` of what would repeat all through an outage: at most one line a minute of each action, with a count."""

SELDOM_S = 60.0
"""Often enough to see in a log that an outage goes on, and never what fills it."""

MAX_VALUE_CHARS = 16 * 1024
"""A longer text in a line helps nobody; a traceback with its causes is shorter."""

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}
"""Attributes every log record has. What else is on one came in through ``extra``."""

_NUMBERS = frozenset((int, float, bool, type(None)))
"""Types of which no value can hold a credential."""

_QUIET = ("asyncio", "aiohttp.access", "uvicorn.access", "uvicorn.error", "mcp", "arq.worker")
"""Libraries that tell at INFO what our own lines tell better. Their warnings stay."""

_ROUTED = ("uvicorn", "uvicorn.error", "uvicorn.access", "arq")
"""Libraries that would write lines of their own."""


def configure(*, log_format: LogFormat, level: str, role: str, stream: TextIO | None = None) -> None:
    """Send all logs and warnings of the process to ``stream`` (standard error). ``level`` is a standard level name."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(_json_line if log_format == "json" else _human_line, role=role))
    handler.addFilter(SeldomFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    for name in _ROUTED:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.captureWarnings(True)


class SeldomFilter:
    """Lets a line with `SELDOM` through once a minute per action. The next one says how many were left out."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if not record.__dict__.pop("seldom", False):
            return True
        kind, now_s = (record.name, str(record.__dict__.get("action"))), self._clock()
        written_s, left_out = self._last.get(kind, (-SELDOM_S, 0))
        if now_s - written_s < SELDOM_S:
            self._last[kind] = written_s, left_out + 1
            return False
        self._last[kind] = now_s, 0
        if left_out:
            record.left_out = left_out
        return True


class LineFormatter(logging.Formatter):
    """Renders a record with its action and what came with it; credentials are replaced wherever they are."""

    def __init__(self, render: Callable[[dict[str, Any]], str], *, role: str) -> None:
        super().__init__()
        self.converter = time.gmtime
        self._render = render
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        event: dict[str, Any] = {
            "timestamp": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "logger": record.name,
            "action": record.name.rpartition(".")[2],
            "event": record.getMessage(),
        }
        event |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[0] is not None:
            event["exception"] = self.formatException(record.exc_info)
        return self._render(_scrubbed(event))


def _json_line(event: dict[str, Any]) -> str:
    import json

    import msgspec

    try:
        return msgspec.json.encode(event, enc_hook=str).decode()
    except (TypeError, ValueError, OverflowError):
        # What the quick encoder does not take: half a surrogate pair, a number without end.
        return json.dumps(event, ensure_ascii=True, default=str)


def _human_line(event: dict[str, Any]) -> str:
    first = "{timestamp} {level:<7} {logger} {action}: {event}".format_map(event)
    shown = ("timestamp", "level", "role", "logger", "action", "event", "exception")
    rest = "".join(f" {name}={value}" for name, value in sorted(event.items()) if name not in shown)
    traceback = f"\n{event['exception']}" if "exception" in event else ""
    return first + rest + traceback


def _scrubbed(event: dict[str, Any]) -> dict[str, Any]:
    """The line without credentials, at any depth.

    Most lines are short texts and numbers: whether there is anything to replace is asked of all of them at once.
    """
    from fmsg.redact import suspicious

    texts = [value for value in event.values() if type(value) is str]
    flat = len(texts) + sum(type(value) in _NUMBERS for value in event.values()) == len(event)
    if flat and max(map(len, texts)) <= MAX_VALUE_CHARS and not suspicious("\n".join(texts)):
        return event
    return {name: _scrub_value(value) for name, value in event.items()}


def _scrub_value(value: object) -> object:
    from fmsg.redact import scrub_beginning

    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, dict):
        return {str(key): _scrub_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_scrub_value(item) for item in value]
    return scrub_beginning(value if isinstance(value, str) else str(value), MAX_VALUE_CHARS)
