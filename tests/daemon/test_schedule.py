"""The one clock of all feeds."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.schedule import NEVER, SLICE, Schedule


class Item:
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.due_at_s = NEVER
        self.done = asyncio.Event()

    def due(self, now_s: float) -> None:
        self.done.set()


class Faulty(Item):
    def due(self, now_s: float) -> None:
        super().due(now_s)
        raise RuntimeError("a fault")


def test_what_is_due_comes_in_order_and_once() -> None:
    schedule = Schedule()
    early, late, never = Item("early"), Item("late"), Item("never")
    schedule.at(late, 5.0)
    schedule.at(early, 3.0)
    schedule.at(never, 4.0)
    schedule.at(never, NEVER)
    assert len(schedule) == 2
    assert schedule.take_due(2.9) == []
    assert schedule.take_due(5.0) == [early, late]
    assert schedule.take_due(9.0) == []
    assert (len(schedule), schedule.next_s()) == (0, NEVER)


def test_moving_an_item_there_and_back_makes_it_due_once() -> None:
    schedule = Schedule()
    item = Item()
    for when_s in (3.0, 4.0, 3.0):
        schedule.at(item, when_s)
    assert schedule.take_due(10.0) == [item]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1.0, 2.0, 3.0, 4.0, NEVER]))))
def test_only_the_last_time_of_an_item_counts(moves: list[tuple[int, float]]) -> None:
    schedule = Schedule()
    items = [Item(str(number)) for number in range(6)]
    last: dict[int, float] = {}
    for number, when_s in moves:
        schedule.at(items[number], when_s)
        last[number] = when_s
    due = schedule.take_due(2.5)
    assert sorted(item.name for item in due if isinstance(item, Item)) == [
        str(number) for number, when_s in sorted(last.items()) if when_s <= 2.5
    ]
    assert len(schedule) == sum(1 for when_s in last.values() if 2.5 < when_s < NEVER)


def test_items_that_keep_moving_do_not_fill_the_memory() -> None:
    schedule = Schedule()
    item = Item()
    for step in range(50 * SLICE):
        schedule.at(item, 1000.0 + step)
    assert len(schedule._heap) < 3 * SLICE


async def test_it_wakes_for_what_is_due_also_when_added_later() -> None:
    schedule = Schedule()
    far, near = Item(), Item()
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(schedule.run())  # ended below
    try:
        schedule.at(far, loop.time() + 3600.0)
        await asyncio.sleep(0)
        schedule.at(near, loop.time() + 0.01)
        await asyncio.wait_for(near.done.wait(), 5.0)
        assert not far.done.is_set()
    finally:
        running.cancel()


async def test_one_faulty_item_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    schedule = Schedule()
    items = [Faulty(), Item()]
    running = asyncio.create_task(schedule.run())  # ended below
    try:
        for item in items:
            schedule.at(item, asyncio.get_running_loop().time())
        await asyncio.wait_for(asyncio.gather(*(item.done.wait() for item in items)), 5.0)
    finally:
        running.cancel()
    assert "a scheduled step failed" in caplog.text
