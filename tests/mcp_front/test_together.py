"""Several requests as one step."""

from __future__ import annotations

import asyncio

import pytest

from mcp_front.together import together


async def test_answers_come_in_order_and_only_some_run_at_once() -> None:
    running, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number * 2

    assert await together(ask, range(20), at_once=3) == [number * 2 for number in range(20)]
    assert most == 3


async def test_the_first_failure_is_raised_bare_and_ends_the_rest() -> None:
    ended: list[int] = []

    async def ask(number: int) -> int:
        if number == 1:
            raise LookupError("one")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)
        return number

    with pytest.raises(LookupError, match="one"):
        await together(ask, [0, 1, 2], at_once=3)
    assert sorted(ended) == [0, 2]


async def test_nothing_to_ask() -> None:
    async def ask(number: int) -> int:
        raise AssertionError(number)

    assert await together(ask, []) == []
