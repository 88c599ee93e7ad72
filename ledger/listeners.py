"""Who wants to hear of what: the local half of every doorbell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")

log = logging.getLogger(__name__)

SLICE = 500
"""Listeners rung in one go after a reconnect. A wake-up costs some microseconds; more than this many at once would hold
the event loop longer than anybody should notice."""


class Listeners(Generic[K]):
    """Functions to call by key. Ringing one key costs nothing for the others, however many there are."""

    def __init__(self) -> None:
        self._by_key: dict[K, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return sum(len(wakes) for wakes in self._by_key.values())

    def add(self, key: K, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when ``key`` rings; returns the function that ends it (calling that again is harmless)."""
        self._by_key.setdefault(key, []).append(wake)
        ended = False

        def end() -> None:
            nonlocal ended
            if ended:
                return
            ended = True
            wakes = self._by_key[key]
            wakes.remove(wake)
            if not wakes:
                del self._by_key[key]

        return end

    def ring(self, key: K) -> None:
        """Wake everybody who listens to the key."""
        for wake in tuple(self._by_key.get(key, ())):
            _call(wake)

    async def ring_all(self) -> None:
        """Wake everybody, letting other tasks run in between."""
        for count, wake in enumerate(self._everybody(), 1):
            _call(wake)
            if count % SLICE == 0:
                await asyncio.sleep(0)

    def _everybody(self) -> Iterator[Callable[[], None]]:
        yield from [wake for wakes in self._by_key.values() for wake in wakes]


def _call(wake: Callable[[], None]) -> None:
    try:
        wake()
    except Exception:
        # One listener's fault must not keep the others asleep.
        log.exception("a listener of the doorbell failed", extra={"action": "doorbell_listener_failed"})
