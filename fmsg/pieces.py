"""Long work on the event loop: one bounded step at a time, so that everybody else is served in between."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
"""One lock per event loop: of all that is worked on in pieces, one step is done per turn of the loop."""


async def in_pieces(work: Generator[None, None, T]) -> T:
    """What the generator returns. Every ``yield`` of it is a point where others are served.

    A step should take some milliseconds at most. A thread would be no better: one call into C keeps the interpreter's
    lock until it returns, so that only short calls let the loop run. Steps of several generators take turns.
    """
    loop = asyncio.get_running_loop()
    turn = _turns.setdefault(loop, asyncio.Lock())
    try:
        while True:
            async with turn:
                try:
                    next(work)
                except StopIteration as finished:
                    result: T = finished.value
                    return result
            await asyncio.sleep(0)
    finally:
        work.close()


def at_once(work: Generator[None, None, T]) -> T:
    """What the generator returns, without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            result: T = finished.value
            return result
