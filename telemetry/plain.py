"""Logs of a process that has to start quickly: for people, scrubbed like all others, without structlog."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "action",
    "details",
}
"""Attributes every record has or gets here; whatever else is on one came in through ``extra``."""


class ScrubbedFormatter(logging.Formatter):
    """A line with its action and what came with it, traceback included; credentials are replaced wherever they are."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        from fmsg.redact import scrub

        if "action" not in record.__dict__:
            record.action = record.name.rpartition(".")[2]
        extras = sorted((name, value) for name, value in record.__dict__.items() if name not in _STANDARD)
        record.details = "".join(f" {name}={value}" for name, value in extras)
        return scrub(super().format(record))


def configure(*, level: str, stream: TextIO | None = None) -> None:
    """Send all logs and warnings of the process to ``stream`` (standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    formatter = ScrubbedFormatter("%(asctime)s %(levelname)s %(name)s %(action)s: %(message)s%(details)s")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("mcp", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
