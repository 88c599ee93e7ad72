from __future__ import annotations

import pytest

from ledger.memory import MemoryLedger, MemoryNotifications
from ledger.port import NoLedger
from ledger.values import Baseline, CallerKey, LedgerLimits, Seen

ALICE = CallerKey("a" * 32)
DAY_S = 86_400.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def seen(message_id: int) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@b.test", sent_at_s=5.0)


async def test_a_ledger_nobody_touches_expires(clock: Clock) -> None:
    ledger = MemoryLedger(clock=clock)
    first = await ledger.begin(ALICE, [seen(1)], Baseline())
    clock.now_s += 29 * DAY_S
    await ledger.append(ALICE, [seen(1)], "poll")
    clock.now_s += 29 * DAY_S
    await ledger.note_returned(ALICE, above=[], position=1)
    clock.now_s += 29 * DAY_S
    state = await ledger.state(ALICE)
    assert state is not None
    assert state.epoch == first.epoch
    clock.now_s += 2 * DAY_S
    with pytest.raises(NoLedger):
        await ledger.read(ALICE, 0, 1)
    assert (await ledger.begin(ALICE, [], Baseline())).epoch != first.epoch


async def test_marks_last_a_day(clock: Clock) -> None:
    ledger = MemoryLedger(clock=clock)
    await ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    await ledger.note_returned(ALICE, above=[2], position=1)
    clock.now_s += DAY_S - 1.0
    assert await ledger.returned(ALICE, [2]) == {2}
    assert (await ledger.locate(ALICE, [1]))[1].handed_out
    clock.now_s += 1.0
    assert await ledger.returned(ALICE, [2]) == frozenset()
    assert not (await ledger.locate(ALICE, [1]))[1].handed_out


async def test_the_oldest_marks_go_first(clock: Clock) -> None:
    ledger = MemoryLedger(limits=LedgerLimits(max_marks=4), clock=clock)
    await ledger.note_returned(ALICE, above=[1, 2], position=9)
    await ledger.note_returned(ALICE, above=[1, 3, 4], position=9)
    assert await ledger.returned(ALICE, [1, 2, 3, 4]) == {1, 3, 4}


async def test_marks_that_are_over_take_no_room(clock: Clock) -> None:
    ledger = MemoryLedger(limits=LedgerLimits(max_marks=2), clock=clock)
    await ledger.note_returned(ALICE, above=[1], position=9)
    clock.now_s += 2 * DAY_S
    await ledger.note_returned(ALICE, above=[2], position=9)
    assert await ledger.returned(ALICE, [1, 2]) == {2}


async def test_the_clock_goes_on_at_its_pace_after_a_step_back(clock: Clock) -> None:
    ledger = MemoryLedger(clock=clock)
    before = await ledger.begin(ALICE, [], Baseline())
    clock.now_s -= 3600.0
    stepped = await ledger.append(ALICE, [seen(1)], "push")
    assert stepped.state.now_s == before.now_s
    clock.now_s += 10.0
    later = await ledger.append(ALICE, [seen(2)], "push")
    assert later.state.now_s == before.now_s + 10.0
    entries = (await ledger.read(ALICE, 0, 10)).entries
    assert [arrival.arrived_at_s for arrival in entries] == [before.now_s, before.now_s + 10.0]


async def test_the_doorbell_rings_without_running() -> None:
    doorbell = MemoryNotifications()
    rung: list[str] = []
    end = doorbell.listen(ALICE, lambda: rung.append("alice"))
    async with doorbell.running():
        doorbell.ring(ALICE)
    doorbell.ring(CallerKey("other"))
    end()
    doorbell.ring(ALICE)
    assert rung == ["alice"]


async def test_epochs_can_be_chosen() -> None:
    ledger = MemoryLedger(new_epoch=lambda: "first")
    assert (await ledger.begin(ALICE, [], Baseline())).epoch == "first"
