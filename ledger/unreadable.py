"""What is stored and cannot be read: damaged, or written by another version. Told by its kind, never by its content."""

from __future__ import annotations

import logging

from telemetry.metrics import UNREADABLE

log = logging.getLogger(__name__)


def tell_unreadable(kind: str, *, caller: str | None = None) -> None:
    """Count and log it. What becomes of it the reader decides: what loses nothing."""
    UNREADABLE.labels(kind).inc()
    log.warning("a stored value cannot be read", extra={"action": "unreadable", "kind": kind, "caller": caller})
