"""An event loop whose time is a number: nothing sleeps, and what is due happens in order and at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

BEGAN_S = 1_700_000_000.0
"""The wall clock when a loop begins."""


class Stuck(Exception):
    """Nothing is ready and nothing is due: somebody waits for what will never happen."""


class Spinning(Exception):
    """Time does not move on: somebody who should sleep is woken again and again by what is due already."""


MOST_AT_ONE_TIME = 100_000
"""Turns of the loop at one moment. What any test does at once takes some hundreds."""


class _Selector(selectors.SelectSelector):
    """Instead of waiting, moves the loop's time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nothing is ready and nothing is due")
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > MOST_AT_ONE_TIME:
            raise Spinning(f"{self._turns} turns at {self.now_s:.6f} s")
        self.now_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual.now_s


def wall_s() -> float:
    """The wall clock of the running loop."""
    return BEGAN_S + asyncio.get_running_loop().time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time; fails where a task is left behind."""

    async def whole() -> T:
        result = await main
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left behind: {left}"
        return result

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(whole())
