"""A limit on how long a test waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(awaited: Awaitable[T], seconds: float) -> T:
    """The result, or `TimeoutError` after ``seconds``.

    `asyncio.wait_for` of Python 3.11 forgets a cancellation that comes at the moment of the result.
    """
    async with asyncio.timeout(seconds):
        return await awaited
