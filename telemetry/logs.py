"""Logs of every process: one line an event, JSON or for people, scrubbed of credentials whoever wrote it.

The parts log through the standard library with ``extra={"action": "…", …}``; this module decides what becomes of it.
Scrubbing is the last step before a line is rendered and works on every value of it, tracebacks included, so that no
logger, library or level goes around it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from fmsg.redact import scrub, suspicious

_encode = msgspec.json.Encoder(enc_hook=str).encode

LogFormat = Literal["human", "json"]

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}
"""Attributes every log record has; whatever else is on one came in through ``extra``."""

_NUMBERS = frozenset((int, float, bool, type(None)))
"""Types of which no value can hold a credential."""

_QUIET: tuple[str, ...] = ("asyncio", "aiohttp.access", "uvicorn.access", "uvicorn.error", "mcp", "arq.worker")
"""Libraries that tell at INFO what our own lines tell better; their warnings stay."""


def configure(*, log_format: LogFormat, level: str, role: str, stream: TextIO | None = None) -> None:
    """Send all logs of the process to ``stream`` (standard error), scrubbed. ``level`` is a standard level name."""
    renderer: Processor
    if log_format == "json":
        renderer = _as_json
    else:
        target = stream or sys.stderr
        renderer = structlog.dev.ConsoleRenderer(
            colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _take_extra,
        ],
        processors=[
            _drop_internals,
            *([structlog.processors.format_exc_info] if log_format == "json" else [_exception_text]),
            _with_role(role),
            scrub_event,
            renderer,
        ],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    _route(("uvicorn", "uvicorn.error", "uvicorn.access", "arq"))
    logging.captureWarnings(True)


def _route(names: Iterable[str]) -> None:
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def _take_extra(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event.setdefault("logger", record.name)
        for key, value in record.__dict__.items():
            if key not in _STANDARD and not key.startswith("_"):
                event.setdefault(key, value)
        event.setdefault("action", record.name.rpartition(".")[2])
    return event


def _drop_internals(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    event.pop("color_message", None)
    return event


def _exception_text(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """People get the traceback as text of the line, so that it is scrubbed like the rest."""
    return structlog.processors.format_exc_info(logger, method, event)


def _with_role(role: str) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("role", role)
        return event

    return add


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    try:
        return _encode(event).decode()
    except (TypeError, ValueError, OverflowError):
        # What the quick encoder does not take: half a surrogate pair, a number without end.
        return json.dumps(event, ensure_ascii=True, default=str)


def scrub_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace whatever looks like a credential in any value of the line, at any depth.

    Most lines are short texts and numbers: whether there is anything to replace is asked of all of them at once.
    """
    texts = [value for value in event.values() if type(value) is str]
    flat = len(texts) + sum(type(value) in _NUMBERS for value in event.values()) == len(event)
    if flat and not suspicious("\n".join(texts)):
        return event
    return {key: _scrub_value(value) for key, value in event.items()}


def _scrub_value(value: object) -> object:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, dict):
        return {str(key): _scrub_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_scrub_value(item) for item in value]
    return scrub(str(value))
