"""The end of a process as an event: tasks wait for it, and callbacks are called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Drain(asyncio.Event):
    """Set when the process is about to end. Waits then answer and streams finish."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[object, Callable[[], None]] = {}

    def listen(self, ended: Callable[[], None]) -> Callable[[], None]:
        """Call ``ended``, which must not block, when the end comes. Returns the function that calls that off."""
        token = object()
        self._listeners[token] = ended
        return lambda: self._listeners.pop(token, None) and None

    def set(self) -> None:
        """Tell all tasks and callbacks that the process is about to end."""
        super().set()
        for ended in tuple(self._listeners.values()):
            ended()
