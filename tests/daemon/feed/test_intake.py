"""Which events are arrivals, and how they are written."""

from __future__ import annotations

import time
from typing import Any

import pytest

from daemon.feed.intake import BATCH, Intake, Pushed, read_push
from fmsg.events import Event
from fmsg.message import AddToBatch, Message
from ledger.memory import MemoryLedger
from ledger.port import NoLedger
from ledger.values import Baseline, CallerKey, LedgerLimits, Seen

ME = "@Me@here.test"
CALLER = CallerKey("c" * 32)


def event(type_: str, **fields: Any) -> Event:
    """An event about a message to the caller."""
    given = {"id": 7, "from_": "@Ann@there.test", "to": (ME.lower(),), "time": 5.0}
    return Event(type_, Message(**{**given, **fields}))


def batch(number: int, *to: str) -> AddToBatch:
    """A batch at the time of its number."""
    return AddToBatch(batch_id=number, add_to_from="@ann@there.test", to=to, time=float(number))


def seen(message_id: int, *, pid: int | None = None, sent_at_s: float = 5.0) -> Seen:
    """A pushed message."""
    return Seen(id=message_id, pid=pid, root=0 if pid else message_id, from_="@ann@there.test", sent_at_s=sent_at_s)


OTHER = ("@other@here.test",)


@pytest.mark.parametrize(
    ("pushed", "certain", "sent_at_s"),
    [
        pytest.param(event("new_msg"), True, 5.0, id="a new message"),
        pytest.param(event("new_msg", to=None), True, 5.0, id="a new message whose recipients are not shown"),
        pytest.param(event("recipients_added", to=OTHER, add_to=(batch(6, ME),)), True, 6.0, id="added just now"),
        pytest.param(
            event("recipients_added", to=OTHER, add_to=(batch(8, ME), batch(6, "@x@y.test"))), True, 8.0, id="unsorted"
        ),
        pytest.param(
            event("recipients_added", to=OTHER, add_to=(batch(6, ME), batch(8, "@x@y.test"))), False, 6.0, id="earlier"
        ),
    ],
)
def test_an_arrival(pushed: Event, certain: bool, sent_at_s: float) -> None:
    found = read_push(pushed, ME)
    assert found is not None
    assert (found.certain, found.seen.sent_at_s) == (certain, sent_at_s)
    assert (found.seen.id, found.seen.from_, found.seen.root) == (7, "@ann@there.test", 7)


@pytest.mark.parametrize(
    "pushed",
    [
        pytest.param(event("new_msg", time=None), id="a draft"),
        pytest.param(event("new_msg", id=0), id="without an id"),
        pytest.param(event("recipients_added", add_to=(batch(6, "@x@y.test"),)), id="others were added"),
        pytest.param(event("recipients_added", add_to=None), id="no batch"),
        pytest.param(event("recipients_added", add_to=(batch(6, ME),)), id="a recipient was added once more"),
        pytest.param(event("delivered"), id="delivered"),
        pytest.param(event("reaction"), id="a reaction's subject"),
        pytest.param(event("something_new"), id="an unknown type"),
    ],
)
def test_no_arrival(pushed: Event) -> None:
    assert read_push(pushed, ME) is None


def test_a_reply_has_no_root_yet() -> None:
    found = read_push(event("new_msg", pid=3), ME)
    assert found is not None
    assert (found.seen.pid, found.seen.root) == (3, 0)


async def ledger(*seeds: Seen, baseline: Baseline = Baseline(newest_id=50, time_s=100.0)) -> MemoryLedger:  # noqa: B008
    """A begun ledger."""
    made = MemoryLedger()
    await made.begin(CALLER, seeds, baseline)
    return made


async def written(made: MemoryLedger) -> list[tuple[int, int]]:
    """(id, root) of the entries."""
    return [(entry.id, entry.root) for entry in (await made.read(CALLER, 0, 1000)).entries]


async def test_what_waits_is_written_in_batches_in_the_order_in_which_it_came() -> None:
    made, intake = await ledger(), Intake(1000)
    ids = [100 + BATCH - number for number in range(BATCH + 3)]
    for id_ in ids:
        assert intake.add(Pushed(seen(id_)))
    assert await intake.write(made, CALLER, clock=lambda: 6.0) == []
    assert len(intake) == 3
    await intake.write(made, CALLER, clock=lambda: 6.0)
    assert (len(intake), [id_ for id_, _ in await written(made)]) == (0, ids)


async def test_a_reply_takes_the_root_of_its_parent_also_from_the_same_batch() -> None:
    made, intake = await ledger(seen(60)), Intake(1000)
    for one in (seen(61, pid=60), seen(62, pid=61), seen(63, pid=59)):
        intake.add(Pushed(one))
    rootless = await intake.write(made, CALLER, clock=lambda: 6.0)
    assert await written(made) == [(60, 60), (61, 60), (62, 60), (63, 0)]
    assert [one.id for one in rootless] == [63]


async def test_an_old_message_that_an_event_merely_shows_is_not_written() -> None:
    made, intake = await ledger(), Intake(1000)
    intake.add(Pushed(seen(40, sent_at_s=90.0), certain=False))
    intake.add(Pushed(seen(41, sent_at_s=110.0), certain=False))
    await intake.write(made, CALLER, clock=lambda: 120.0)
    assert (await written(made), len(intake)) == ([(41, 41)], 0)


async def test_one_that_was_trimmed_is_not_written_again_and_one_that_was_missed_is() -> None:
    """Also where a message from a sender whose clock runs ahead was trimmed."""
    made = MemoryLedger(limits=LedgerLimits(max_entries=2))
    await made.begin(CALLER, (), Baseline(newest_id=50, time_s=100.0))
    far_s = time.time() + 1e9
    await made.append(CALLER, [seen(60, sent_at_s=far_s), seen(61), seen(62), seen(63)], "push")
    intake = Intake(1000)
    for one in (seen(60, sent_at_s=far_s), seen(61), seen(40, sent_at_s=110.0), seen(59)):
        intake.add(Pushed(one, certain=False))
    await intake.write(made, CALLER, clock=lambda: 120.0)
    assert [id_ for id_, _ in await written(made)] == [40, 59]


@pytest.mark.parametrize("certain", [True, False])
async def test_without_a_ledger_everything_keeps_waiting(certain: bool) -> None:
    intake = Intake(1000)
    intake.add(Pushed(seen(1), certain))
    with pytest.raises(NoLedger):
        await intake.write(MemoryLedger(), CALLER, clock=lambda: 6.0)
    assert len(intake) == 1


async def test_without_room_a_message_is_refused_unless_it_waits_already() -> None:
    intake = Intake(2)
    assert [intake.add(Pushed(seen(id_))) for id_ in (1, 2, 3, 2)] == [True, True, False, True]
    assert (1 in intake, 3 in intake) == (True, False)
    intake.clear()
    assert len(intake) == 0
