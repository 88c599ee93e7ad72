"""Steps whose outcome has to be known, whoever has stopped waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

_Outcome = TypeVar("_Outcome")


async def unbroken(work: Coroutine[Any, Any, _Outcome]) -> _Outcome:
    """The outcome of ``work``, which runs to its end even when the caller is cancelled; that is raised afterwards.

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
        raise cancelled
    return task.result()
