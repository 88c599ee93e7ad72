"""Comparing the host's list with the ledger, one comparison at a time."""

from __future__ import annotations

import asyncio

import pytest

from daemon.feed import comparer as comparing
from daemon.feed.comparer import MAX_SUSPECTS, Comparer, LossDetector
from daemon.feed.copy import LedgerCopy
from daemon.feed.diagnosis import Diagnosis
from ledger.catch_up import CaughtUp
from ledger.values import START, Arrival
from tests.daemon.parts import NotingFeed, Parts
from tests.daemon.world import Agent, World, metric


class Case:
    """A comparer and its feed."""

    def __init__(self, world: World, alice: Agent, parts: Parts) -> None:
        self.feed = NotingFeed(world)
        self.comparer = Comparer(
            parts.ctx, alice.key, alice.address, alice.api, LedgerCopy(parts.ctx.ledger, alice.key), self.feed
        )


@pytest.fixture
async def alice(world: World) -> Agent:
    """A caller that asked."""
    return await world.agent("alice")


@pytest.fixture
def case(world: World, alice: Agent, parts: Parts) -> Case:
    """One."""
    return Case(world, alice, parts)


async def test_it_begins_the_ledger_and_then_finds_what_is_new(world: World, alice: Agent, case: Case) -> None:
    case.comparer.start("backfill")
    first = await case.feed.result()
    assert isinstance(first, CaughtUp)
    assert first.began
    new = world.deliver(alice)
    case.comparer.start("poll")
    second = await case.feed.result(2)
    assert isinstance(second, CaughtUp)
    assert [one.id for one in second.new] == [new]
    assert [source for source, _ in case.feed.comparisons] == ["backfill", "poll"]


async def test_a_fresh_comparison_replaces_the_one_that_began_too_early(world: World, case: Case) -> None:
    world.host.control.hang_next("list")
    case.comparer.start("poll")
    await world.bell.until(lambda: world.host.core.faults.requests["list"] == 1)
    case.comparer.start("poll")
    case.comparer.start("backfill", fresh=True)
    await case.feed.result()
    assert [source for source, _ in case.feed.comparisons] == ["backfill"]
    assert world.host.core.faults.requests["list"] == 2


async def test_a_cancelled_comparison_is_not_heard_of(world: World, case: Case) -> None:
    world.host.control.hang_next("list")
    case.comparer.start("poll")
    await world.bell.until(lambda: world.host.core.faults.requests["list"] == 1)
    ending = case.comparer.cancel()
    assert ending is not None
    await asyncio.wait([ending], timeout=5.0)
    assert ending.cancelled()
    assert (case.feed.comparisons, case.comparer.cancel()) == ([], None)


async def test_failures_are_told_with_their_remedy_and_whose_they_are(world: World, case: Case) -> None:
    world.host.control.fail_next("list", status=403)
    case.comparer.start("backfill")
    told = await case.feed.result()
    assert isinstance(told, Diagnosis)
    assert (told.remedy, told.trouble) == ("stop", "caller")
    failed = metric("fmsg_mcpd_reconciles_total")
    with world.store_away():
        case.comparer.start("reconcile")
        told = await case.feed.result(2)
    assert isinstance(told, Diagnosis)
    assert (told.remedy, told.trouble) == ("retry", "store")
    assert metric("fmsg_mcpd_reconciles_total") == failed + 1


async def test_what_a_reconciliation_finds_is_lost_unless_it_is_pushed_after_all(
    world: World, alice: Agent, case: Case, parts: Parts
) -> None:
    case.comparer.start("backfill")
    await case.feed.result()
    ids = [world.deliver(alice) for _ in range(4)]
    case.comparer.start("reconcile")
    found = await case.feed.result(2)
    assert isinstance(found, CaughtUp)
    before = metric("fmsg_mcpd_lost_events_total")
    assert case.comparer.reconciled(found, waiting={ids[0]})
    case.comparer.losses.pushed(ids[1])
    assert case.comparer.count_losses(), "the grace is not over"
    await world.bell.until(lambda: not case.comparer.count_losses())
    assert metric("fmsg_mcpd_lost_events_total") == before + 2
    assert parts.losses == 1
    case.comparer.reconciled(found, waiting=())
    case.comparer.losses.clear()
    assert not case.comparer.count_losses()


async def test_a_walk_that_ends_too_early_is_no_comparison(
    world: World, alice: Agent, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More is missing than one walk compares: the feed hears that it takes long, and then of all of it at once."""
    monkeypatch.setattr(comparing, "MOST_PAGES", 1)
    case.comparer.start("backfill")
    await case.feed.result()
    ids = [world.deliver(alice) for _ in range(150)]
    case.comparer.start("backfill")
    found = await case.feed.result(2)
    assert isinstance(found, CaughtUp)
    assert found.complete
    assert case.feed.far > 0
    assert sorted(one.id for one in found.new) == ids
    assert sorted(entry.id for entry in await alice.entries()) == ids


async def test_a_long_comparison_that_fails_in_the_middle_has_failed(
    world: World, alice: Agent, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "MOST_PAGES", 1)
    case.comparer.start("backfill")
    await case.feed.result()
    for _ in range(150):
        world.deliver(alice)
    far_behind = case.feed.far_behind

    def fail() -> None:
        far_behind()
        world.host.control.fail_next("list", status=503)

    monkeypatch.setattr(case.feed, "far_behind", fail)
    case.comparer.start("backfill")
    assert isinstance(await case.feed.result(2), Diagnosis)


def late(*ids: int, reaction: bool = False) -> list[tuple[Arrival, float]]:
    """Messages found in the list, each as late as its id says."""
    return [
        (Arrival(at=START, id=id_, pid=None, root=id_, from_="@a@b.test", reaction=reaction), float(id_)) for id_ in ids
    ]


def test_what_nobody_pushes_within_the_grace_is_lost_and_told_once() -> None:
    detector = LossDetector()
    assert detector.found(late(3, 4), waiting=(), now_s=100.0)
    assert detector.lost(104.9, grace_s=5.0) == []
    assert detector.lost(105.0, grace_s=5.0) == [3.0, 4.0]
    assert (detector.lost(200.0, grace_s=5.0), len(detector)) == ([], 0)


def test_what_the_list_merely_overtook_is_not_lost() -> None:
    detector = LossDetector()
    detector.found(late(3, 4), waiting=(), now_s=100.0)
    detector.pushed(3)
    detector.pushed(99)
    assert detector.lost(105.0, grace_s=5.0) == [4.0]


def test_what_is_being_written_is_not_suspect() -> None:
    assert not LossDetector().found(late(3), waiting={3}, now_s=100.0)


def test_reactions_are_not_suspect() -> None:
    assert not LossDetector().found(late(3, reaction=True), waiting=(), now_s=100.0)


def test_when_the_socket_closed_nobody_knows() -> None:
    detector = LossDetector()
    detector.found(late(3), waiting=(), now_s=100.0)
    detector.clear()
    assert detector.lost(200.0, grace_s=5.0) == []


def test_suspects_are_bounded() -> None:
    detector = LossDetector()
    detector.found(late(*range(1, 10 * MAX_SUSPECTS)), waiting=(), now_s=100.0)
    assert len(detector) == MAX_SUSPECTS
