from __future__ import annotations

import pytest

from ledger.memory import MemoryLedger, MemoryNotifications
from ledger.port import NoLedger
from ledger.values import START, Baseline, CallerKey, LedgerLimits, Seen

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


async def marks(ledger: MemoryLedger) -> tuple[set[int], set[int]]:
    """The messages of Alice's ledger that were returned above a position, and those handed out as one."""
    held = (await ledger.read(ALICE, START, 100)).entries
    found = await ledger.find(ALICE, [entry.id for entry in held])
    return {entry.id for entry in held if entry.returned}, set(found.handed_out)


async def test_a_ledger_nobody_touches_expires(clock: Clock) -> None:
    ledger = MemoryLedger(clock=clock)
    first = await ledger.begin(ALICE, [seen(1)], Baseline())
    clock.now_s += 29 * DAY_S
    await ledger.append(ALICE, [seen(1)], "poll")
    clock.now_s += 29 * DAY_S
    await ledger.note_returned(ALICE, position=1, head=first.head)
    clock.now_s += 29 * DAY_S
    state = await ledger.state(ALICE)
    assert state is not None
    assert state.epoch == first.epoch
    clock.now_s += 2 * DAY_S
    with pytest.raises(NoLedger):
        await ledger.read(ALICE, START, 1)
    assert (await ledger.begin(ALICE, [], Baseline())).epoch != first.epoch


async def test_marks_last_a_day(clock: Clock) -> None:
    ledger = MemoryLedger(clock=clock)
    begun = await ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    await ledger.note_returned(ALICE, above=[1], position=2, head=begun.head)
    clock.now_s += DAY_S - 1.0
    assert await marks(ledger) == ({1}, {2})
    clock.now_s += 1.0
    assert await marks(ledger) == (set(), set())


async def test_the_oldest_marks_go_first(clock: Clock) -> None:
    ledger = MemoryLedger(limits=LedgerLimits(max_marks=3), clock=clock)
    await ledger.begin(ALICE, [seen(k) for k in range(1, 5)], Baseline())
    await ledger.note_returned(ALICE, above=[1, 2])
    await ledger.note_returned(ALICE, above=[1, 3, 4])
    assert await marks(ledger) == ({1, 3, 4}, set())


async def test_marks_that_are_over_take_no_room(clock: Clock) -> None:
    ledger = MemoryLedger(limits=LedgerLimits(max_marks=2), clock=clock)
    await ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    await ledger.note_returned(ALICE, above=[1])
    clock.now_s += 2 * DAY_S
    await ledger.note_returned(ALICE, above=[2])
    assert await marks(ledger) == ({2}, set())


async def test_the_clock_goes_on_at_its_pace_after_a_step_back(clock: Clock) -> None:
    ledger = MemoryLedger(clock=clock)
    before = await ledger.begin(ALICE, [], Baseline())
    clock.now_s -= 3600.0
    stepped = await ledger.append(ALICE, [seen(1)], "push")
    assert stepped.state.now_s == before.now_s
    clock.now_s += 10.0
    later = await ledger.append(ALICE, [seen(2)], "push")
    assert later.state.now_s == before.now_s + 10.0
    entries = (await ledger.read(ALICE, START, 10)).entries
    assert [arrival.arrived_at_s for arrival in entries] == [before.now_s, before.now_s + 10.0]


async def test_notifications_come_without_running() -> None:
    notifications = MemoryNotifications()
    woken: list[str] = []
    end = notifications.listen(ALICE, lambda: woken.append("alice"))
    async with notifications.running():
        notifications.notify(ALICE)
    notifications.notify(CallerKey("other"))
    end()
    notifications.notify(ALICE)
    assert woken == ["alice"]


async def test_epochs_can_be_chosen() -> None:
    ledger = MemoryLedger(new_epoch=lambda: "first")
    assert (await ledger.begin(ALICE, [], Baseline())).epoch == "first"
