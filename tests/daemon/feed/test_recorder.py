"""Which events are arrivals, how they are written, and the roots that come later."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.feed.copy import LedgerCopy
from daemon.feed.recorder import BATCH, MAX_ROOTLESS, ROOT_DELAYS_S, Pushed, Recorder, read_push
from fmsg.events import Event
from fmsg.message import AddToBatch, Message
from ledger.values import Baseline, Seen
from tests.daemon.parts import NotingFeed, Parts
from tests.daemon.world import Agent, World

ME = "@Me@here.test"


def event(type_: str, **fields: Any) -> Event:
    """An event about a message to the caller."""
    given = {"id": 7, "from_": "@Ann@there.test", "to": (ME.lower(),), "time": 5.0}
    return Event(type_, Message(**{**given, **fields}))


def batch(number: int, *to: str) -> AddToBatch:
    """A batch at the time of its number."""
    return AddToBatch(batch_id=number, add_to_from="@ann@there.test", to=to, time=float(number))


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


class Case:
    """A recorder and its feed."""

    def __init__(self, world: World, alice: Agent, parts: Parts) -> None:
        self.feed = NotingFeed(world)
        self.recorder = Recorder(parts.ctx, alice.key, alice.api, LedgerCopy(parts.ctx.ledger, alice.key), self.feed)


@pytest.fixture
async def alice(world: World) -> Agent:
    """A caller with an empty ledger."""
    alice = await world.agent("alice")
    await world.store.ledger.begin(alice.key, (), Baseline())
    return alice


@pytest.fixture
def case(world: World, alice: Agent, parts: Parts) -> Case:
    """One."""
    return Case(world, alice, parts)


def pushed(message_id: int, *, pid: int | None = None, sent_at_s: float = 5.0, certain: bool = True) -> Pushed:
    """A pushed message."""
    seen = Seen(id=message_id, pid=pid, root=0 if pid else message_id, from_="@a@b.test", sent_at_s=sent_at_s)
    return Pushed(seen, certain)


async def test_frames_that_come_while_one_is_written_go_in_one_batch(world: World, alice: Agent, case: Case) -> None:
    for id_ in range(1, 11):
        case.recorder.keep(pushed(id_))
        case.recorder.write()
    await alice.until_ids(*range(1, 11))
    assert world.bell.calls["append"] == 1
    assert 10 not in case.recorder


async def test_what_cannot_be_written_waits_until_it_is_asked_for_again(world: World, alice: Agent, case: Case) -> None:
    with world.store_away():
        case.recorder.keep(pushed(1))
        case.recorder.write()
        await world.bell.until(lambda: len(case.feed.failures) == 1)
    assert 1 in case.recorder
    case.recorder.write()
    await alice.until_ids(1)


async def test_without_a_ledger_its_feed_hears_that_it_fell_behind(world: World, alice: Agent, case: Case) -> None:
    await world.store.ledger.forget(alice.key)
    case.recorder.keep(pushed(1))
    case.recorder.write()
    await world.bell.until(lambda: case.feed.behind == 1)
    assert 1 in case.recorder


async def test_without_room_its_feed_hears_that_it_fell_behind(case: Case, parts: Parts) -> None:
    for id_ in range(1, parts.ctx.settings.pending_limit + 2):
        case.recorder.keep(pushed(id_))
    assert case.feed.behind == 1


async def test_a_fault_of_ours_is_not_tried_for_ever(
    world: World, alice: Agent, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    append = world.store.ledger.append
    vars(world.store.ledger)["append"] = broken
    case.recorder.keep(pushed(1))
    case.recorder.write()
    await world.bell.until(lambda: len(case.feed.failures) == 1)
    assert 1 not in case.recorder
    assert "writing arrivals failed" in caplog.text
    vars(world.store.ledger)["append"] = append
    case.recorder.keep(pushed(2))
    case.recorder.write()
    await alice.until_ids(2)


async def test_roots_are_looked_up_after_the_append_and_again_later(world: World, alice: Agent, case: Case) -> None:
    bob = await world.agent("bob", ask=False)
    root = await alice.send(bob)
    case.recorder.keep(pushed(root + 1, pid=root))
    case.recorder.keep(pushed(root + 2, pid=10**6))
    case.recorder.write()
    await world.bell.until(lambda: bool(case.feed.checks))
    assert {entry.id: entry.root for entry in await alice.entries()} == {root + 1: root, root + 2: 0}


async def test_a_closing_recorder_finishes_its_write(alice: Agent, case: Case) -> None:
    case.recorder.keep(pushed(1))
    case.recorder.write()
    await case.recorder.close()
    assert [entry.id for entry in await alice.entries()] == [1]
    await case.recorder.close()


async def test_many_are_written_in_batches_in_the_order_in_which_they_came(
    world: World, alice: Agent, case: Case
) -> None:
    ids = [100 + BATCH - number for number in range(BATCH + 3)]
    for id_ in ids:
        case.recorder.keep(pushed(id_))
    case.recorder.write()
    entries = await alice.until_ids(*ids)
    assert [entry.id for entry in entries] == ids
    assert world.bell.calls["append"] == 2


async def test_a_reply_takes_the_root_of_its_parent_also_from_the_same_batch(alice: Agent, case: Case) -> None:
    for one in (pushed(60), pushed(61, pid=60), pushed(62, pid=61)):
        case.recorder.keep(one)
    case.recorder.write()
    entries = await alice.until_ids(60, 61, 62)
    assert [entry.root for entry in entries] == [60, 60, 60]


async def test_an_old_message_that_an_event_merely_shows_is_not_written(world: World, alice: Agent, case: Case) -> None:
    await world.store.ledger.forget(alice.key)
    await world.store.ledger.begin(alice.key, (), Baseline(newest_id=50, time_s=100.0))
    case.recorder.keep(pushed(40, sent_at_s=90.0, certain=False))
    case.recorder.keep(pushed(41, sent_at_s=110.0, certain=False))
    case.recorder.write()
    await alice.until_ids(41)
    assert 40 not in case.recorder


async def test_what_waits_already_needs_no_more_room(case: Case, parts: Parts) -> None:
    limit = parts.ctx.settings.pending_limit
    for id_ in (*range(1, limit + 1), limit):
        case.recorder.keep(pushed(id_))
    assert case.feed.behind == 0


async def test_a_root_that_cannot_be_found_is_looked_for_again_and_in_the_end_given_up(
    world: World, alice: Agent, case: Case
) -> None:
    case.recorder.keep(pushed(7, pid=10**6))
    case.recorder.write()
    for number in range(1, len(ROOT_DELAYS_S) + 1):
        await world.bell.until(lambda number=number: len(case.feed.checks) == number)  # type: ignore[misc]
        case.recorder.find_roots()
    assert case.feed.checks == list(ROOT_DELAYS_S)

    async def given_up() -> bool:
        (entry,) = await alice.entries()
        return entry.root == 7

    await world.bell.until(given_up)


async def test_a_store_that_fails_makes_nobody_forget_a_root(world: World, alice: Agent, case: Case) -> None:
    bob = await world.agent("bob", ask=False)
    root = await alice.send(bob)
    await world.store.ledger.append(alice.key, [pushed(root + 1, pid=root).seen], "push")
    with world.store_away():
        case.recorder.add_rootless([pushed(root + 1, pid=root).seen])
        case.recorder.find_roots()
        await world.bell.until(lambda: bool(case.feed.checks))
    case.recorder.find_roots()

    async def found() -> bool:
        (entry,) = await alice.entries()
        return entry.root == root

    await world.bell.until(found)


async def test_what_lacks_a_root_is_bounded(case: Case) -> None:
    case.recorder.add_rootless(pushed(id_, pid=1).seen for id_ in range(2, 10 * MAX_ROOTLESS))
    assert len(case.recorder._rootless) == MAX_ROOTLESS
