"""Work that is not cut off, and a cancellation that is not lost over it."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from mcp_front.shield import shielded


async def test_gives_the_outcome_and_the_failure() -> None:
    async def seven() -> int:
        return 7

    async def broken() -> int:
        raise LookupError

    assert await shielded(seven()) == 7
    with pytest.raises(LookupError):
        await shielded(broken())


@pytest.mark.parametrize("fails", [False, True])
async def test_work_goes_on_through_any_number_of_cancellations(fails: bool) -> None:
    begun, end, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await end.wait()
        done.set()
        if fails:
            raise LookupError

    waiter = asyncio.create_task(shielded(work()))
    await begun.wait()
    for _ in range(3):
        waiter.cancel()
        await asyncio.sleep(0)
    assert not waiter.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert done.is_set()


async def test_a_cancelled_anyio_scope_waits_for_the_work_too() -> None:
    end = asyncio.Event()
    done = False

    async def work() -> None:
        nonlocal done
        await end.wait()
        done = True

    with anyio.CancelScope() as scope:
        scope.cancel()
        asyncio.get_running_loop().call_later(0.01, end.set)
        await shielded(work())
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert done


async def test_work_that_is_cancelled_itself_is_told_as_that() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await shielded(work())
