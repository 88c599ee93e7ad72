"""Several requests of one step at the same time: all of their answers, or the first failure as itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

AT_ONCE = 6
"""Requests that one tool call has in flight: what browsers allow themselves towards one host."""

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


async def gather_bounded(
    ask: Callable[[_Item], Awaitable[_Answer]], items: Sequence[_Item], *, at_once: int = AT_ONCE
) -> list[_Answer]:
    """``ask`` of each item; the answers come in the items' order. The first failure cancels the rest and is raised."""
    if len(items) == 1:
        return [await ask(items[0])]
    places = asyncio.Semaphore(at_once)

    async def run(item: _Item) -> _Answer:
        async with places:
            return await ask(item)

    try:
        return await _all(run, items)
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0]
        failures.__traceback__ = None
    # An exception refers to the frames it came through, and some of those to it or to the group that holds it. What was
    # sent would stay until the next full garbage collection: so the group loses its frames, and this frame its name.
    try:
        raise failure
    finally:
        del failure


async def _all(run: Callable[[_Item], Coroutine[Any, Any, _Answer]], items: Sequence[_Item]) -> list[_Answer]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(item)) for item in items]
    return [task.result() for task in tasks]


async def gather_with(work: Awaitable[object], other: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run both at the same time and return what ``other`` does.

    ``other`` is cancelled where the work fails or is cancelled.
    """
    task = asyncio.get_running_loop().create_task(other)  # ended below
    try:
        await work
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # where both failed, the work's failure is raised; the loop must not complain of this one
        del task  # An exception refers to this frame: it must not refer to the exception, too.
