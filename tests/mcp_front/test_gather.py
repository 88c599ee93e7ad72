"""Several requests as one step."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mcp_front.gather import gather_bounded, gather_with


async def test_answers_come_in_order_and_only_some_run_at_once() -> None:
    running, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number * 2

    assert await gather_bounded(ask, range(20), at_once=3) == [number * 2 for number in range(20)]
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
        await gather_bounded(ask, [0, 1, 2], at_once=3)
    assert sorted(ended) == [0, 2]


async def test_nothing_to_ask() -> None:
    async def ask(number: int) -> int:
        raise AssertionError(number)

    assert await gather_bounded(ask, []) == []


async def test_two_things_side_by_side_take_no_longer_than_the_longer() -> None:
    """The one needs the other to get on: one after the other they would never end."""
    met = asyncio.Event()

    async def other() -> int:
        met.set()
        return 7

    assert await gather_with(met.wait(), other()) == 7


async def endless(ended: asyncio.Event) -> int:
    """Ends only when it is cancelled, and says so."""
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()
    return 7


async def test_where_both_fail_one_failure_is_raised_and_nobody_complains_of_the_other() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    failed = asyncio.Event()

    async def other() -> int:
        failed.set()
        raise LookupError("the other")

    async def work() -> None:
        await failed.wait()
        await asyncio.sleep(0)
        raise LookupError("the work")

    with pytest.raises(LookupError, match="the work"):
        await gather_with(work(), other())
    gc.collect()
    assert complaints == []


async def test_where_the_work_fails_what_went_on_beside_it_is_ended() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await gather_with(work(), endless(ended))
    assert ended.is_set()


async def test_where_the_whole_is_cancelled_both_are() -> None:
    ended = asyncio.Event()
    whole = asyncio.create_task(gather_with(asyncio.Event().wait(), endless(ended)))
    await asyncio.sleep(0.01)
    whole.cancel()
    await asyncio.wait([whole])
    assert whole.cancelled()
    assert ended.is_set()
