"""The end of a process as an event that more than tasks can hear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Drain(asyncio.Event):
    """Set when the process is about to end: waits answer, streams finish."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[object, Callable[[], None]] = {}

    def listen(self, ended: Callable[[], None]) -> Callable[[], None]:
        """Call ``ended`` (must not block) when the end comes; returns the function that calls that off."""
        token = object()
        self._listeners[token] = ended
        return lambda: self._listeners.pop(token, None) and None

    def set(self) -> None:
        """The end has come."""
        super().set()
        for ended in tuple(self._listeners.values()):
            ended()
