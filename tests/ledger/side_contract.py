"""What activations, fleets, documents and tasks promise, wherever they are kept. Subclassed per backend."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec
import pytest

from ledger.port import Activations, DeferredTask, DeferredTasks, Documents, FeedReport, Fleet, Member
from ledger.values import CallerKey

ANN = CallerKey("a" * 32)
BEN = CallerKey("b" * 32)
URL = "https://here.test"


class Side(NamedTuple):
    """One backend, as one process sees it."""

    activations: Activations
    fleet: Fleet
    documents: Documents
    deferred: DeferredTasks


async def activate(side: Side, caller: CallerKey = ANN, *, token: str | None = "t1", life_s: float = 60.0) -> None:
    expires_at_s = round(time.time() + life_s, 3)
    await side.activations.activate(
        caller, address="@ann@here.test", api_url=URL, token=token, token_expires_at_s=expires_at_s
    )


def live(state: str = "live") -> FeedReport:
    return FeedReport(state=state, daemon="daemon-one", since_s=5.0)


async def beat(side: Side, *names: str) -> None:
    for name in names:
        await side.fleet.beat(Member(id=name, name=name, since_s=1.0))


def a_task() -> DeferredTask:
    """One that is due."""
    return DeferredTask(kind="delete_draft", caller=ANN, message_id=2**63 - 1, due_s=time.time() - 10)


class ActivationsContract:
    async def test_what_was_left_is_found(self, side: Side) -> None:
        await activate(side)
        found = await side.activations.get(ANN)
        assert found is not None
        assert (found.caller, found.address, found.api_url, found.token) == (ANN, "@ann@here.test", URL, "t1")
        assert abs(found.asked_at_s - time.time()) < 30
        assert found.token_expires_at_s > time.time()
        assert list(await side.activations.active()) == [ANN]

    async def test_a_feed_is_settled_while_it_is_live_and_has_what_it_needs(self, side: Side) -> None:
        asked = [BEN, ANN, BEN]
        assert list(await side.activations.settled(asked)) == [False, False, False]
        await side.activations.report(ANN, live())
        await side.activations.report(BEN, live("backing_off"))
        assert list(await side.activations.settled(asked)) == [False, True, False]
        needy = msgspec.structs.replace(live(), needs_credential=True)
        await side.activations.report(ANN, needy)
        await side.activations.report(BEN, live())
        assert list(await side.activations.settled(asked)) == [True, False, True]
        assert list(await side.activations.settled([])) == []

    async def test_nobody_is_active_at_first(self, side: Side) -> None:
        assert await side.activations.get(ANN) is None
        assert list(await side.activations.active()) == []
        assert await side.activations.feed(ANN) is None

    async def test_many_are(self, side: Side) -> None:
        callers = [CallerKey(f"{number:032x}") for number in range(100)]
        for caller in callers:
            await activate(side, caller)
        assert sorted(await side.activations.active()) == callers

    async def test_without_a_token_the_one_left_before_stays(self, side: Side) -> None:
        await activate(side)
        await activate(side, token=None)
        await activate(side, token="stale", life_s=-1.0)
        found = await side.activations.get(ANN)
        assert found is not None
        assert found.token == "t1"
        assert found.token_expires_at_s > time.time()

    async def test_without_any_token_there_is_none(self, side: Side) -> None:
        await activate(side, token=None)
        found = await side.activations.get(ANN)
        assert found is not None
        assert (found.token, found.token_expires_at_s) == (None, 0.0)

    async def test_a_new_token_replaces_the_old_one(self, side: Side) -> None:
        await activate(side)
        await activate(side, token="t2", life_s=120.0)
        found = await side.activations.get(ANN)
        assert found is not None
        assert found.token == "t2"

    async def test_an_expired_token_is_not_left(self, side: Side) -> None:
        await activate(side, life_s=-5.0)
        found = await side.activations.get(ANN)
        assert found is not None
        assert found.token is None

    async def test_retiring_ends_it(self, side: Side) -> None:
        await activate(side)
        await activate(side, BEN)
        await side.activations.report(ANN, live())
        assert await side.activations.retire(ANN)
        assert await side.activations.get(ANN) is None
        assert await side.activations.feed(ANN) is None
        assert list(await side.activations.active()) == [BEN]

    async def test_retiring_somebody_unknown_is_harmless(self, side: Side) -> None:
        assert await side.activations.retire(ANN)

    async def test_who_asked_again_is_not_retired(self, side: Side) -> None:
        await activate(side)
        found = await side.activations.get(ANN)
        assert found is not None
        assert not await side.activations.retire(ANN, unless_asked_since_s=found.asked_at_s - 1.0)
        assert await side.activations.get(ANN) is not None
        assert await side.activations.retire(ANN, unless_asked_since_s=found.asked_at_s)
        assert await side.activations.get(ANN) is None

    async def test_the_last_report_of_a_feed_is_kept(self, side: Side) -> None:
        report = FeedReport(state="refused", daemon="d1", since_s=5.0, error="403: no", needs_credential=True)
        await side.activations.report(ANN, live())
        await side.activations.report(ANN, report)
        assert await side.activations.feed(ANN) == report
        assert await side.activations.feed(BEN) is None


class FleetContract:
    async def test_members_are_those_whose_heart_beats(self, side: Side) -> None:
        assert list(await side.fleet.members()) == []
        await beat(side, "d2", "d1")
        changed = Member(id="d1", name="one", since_s=1.0, load=7, draining=True)
        await side.fleet.beat(changed)
        members = await side.fleet.members()
        assert [member.id for member in members] == ["d1", "d2"]
        assert members[0] == changed

    async def test_who_leaves_is_gone_at_once(self, side: Side) -> None:
        await beat(side, "d1", "d2")
        await side.fleet.leave("d1")
        await side.fleet.leave("d1")
        assert [member.id for member in await side.fleet.members()] == ["d2"]

    async def test_daemons_share_the_moments_at_which_they_may_connect(self, side: Side) -> None:
        """Slots follow each other evenly, whoever reserves them, and none lies further ahead than asked."""
        first = await side.fleet.reserve_connects(3, per_s=1.0, within_s=10.0)
        assert (first.count, first.first_in_s, first.every_s) == (3, 0.0, 1.0)
        second = await side.fleet.reserve_connects(100, per_s=1.0, within_s=5.0)
        assert 2.0 < second.first_in_s <= 3.0
        assert second.count in {2, 3}
        third = await side.fleet.reserve_connects(1, per_s=1.0, within_s=1.0)
        assert third.count == 0
        assert third.first_in_s > 1.0

    async def test_what_nobody_holds_is_taken(self, side: Side) -> None:
        await beat(side, "d1")
        taken = await side.fleet.take([ANN, BEN], "d1", over={})
        assert {caller: lease.daemon for caller, lease in taken.items()} == {ANN: "d1", BEN: "d1"}

    async def test_taking_again_changes_nothing(self, side: Side) -> None:
        await beat(side, "d1")
        first = await side.fleet.take([ANN, BEN], "d1", over={})
        assert await side.fleet.take([ANN, BEN, ANN], "d1", over={}) == first

    async def test_what_a_living_daemon_holds_stays_its_own(self, side: Side) -> None:
        await beat(side, "d1", "d2")
        held = await side.fleet.take([ANN], "d1", over={})
        assert await side.fleet.take([ANN], "d2", over={}) == held
        assert await side.fleet.take([ANN], "d2", over={ANN: "d3"}) == held

    async def test_a_dead_daemons_leases_are_free(self, side: Side) -> None:
        await beat(side, "d1", "d2")
        held = await side.fleet.take([ANN], "d1", over={})
        await side.fleet.leave("d1")
        taken = await side.fleet.take([ANN], "d2", over={})
        assert taken[ANN].daemon == "d2"
        assert taken[ANN].epoch > held[ANN].epoch

    async def test_a_lease_is_handed_over_from_the_one_named(self, side: Side) -> None:
        await beat(side, "d1", "d2")
        held = await side.fleet.take([ANN, BEN], "d1", over={})
        taken = await side.fleet.take([ANN, BEN], "d2", over={ANN: "d1"})
        assert taken[ANN].daemon == "d2"
        assert taken[ANN].epoch > held[ANN].epoch
        assert taken[BEN] == held[BEN]
        assert (await side.fleet.take([ANN], "d1", over={}))[ANN] == taken[ANN]

    async def test_only_ones_own_leases_are_given_up(self, side: Side) -> None:
        await beat(side, "d1", "d2")
        first = await side.fleet.take([ANN], "d1", over={})
        await side.fleet.release([ANN, BEN], "d2")
        assert await side.fleet.take([ANN], "d2", over={}) == first
        await side.fleet.release([ANN], "d1")
        taken = await side.fleet.take([ANN], "d2", over={})
        assert taken[ANN].daemon == "d2"
        assert taken[ANN].epoch > first[ANN].epoch

    async def test_thousands_at_once(self, side: Side) -> None:
        await beat(side, "d1", "d2")
        callers = [CallerKey(f"{number:032x}") for number in range(3_000)]
        taken = await side.fleet.take(callers, "d1", over={})
        assert sorted(taken) == callers
        moved = await side.fleet.take(callers, "d2", over=dict.fromkeys(callers, "d1"))
        assert {lease.daemon for lease in moved.values()} == {"d2"}
        await side.fleet.release(callers, "d2")

    async def test_the_leases_of_the_dead_are_swept(self, side: Side) -> None:
        await beat(side, "d1", "d2")
        mine = await side.fleet.take([ANN], "d1", over={})
        theirs = await side.fleet.take([BEN], "d2", over={})
        await side.fleet.leave("d2")
        assert await side.fleet.sweep() == 1
        assert await side.fleet.sweep() == 0
        assert await side.fleet.take([ANN], "d3", over={}) == mine
        assert (await side.fleet.take([BEN], "d1", over={}))[BEN].epoch > theirs[BEN].epoch

    async def test_nothing_to_take(self, side: Side) -> None:
        assert dict(await side.fleet.take([], "d1", over={})) == {}


class DocumentsContract:
    async def test_nothing_is_there_at_first(self, side: Side) -> None:
        found = await side.documents.load(ANN, "sub", "main")
        assert (found.data, found.version) == (b"", 0)
        assert list(await side.documents.names(ANN, "sub")) == []
        assert not await side.documents.delete(ANN, "sub", "main")

    async def test_what_is_stored_is_loaded(self, side: Side) -> None:
        assert await side.documents.store(ANN, "sub", "main", b"\x00\xff", expected=0, ttl_s=60.0)
        found = await side.documents.load(ANN, "sub", "main")
        assert found.data == b"\x00\xff"
        assert found.version > 0

    async def test_only_who_knows_the_version_may_change_it(self, side: Side) -> None:
        store = side.documents.store
        assert await store(ANN, "sub", "main", b"1", expected=0, ttl_s=60.0)
        first = await side.documents.load(ANN, "sub", "main")
        assert not await store(ANN, "sub", "main", b"x", expected=0, ttl_s=60.0)
        assert await store(ANN, "sub", "main", b"2", expected=first.version, ttl_s=60.0)
        assert not await store(ANN, "sub", "main", b"x", expected=first.version, ttl_s=60.0)
        second = await side.documents.load(ANN, "sub", "main")
        assert second.data == b"2"
        assert second.version > first.version

    async def test_a_version_never_comes_again(self, side: Side) -> None:
        store = side.documents.store
        assert await store(ANN, "sub", "main", b"1", expected=0, ttl_s=60.0)
        first = await side.documents.load(ANN, "sub", "main")
        assert await side.documents.delete(ANN, "sub", "main")
        assert await store(ANN, "sub", "main", b"2", expected=0, ttl_s=60.0)
        assert not await store(ANN, "sub", "main", b"x", expected=first.version, ttl_s=60.0)

    async def test_names_are_those_of_the_caller_and_kind_sorted(self, side: Side) -> None:
        for caller, kind, name in [(ANN, "sub", "b"), (ANN, "sub", "a:{x}"), (ANN, "idem", "c"), (BEN, "sub", "d")]:
            assert await side.documents.store(caller, kind, name, b"1", expected=0, ttl_s=60.0)
        assert list(await side.documents.names(ANN, "sub")) == ["a:{x}", "b"]
        await side.documents.delete(ANN, "sub", "b")
        assert list(await side.documents.names(ANN, "sub")) == ["a:{x}"]


class DeferredTasksContract:
    @pytest.fixture
    def task(self) -> DeferredTask:
        return a_task()

    async def test_a_task_is_due_until_it_is_done(self, side: Side, task: DeferredTask) -> None:
        await side.deferred.add(task)
        assert list(await side.deferred.due(10)) == [task]
        assert await side.deferred.depth() == 1
        await side.deferred.done(task)
        await side.deferred.done(task)
        assert list(await side.deferred.due(10)) == []
        assert await side.deferred.depth() == 0

    async def test_not_before_its_time(self, side: Side, task: DeferredTask) -> None:
        await side.deferred.add(msgspec.structs.replace(task, due_s=time.time() + 60))
        assert list(await side.deferred.due(10)) == []
        assert await side.deferred.depth() == 1

    async def test_adding_it_again_changes_due_time_and_attempts(self, side: Side, task: DeferredTask) -> None:
        await side.deferred.add(task)
        again = msgspec.structs.replace(task, due_s=task.due_s + 5.5, attempts=3)
        await side.deferred.add(again)
        assert list(await side.deferred.due(10)) == [again]

    async def test_the_oldest_first_and_no_more_than_asked(self, side: Side, task: DeferredTask) -> None:
        tasks = [msgspec.structs.replace(task, message_id=number, due_s=task.due_s - number) for number in range(1, 6)]
        for one in tasks:
            await side.deferred.add(one)
        assert [one.message_id for one in await side.deferred.due(3)] == [5, 4, 3]
