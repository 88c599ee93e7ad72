"""Comparing the host's list with the ledger, one comparison at a time."""

from __future__ import annotations

import asyncio

import pytest

from daemon.feed import comparer as comparing
from daemon.feed.comparer import Comparer
from daemon.feed.diagnosis import Diagnosis
from ledger.catch_up import CaughtUp
from ledger.values import Source
from tests.daemon.parts import Parts
from tests.daemon.world import Agent, World, metric


class Owner:
    """Notes what it is told, and rings."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[tuple[Source, CaughtUp | Diagnosis]] = []
        self.store_failed = False
        self.far = 0

    def far_behind(self) -> None:
        self.far += 1

    def compared(self, result: CaughtUp, source: Source) -> None:
        self.told.append((source, result))
        self.world.bell.ring()

    def compare_failed(self, diagnosis: Diagnosis, source: Source, *, store_failed: bool) -> None:
        self.told.append((source, diagnosis))
        self.store_failed = store_failed
        self.world.bell.ring()

    async def result(self, number: int = 1) -> CaughtUp | Diagnosis:
        """Wait until it was told so often; what it was told last."""
        await self.world.bell.until(lambda: len(self.told) >= number)
        return self.told[-1][1]


class Case:
    """A comparer and its owner."""

    def __init__(self, world: World, alice: Agent, parts: Parts) -> None:
        self.owner = Owner(world)
        self.comparer = Comparer(parts.ctx, alice.key, alice.address, alice.api, self.owner)


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
    first = await case.owner.result()
    assert isinstance(first, CaughtUp)
    assert first.began
    new = world.deliver(alice)
    case.comparer.start("poll")
    second = await case.owner.result(2)
    assert isinstance(second, CaughtUp)
    assert [id_ for id_, _ in second.new] == [new]
    assert [source for source, _ in case.owner.told] == ["backfill", "poll"]


async def test_a_fresh_comparison_replaces_the_one_that_began_too_early(world: World, case: Case) -> None:
    world.host.control.hang_next("list")
    case.comparer.start("poll")
    await world.bell.until(lambda: world.host.core.faults.requests["list"] == 1)
    case.comparer.start("poll")
    case.comparer.start("backfill", fresh=True)
    await case.owner.result()
    assert [source for source, _ in case.owner.told] == ["backfill"]
    assert world.host.core.faults.requests["list"] == 2


async def test_a_cancelled_comparison_is_not_heard_of(world: World, case: Case) -> None:
    world.host.control.hang_next("list")
    case.comparer.start("poll")
    await world.bell.until(lambda: world.host.core.faults.requests["list"] == 1)
    ending = case.comparer.cancel()
    assert ending is not None
    await asyncio.wait([ending], timeout=5.0)
    assert ending.cancelled()
    assert (case.owner.told, case.comparer.cancel()) == ([], None)


async def test_failures_are_told_with_their_remedy_and_whose_they_are(world: World, case: Case) -> None:
    world.host.control.fail_next("list", status=403)
    case.comparer.start("backfill")
    told = await case.owner.result()
    assert isinstance(told, Diagnosis)
    assert (told.remedy, case.owner.store_failed) == ("stop", False)
    failed = metric("fmsg_mcpd_reconciles_total")
    with world.store_away():
        case.comparer.start("reconcile")
        told = await case.owner.result(2)
    assert isinstance(told, Diagnosis)
    assert (told.remedy, case.owner.store_failed) == ("retry", True)
    assert metric("fmsg_mcpd_reconciles_total") == failed + 1


async def test_what_a_reconciliation_finds_is_lost_unless_it_is_pushed_after_all(
    world: World, alice: Agent, case: Case, parts: Parts
) -> None:
    case.comparer.start("backfill")
    await case.owner.result()
    ids = [world.deliver(alice) for _ in range(4)]
    case.comparer.start("reconcile")
    found = await case.owner.result(2)
    assert isinstance(found, CaughtUp)
    before = metric("fmsg_mcpd_lost_events_total")
    assert case.comparer.reconciled(found, waiting={ids[0]})
    case.comparer.pushed(ids[1])
    assert case.comparer.count_losses(), "the grace is not over"
    await world.bell.until(lambda: not case.comparer.count_losses())
    assert metric("fmsg_mcpd_lost_events_total") == before + 2
    assert parts.losses == 1
    case.comparer.reconciled(found, waiting=())
    case.comparer.socket_closed()
    assert not case.comparer.count_losses()


async def test_a_walk_that_ends_too_early_is_no_comparison(
    world: World, alice: Agent, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More is missing than one walk compares: the owner hears that it takes long, and then of all of it at once."""
    monkeypatch.setattr(comparing, "MOST_PAGES", 1)
    case.comparer.start("backfill")
    await case.owner.result()
    ids = [world.deliver(alice) for _ in range(150)]
    case.comparer.start("backfill")
    found = await case.owner.result(2)
    assert isinstance(found, CaughtUp)
    assert found.complete
    assert case.owner.far > 0
    assert sorted(id_ for id_, _ in found.new) == sorted(seen.id for seen in found.found_late) == ids
    assert sorted(entry.id for entry in await alice.entries()) == ids


async def test_a_long_comparison_that_fails_in_the_middle_has_failed(
    world: World, alice: Agent, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "MOST_PAGES", 1)
    case.comparer.start("backfill")
    await case.owner.result()
    for _ in range(150):
        world.deliver(alice)
    far_behind = case.owner.far_behind

    def fail() -> None:
        far_behind()
        world.host.control.fail_next("list", status=503)

    monkeypatch.setattr(case.owner, "far_behind", fail)
    case.comparer.start("backfill")
    assert isinstance(await case.owner.result(2), Diagnosis)
