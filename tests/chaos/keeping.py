"""A cluster for all tests of a module: entered and left by one task, as its task group demands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def kept_by_a_task(resource: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """The resource, held open by a task of its own: this may be entered in one task and left in another."""
    entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        try:
            async with resource as found:
                entered.set_result(found)
                await over.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    holder = asyncio.create_task(hold())  # awaited below
    try:
        yield await entered
    finally:
        over.set()
        await holder
