"""Logs of a process that has to start quickly: for people, scrubbed like all others, without structlog."""

from __future__ import annotations

import logging
import sys


class ScrubbedFormatter(logging.Formatter):
    """A line with its action, traceback included, in which credentials are replaced whatever they came in."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        from fmsg.redact import scrub

        if "action" not in record.__dict__:
            record.action = record.name.rpartition(".")[2]
        return scrub(super().format(record))


def configure(*, level: str) -> None:
    """Send all logs and warnings of the process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ScrubbedFormatter("%(asctime)s %(levelname)s %(name)s %(action)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("mcp", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
