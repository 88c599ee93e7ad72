"""The shared rate of connects, the interval between comparisons, and the timer of all feeds."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.pacing import NEVER, SLICE, SPREAD, ConnectPacer, ReconcilePace, Schedule
from daemon.settings import DaemonSettings
from ledger.connect_slots import reserve_slots
from ledger.memory import MemoryFleet
from ledger.port import LedgerUnavailable
from tests.daemon.world import Bell
from tests.within import within


class Crowd:
    """Daemons that share one store, and the moments at which their feeds connect."""

    def __init__(self, daemons: int, *, per_s: float, members: int | None = None) -> None:
        self.moments: list[float] = []
        self.connected: list[Wants] = []
        """Feeds that were asked to connect, in order."""
        self.bell = Bell()
        self.time = asyncio.get_running_loop().time
        self.fleet = MemoryFleet(heartbeat_ttl_s=10.0, clock=self.time)
        self.pacers = [
            ConnectPacer(
                self.fleet,
                DaemonSettings(connects_per_s=per_s),
                members=lambda: members or daemons,
                now=self.time,
            )
            for _ in range(daemons)
        ]


class Wants:
    """A feed that wants to connect."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.wants = True

    def connect(self) -> bool:
        self.crowd.connected.append(self)
        if self.wants:
            self.crowd.moments.append(self.crowd.time())
            self.crowd.bell.ring()
        return self.wants


async def play(crowd: Crowd, count: int) -> None:
    """Run all pacers until so many feeds connected."""
    running = [asyncio.create_task(pacer.run()) for pacer in crowd.pacers]
    await crowd.bell.until(lambda: len(crowd.moments) == count)
    for task in running:
        task.cancel()


def most_in_a_second(moments: list[float]) -> int:
    """The busiest second, wherever it begins."""
    return max(sum(1 for one in moments if first <= one < first + 1.0) for first in moments)


async def test_daemons_together_keep_to_the_rate_and_the_one_that_needs_it_gets_all_of_it() -> None:
    crowd = Crowd(3, per_s=100.0)
    for _ in range(120):
        crowd.pacers[0].ask(Wants(crowd), urgent=True)
    for _ in range(20):
        crowd.pacers[1].ask(Wants(crowd), urgent=True)
    await play(crowd, 140)
    assert most_in_a_second(crowd.moments) <= 100
    assert crowd.moments[-1] - crowd.moments[0] >= 139 / 92 - 0.1


async def test_without_the_store_each_daemon_keeps_to_its_share() -> None:
    crowd = Crowd(2, per_s=100.0)

    async def away(*_: object, **__: object) -> None:
        raise LedgerUnavailable("not now")

    vars(crowd.fleet)["reserve_connects"] = away
    for pacer in crowd.pacers:
        for _ in range(30):
            pacer.ask(Wants(crowd), urgent=True)
    await play(crowd, 60)
    assert most_in_a_second(crowd.moments) <= 100
    assert crowd.moments[-1] - crowd.moments[0] >= 29 / 46 - 0.1


async def test_a_fault_of_ours_stops_no_other_feed(caplog: pytest.LogCaptureFixture) -> None:
    crowd = Crowd(2, per_s=200.0)
    pacer = crowd.pacers[0]

    async def broken(*_: object, **__: object) -> None:
        raise AttributeError("a fault")

    vars(crowd.fleet)["reserve_connects"] = broken
    faulty = Wants(crowd)
    vars(faulty)["connect"] = lambda: 1 / 0
    pacer.ask(faulty, urgent=True)
    pacer.ask(Wants(crowd), urgent=True)
    await play(crowd, 1)
    assert {record.__dict__["action"] for record in caplog.records} == {"slots_failed", "connect_failed"}


async def test_a_caller_without_a_socket_goes_before_one_that_moves_and_who_changed_its_mind_costs_no_slot() -> None:
    crowd = Crowd(1, per_s=200.0)
    (pacer,) = crowd.pacers
    moving, urgent, gone, changed = (Wants(crowd) for _ in range(4))
    changed.wants = False
    pacer.ask(moving, urgent=False)
    pacer.ask(gone, urgent=True)
    pacer.ask(changed, urgent=True)
    pacer.ask(urgent, urgent=True)
    pacer.drop(gone)
    assert (len(pacer), pacer.room(0.5)) == (3, 89)
    await play(crowd, 2)
    assert crowd.connected == [changed, urgent, moving]


async def test_while_the_host_accepts_no_socket_only_a_few_are_begun() -> None:
    """A host that stalls meets them all at once when it goes on."""
    crowd = Crowd(1, per_s=100.0)
    (pacer,) = crowd.pacers
    for _ in range(60):
        pacer.ask(Wants(crowd), urgent=True)
    connect, stalled = Wants.connect, True

    def begin(feed: Wants) -> bool:
        pacer.in_flight += stalled
        return connect(feed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wants, "connect", begin)
        running = asyncio.create_task(pacer.run())
        await crowd.bell.until(lambda: len(crowd.moments) == 23)
        await asyncio.sleep(0.3)  # twenty more slots, of which none may be used
        assert len(crowd.moments) == 23
        pacer.in_flight, stalled = 0, False
        await crowd.bell.until(lambda: len(crowd.moments) == 60)
        running.cancel()


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 300)), min_size=1, max_size=60), st.floats(0.5, 200.0))
def test_no_second_gets_more_slots_than_the_rate(asks: list[tuple[float, int]], per_s: float) -> None:
    now_s, free_at_s = 0.0, float("-inf")
    moments: list[float] = []
    for step_s, count in asks:
        now_s += step_s
        slots, free_at_s = reserve_slots(free_at_s, now_s, count=count, every_s=1.0 / per_s, within_s=0.25)
        assert 0 <= slots.count <= count
        first_s = now_s + slots.first_in_s
        moments += [first_s + number * slots.every_s for number in range(slots.count)]
    for before_s, after_s in itertools.pairwise(moments):
        assert after_s - before_s >= 1.0 / per_s - 1e-6


def test_a_clock_that_went_back_stops_nobody() -> None:
    slots, _ = reserve_slots(10_000.0, 5.0, count=3, every_s=0.1, within_s=1.0)
    assert (slots.first_in_s, slots.count) == (0.0, 3)


def pace(**settings: Any) -> ReconcilePace:
    return ReconcilePace(DaemonSettings(**settings), random.Random(7))


def around(target_s: float) -> tuple[float, float]:
    return target_s * (1 - SPREAD), target_s * (1 + SPREAD)


@pytest.mark.parametrize(("quiet_rounds", "target_s"), [(0, 60.0), (1, 300.0), (10_000, 300.0)])
def test_the_interval_of_a_quiet_caller_grows(quiet_rounds: int, target_s: float) -> None:
    low_s, high_s = around(target_s)
    got = [pace().interval_s(0.0, quiet_rounds=quiet_rounds, feeds=1) for _ in range(50)]
    assert all(low_s <= interval_s <= high_s for interval_s in got)


def test_a_loss_makes_every_interval_short_for_a_while() -> None:
    rounds = pace()
    assert rounds.alarm(1000.0), "the first loss is news"
    assert not rounds.alarm(1001.0), "the next is not: everybody reconciles already"
    low_s, high_s = around(15.0)
    assert low_s <= rounds.interval_s(1002.0, quiet_rounds=9, feeds=1) <= high_s
    assert rounds.interval_s(1001.0 + 121.0, quiet_rounds=9, feeds=1) >= around(300.0)[0]


def test_many_feeds_together_never_list_more_than_the_rate() -> None:
    rounds = pace(lists_per_s=100.0)
    rounds.alarm(0.0)
    low_s, high_s = around(200.0)
    assert low_s <= rounds.interval_s(1.0, quiet_rounds=0, feeds=20_000) <= high_s
    soon = [rounds.soon_s(feeds=20_000) for _ in range(500)]
    assert 0.0 <= min(soon) < 20.0
    assert 180.0 < max(soon) <= 200.0


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
        await within(near.done.wait(), 5.0)
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
        await within(asyncio.gather(*(item.done.wait() for item in items)), 5.0)
    finally:
        running.cancel()
    assert "a scheduled step failed" in caplog.text
