"""Ctrl-C, at the moments at which it used to be lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
import uvloop

from ops.interrupt import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals there are others")

LOOPS = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def go_on(steps: int) -> None:
    for _ in range(steps):
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(60.0)
        except TimeoutError:
            await asyncio.sleep(0)


@LOOPS
def test_an_interruption_in_the_middle_of_a_step_is_no_timeout(loop_factory: type) -> None:
    """redis-py looks with a timeout of nothing whether a connection is still good, and would go on."""

    async def main() -> None:
        interrupt()
        await go_on(100_000)
        raise AssertionError("it went on")

    with pytest.raises(KeyboardInterrupt):
        run(main(), loop_factory=loop_factory)


@LOOPS
def test_what_is_to_be_cleaned_up_is_cleaned_up(loop_factory: type) -> None:
    cleaned = False

    async def main() -> None:
        nonlocal cleaned
        try:
            interrupt()
            await asyncio.sleep(60.0)
        finally:
            await asyncio.sleep(0.01)
            cleaned = True

    with pytest.raises(KeyboardInterrupt):
        run(main(), loop_factory=loop_factory)
    assert cleaned


@LOOPS
def test_who_does_not_hear_it_is_ended_all_the_same(loop_factory: type) -> None:
    deaf = 0

    async def main() -> None:
        nonlocal deaf
        interrupt()
        while deaf < 2:
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                deaf += 1

    with pytest.raises(KeyboardInterrupt):
        run(main(), grace_s=0.05, loop_factory=loop_factory)
    assert deaf == 2


@LOOPS
def test_a_second_one_waits_for_nothing(loop_factory: type) -> None:
    steps: list[str] = []

    async def main() -> None:
        try:
            interrupt()
            await asyncio.sleep(60.0)
        finally:
            interrupt()
            await asyncio.sleep(60.0)
            steps.append("slept on")

    with pytest.raises(KeyboardInterrupt):
        run(main(), grace_s=60.0, loop_factory=loop_factory)
    assert steps == []


def test_without_one_it_is_asyncio_run() -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 7

    assert run(main()) == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_somebody_elses_cancellation_stays_one() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60.0)

    with pytest.raises(asyncio.CancelledError):
        run(main())
