"""Steps that run to their end although their caller is cancelled, because their outcome has to be known."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

_Outcome = TypeVar("_Outcome")


async def shielded(work: Coroutine[Any, Any, _Outcome]) -> _Outcome:
    """Return the outcome of ``work``, which runs to its end. A cancellation meanwhile is raised afterwards.

    ``work`` must have deadlines of its own: nothing else ends it.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        try:
            raise cancelled
        finally:
            del cancelled
    try:
        return task.result()
    finally:
        del task  # Else its exception would refer to this frame and the frame to it, with all that was sent in between.
