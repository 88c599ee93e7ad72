from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from mcp_front.timer_wheel import AT_ONCE, SLACK_S, TimerWheel
from tests.within import within


class Clock:
    """An event loop's time and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        handle = Handle(when, callback)
        self.timers.append(handle)
        return handle

    @property
    def armed(self) -> list[float]:
        return [timer.due_s for timer in self.timers if not timer.over]

    def advance(self, seconds: float) -> None:
        """Move time, running what falls due in order."""
        end = self.now + seconds
        while True:
            due = [timer for timer in self.timers if not timer.over and timer.due_s <= end]
            if not due:
                break
            timer = min(due, key=lambda timer: timer.due_s)
            self.now = max(self.now, timer.due_s)
            timer.over = True
            timer.callback()
        self.now = end


class Handle:
    """Knows no time, like uvloop's handle for what is overdue already."""

    def __init__(self, due_s: float, callback: Callable[[], None]) -> None:
        self.due_s = due_s
        self.callback = callback
        self.over = False

    def cancel(self) -> None:
        self.over = True


class Bell:
    def __init__(self, rung: list[str], name: str, act: Callable[[], None] | None = None) -> None:
        self.rung = rung
        self.name = name
        self.act = act

    def due(self) -> None:
        self.rung.append(self.name)
        if self.act is not None:
            self.act()


def wheel_and_clock() -> tuple[TimerWheel, Clock]:
    clock = Clock()
    return TimerWheel(now=clock.time, call_at=clock.call_at), clock


def test_entries_fall_due_after_their_delay_on_one_timer() -> None:
    wheel, clock = wheel_and_clock()
    rung: list[str] = []
    wheel.add(Bell(rung, "slow"), 15.0)
    wheel.add(Bell(rung, "quick"), 1.0)
    assert len(clock.armed) == 1
    clock.advance(0.9)
    assert rung == []
    clock.advance(0.2)
    assert rung == ["quick"]
    assert len(clock.armed) == 1
    clock.advance(14.0)
    assert rung == ["quick", "slow"]
    assert clock.armed == []
    assert len(wheel) == 0


def test_what_is_forgotten_does_not_fall_due() -> None:
    wheel, clock = wheel_and_clock()
    rung: list[str] = []
    bell = Bell(rung, "bell")
    wheel.add(bell, 1.0)
    wheel.forget(bell, 1.0)
    wheel.forget(bell, 1.0)
    wheel.forget(bell, 99.0)
    clock.advance(10.0)
    assert rung == []


def test_to_add_again_puts_off() -> None:
    wheel, clock = wheel_and_clock()
    rung: list[str] = []
    bell = Bell(rung, "bell")
    wheel.add(bell, 1.0)
    clock.advance(0.6)
    wheel.add(bell, 1.0)
    clock.advance(0.6)
    assert rung == []
    clock.advance(0.6)
    assert rung == ["bell"]


def test_an_entry_may_add_itself_again() -> None:
    wheel, clock = wheel_and_clock()
    rung: list[str] = []
    bell = Bell(rung, "ping")
    bell.act = lambda: wheel.add(bell, 15.0)
    wheel.add(bell, 1.0)
    clock.advance(1.0 + 15.0 * 3)
    assert rung == ["ping"] * 4


def test_what_falls_due_together_is_one_wake_up() -> None:
    wheel, clock = wheel_and_clock()
    rung: list[str] = []
    for number in range(10):
        wheel.add(Bell(rung, str(number)), 1.0)
        clock.advance(SLACK_S / 20)
    before = len(clock.timers)
    clock.advance(1.0)
    assert rung == [str(number) for number in range(10)]
    assert len(clock.timers) == before


def test_a_crowd_does_not_keep_the_loop_for_itself() -> None:
    wheel, clock = wheel_and_clock()
    rung: list[str] = []
    for _ in range(2 * AT_ONCE + 1):
        wheel.add(Bell(rung, "x"), 1.0)
    turns: list[int] = []
    timers = clock.call_at

    def counted(when: float, callback: Callable[[], None]) -> Any:
        turns.append(len(rung))
        return timers(when, callback)

    wheel._call_at = counted
    clock.advance(1.0)
    assert turns == [AT_ONCE, 2 * AT_ONCE]
    assert len(rung) == 2 * AT_ONCE + 1


def test_one_that_fails_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    wheel, clock = wheel_and_clock()
    rung: list[str] = []

    def fail() -> None:
        raise RuntimeError("broken")

    wheel.add(Bell(rung, "bad", fail), 1.0)
    wheel.add(Bell(rung, "good"), 1.0)
    with caplog.at_level(logging.ERROR):
        clock.advance(1.0)
    assert rung == ["bad", "good"]
    assert [record.getMessage() for record in caplog.records] == ["a deadline failed"]


async def test_it_runs_on_a_real_loop() -> None:
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()
    wheel = TimerWheel(now=loop.time, call_at=loop.call_at)
    wheel.add(Bell([], "bell", rung.set), 0.0)
    await within(rung.wait(), 5.0)


async def test_more_can_be_added_while_some_are_overdue_on_uvloop() -> None:
    def run() -> list[str]:
        async def main() -> list[str]:
            loop = asyncio.get_running_loop()
            wheel = TimerWheel(now=loop.time, call_at=loop.call_at)
            rung: list[str] = []
            for number in range(AT_ONCE + 1):
                wheel.add(Bell(rung, str(number)), 0.0)
            wheel.add(Bell(rung, "last", lambda: wheel.add(Bell(rung, "later"), 0.0)), 0.0)
            async with asyncio.timeout(10):
                while "later" not in rung:
                    wheel.add(Bell(rung, "more"), 1_000.0)
                    await asyncio.sleep(0)
            return rung

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())

    assert len(await asyncio.to_thread(run)) == AT_ONCE + 3
