"""Writing what was pushed."""

from __future__ import annotations

import pytest

from daemon.feed.diagnosis import Diagnosis
from daemon.feed.intake import Pushed
from daemon.feed.recorder import Recorder
from ledger.values import Baseline, Seen
from tests.daemon.parts import Parts
from tests.daemon.world import Agent, World


class Owner:
    """Notes what it is told, and rings."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.behind = 0
        self.failures: list[Diagnosis] = []
        self.checks: list[float] = []

    def fell_behind(self) -> None:
        self.behind += 1
        self.world.bell.ring()

    def write_failed(self, diagnosis: Diagnosis) -> None:
        self.failures.append(diagnosis)
        self.world.bell.ring()

    def check_within(self, delay_s: float) -> None:
        self.checks.append(delay_s)
        self.world.bell.ring()


class Case:
    """A recorder and its owner."""

    def __init__(self, world: World, alice: Agent, parts: Parts) -> None:
        self.owner = Owner(world)
        self.recorder = Recorder(parts.ctx, alice.key, alice.api, self.owner)


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


def pushed(message_id: int, *, pid: int | None = None) -> Pushed:
    """A pushed message."""
    return Pushed(Seen(id=message_id, pid=pid, root=0 if pid else message_id, from_="@a@b.test"))


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
        await world.bell.until(lambda: len(case.owner.failures) == 1)
    assert 1 in case.recorder
    case.recorder.write()
    await alice.until_ids(1)


async def test_without_a_ledger_its_owner_hears_that_it_fell_behind(world: World, alice: Agent, case: Case) -> None:
    await world.store.ledger.forget(alice.key)
    case.recorder.keep(pushed(1))
    case.recorder.write()
    await world.bell.until(lambda: case.owner.behind == 1)
    assert 1 in case.recorder


async def test_without_room_its_owner_hears_that_it_fell_behind(case: Case, parts: Parts) -> None:
    for id_ in range(1, parts.ctx.settings.pending_limit + 2):
        case.recorder.keep(pushed(id_))
    assert case.owner.behind == 1


async def test_a_fault_of_ours_is_not_tried_for_ever(
    world: World, alice: Agent, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    append = world.store.ledger.append
    vars(world.store.ledger)["append"] = broken
    case.recorder.keep(pushed(1))
    case.recorder.write()
    await world.bell.until(lambda: len(case.owner.failures) == 1)
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
    await world.bell.until(lambda: bool(case.owner.checks))
    assert {entry.id: entry.root for entry in await alice.entries()} == {root + 1: root, root + 2: 0}


async def test_a_closing_recorder_finishes_its_write(alice: Agent, case: Case) -> None:
    case.recorder.keep(pushed(1))
    case.recorder.write()
    await case.recorder.close()
    assert [entry.id for entry in await alice.entries()] == [1]
    await case.recorder.close()
