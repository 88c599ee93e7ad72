"""What every ledger promises (`ledger.port`), whatever it is kept in."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from fmsg.reference import MAX_ID
from ledger.catch_up import read_image
from ledger.port import NoLedger, StaleEpoch
from ledger.values import END, START, Arrival, Baseline, CallerKey, Head, Image, Seen, StreamId
from tests.contract.backends import Backend
from tests.contract.conftest import MAX_ENTRIES
from tests.within import within

ALICE = CallerKey("a" * 32)
BOB = CallerKey("b" * 32)
NOON_S = 1_764_504_000.1234567
"""A time in the past that takes all 17 digits of a double."""


def seen(message_id: int, **fields: object) -> Seen:
    """A message with everything else made up."""
    values = {"id": message_id, "pid": None, "root": message_id, "from_": "@bob@b.test", "sent_at_s": NOON_S, **fields}
    return Seen(**values)  # type: ignore[arg-type]  # the fields are those of Seen


async def everything(backend: Backend, caller: CallerKey = ALICE) -> tuple[Arrival, ...]:
    """All entries that the ledger holds."""
    return (await backend.ledger.read(caller, START, 10_000)).entries


async def test_no_ledger_is_said_where_none_was_begun(backend: Backend) -> None:
    ledger = backend.ledger
    assert await ledger.state(ALICE) is None
    for call in (
        ledger.append(ALICE, [seen(1)], "push"),
        ledger.read(ALICE, START, 10),
        ledger.read_back(ALICE, 10),
        ledger.find(ALICE, [1]),
        ledger.set_roots(ALICE, {1: 1}),
        ledger.compare(ALICE, [seen(1)]),
    ):
        with pytest.raises(NoLedger, match="Begin one"):
            await call
    assert await ledger.state(ALICE) is None


async def test_heads_tell_what_became_of_many_ledgers(backend: Backend) -> None:
    """A head moves with each append and with each new life, and with nothing else."""
    ledger = backend.ledger
    assert list(await ledger.heads([ALICE, BOB])) == [None, None]
    empty = await ledger.begin(ALICE, [], Baseline())
    assert list(await ledger.heads([BOB, ALICE])) == [None, empty.head]
    grown = (await ledger.append(ALICE, [seen(1)], "push")).state
    assert grown.head != empty.head
    await ledger.append(ALICE, [seen(1)], "backfill")
    await ledger.note_returned(ALICE, above=[1])
    assert list(await ledger.heads([ALICE])) == [grown.head]
    await ledger.forget(ALICE)
    assert list(await ledger.heads([ALICE])) == [None]
    again = await ledger.begin(ALICE, [], Baseline())
    assert list(await ledger.heads([ALICE])) == [again.head] != [empty.head]
    assert list(await ledger.heads([])) == []


async def test_a_ledger_can_begin_empty(backend: Backend) -> None:
    state = await backend.ledger.begin(ALICE, [], Baseline(newest_id=7, time_s=NOON_S))
    assert (state.last, state.low) == (START, START)
    assert state.baseline == state.settled == Baseline(newest_id=7, time_s=NOON_S)
    assert await everything(backend) == ()
    appended = await backend.ledger.append(ALICE, [seen(8)], "push")
    assert [arrival.id for arrival in appended.new] == [8]
    assert (appended.before, appended.state.last) == (START, appended.new[0].at)


async def test_entries_come_back_as_they_went_in(backend: Backend) -> None:
    rows = [
        seen(11, pid=None, root=0),
        seen(12, pid=11, root=11, no_reply=True, from_="@jürgen@例え.test"),
        seen(MAX_ID, pid=MAX_ID - 1, root=MAX_ID - 2, reaction=True, sent_at_s=0.0),
        seen(14, terminal=True, sent_at_s=time.time() + 3600.0),
    ]
    await backend.ledger.begin(ALICE, [], Baseline())
    await backend.ledger.append(ALICE, rows, "reconcile")
    for row, arrival in zip(rows, await everything(backend), strict=True):
        for name in Seen.__struct_fields__:
            assert getattr(arrival, name) == getattr(row, name), name
        assert arrival.source == "reconcile"
        assert abs(arrival.arrived_at_s - time.time()) < 60.0


@pytest.mark.parametrize("source", ["push", "backfill", "reconcile", "poll"])
async def test_each_source_is_kept(backend: Backend, source: str) -> None:
    await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    await backend.ledger.append(ALICE, [seen(2)], source)  # type: ignore[arg-type]  # the parameters are sources
    assert [arrival.source for arrival in await everything(backend)] == ["snapshot", source]


async def test_ids_grow_and_appending_twice_is_harmless(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(5), seen(6)], Baseline(newest_id=6))
    first = await backend.ledger.append(ALICE, [seen(9), seen(7), seen(9), seen(5)], "push")
    assert [arrival.id for arrival in first.new] == [9, 7]
    assert first.duplicates == 2
    again = await backend.ledger.append(ALICE, [seen(9), seen(7), seen(8)], "backfill")
    assert [arrival.id for arrival in again.new] == [8]
    assert again.duplicates == 2
    assert (again.before, again.state.last) == (first.new[-1].at, again.new[-1].at)
    entries = await everything(backend)
    assert [arrival.id for arrival in entries] == [5, 6, 9, 7, 8]
    assert entries[2:] == (*first.new, *again.new)
    places = [arrival.at for arrival in entries]
    assert places == sorted(set(places))
    assert again.state.low == START


@pytest.mark.parametrize("count", [3, 15])
async def test_an_id_twice_in_a_batch_counts_once(backend: Backend, count: int) -> None:
    batch = [seen(k) for k in range(1, count + 1)]
    await backend.ledger.begin(ALICE, [*batch, *batch], Baseline())
    assert len(await everything(backend)) == count
    more = [seen(k) for k in range(2, count + 3)]
    appended = await backend.ledger.append(ALICE, [*more, *more], "poll")
    assert [arrival.id for arrival in appended.new] == [count + 1, count + 2]
    assert appended.duplicates == 2 * len(more) - 2


async def test_callers_do_not_mix(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    await backend.ledger.begin(BOB, [], Baseline())
    await backend.ledger.append(BOB, [seen(1), seen(2)], "push")
    assert [arrival.id for arrival in await everything(backend, ALICE)] == [1]
    assert [arrival.id for arrival in await everything(backend, BOB)] == [1, 2]


async def test_overlapping_appends_at_once_leave_each_id_once(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline())
    rng = random.Random(4)
    ids = list(range(1, MAX_ENTRIES + 1))
    batches = [rng.sample(ids, k=8) for _ in range(30)] + [ids]
    outcomes = await asyncio.gather(
        *(backend.ledger.append(ALICE, [seen(id_) for id_ in batch], "push") for batch in batches)
    )
    entries = await everything(backend)
    assert sorted(arrival.id for arrival in entries) == ids
    told = [new for outcome in outcomes for new in outcome.new]
    assert sorted(told, key=lambda arrival: arrival.at) == list(entries)
    assert sum(outcome.duplicates for outcome in outcomes) == sum(map(len, batches)) - len(ids)


async def test_arrival_times_never_go_back(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    before = await backend.ledger.append(ALICE, [seen(2)], "push")
    await backend.turn_back(ALICE, 3600.0)
    after = await backend.ledger.append(ALICE, [seen(3)], "push")
    times = [arrival.arrived_at_s for arrival in await everything(backend)]
    assert times == sorted(times)
    assert after.state.now_s >= before.state.now_s
    assert after.state.now_s >= times[-1]


async def test_the_clock_goes_on_after_a_step_back(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline())
    await backend.turn_back(ALICE, 3600.0)
    stepped = await backend.ledger.append(ALICE, [seen(1)], "push")
    while True:  # a settle window that is measured by a clock that stands would never end
        state = await backend.ledger.state(ALICE)
        assert state is not None
        if state.now_s > stepped.state.now_s:
            break
    assert state.now_s - stepped.state.now_s < 60.0


async def test_a_snapshot_arrived_when_it_was_sent_but_never_later_than_now(backend: Backend) -> None:
    future_s = time.time() + 7200.0
    state = await backend.ledger.begin(ALICE, [seen(1), seen(2, sent_at_s=future_s)], Baseline())
    old, odd = await everything(backend)
    assert old.arrived_at_s == pytest.approx(NOON_S, abs=1e-3)
    assert old.arrived_at_s <= old.sent_at_s
    assert odd.arrived_at_s <= state.now_s < future_s
    assert odd.sent_at_s == future_s


async def test_only_the_first_begin_counts(backend: Backend) -> None:
    states = await asyncio.gather(
        *(backend.ledger.begin(ALICE, [seen(k), seen(100)], Baseline(newest_id=k)) for k in range(1, 9))
    )
    assert len({state.epoch for state in states}) == 1
    assert len({state.baseline for state in states}) == 1
    winner = states[0].baseline.newest_id
    assert [arrival.id for arrival in await everything(backend)] == [winner, 100]


async def test_trimming_is_exact_and_moves_the_baseline(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline(newest_id=50, time_s=NOON_S))
    for k in range(1, MAX_ENTRIES + 1):
        await backend.ledger.append(ALICE, [seen(k, sent_at_s=NOON_S + 100.0 - k)], "push")
    full = await backend.ledger.state(ALICE)
    assert full is not None
    assert full.baseline == Baseline(newest_id=50, time_s=NOON_S)
    first = (await everything(backend))[0]
    state = (await backend.ledger.append(ALICE, [seen(1000)], "push")).state
    assert state.low == first.at
    assert state.baseline == Baseline(newest_id=50, time_s=NOON_S + 99.0)
    assert not (await backend.ledger.find(ALICE, [1])).entries
    beyond = await backend.ledger.append(ALICE, [seen(2000 + k) for k in range(MAX_ENTRIES + 5)], "poll")
    assert len(beyond.new) == MAX_ENTRIES + 5
    assert beyond.state.baseline.newest_id == 2004
    assert beyond.state.low == beyond.new[4].at
    assert await everything(backend) == beyond.new[5:]


async def test_a_ledger_trims_its_snapshot_too(backend: Backend) -> None:
    snapshot = [seen(k) for k in range(1, MAX_ENTRIES + 4)]
    state = await backend.ledger.begin(ALICE, snapshot, Baseline(newest_id=MAX_ENTRIES + 3))
    entries = await everything(backend)
    assert [arrival.id for arrival in entries] == list(range(4, MAX_ENTRIES + 4))
    assert START < state.low < entries[0].at
    assert state.last == entries[-1].at


@pytest.mark.parametrize("base", [0, 2**53 - 2, 10**18, MAX_ID - MAX_ENTRIES - 3])
async def test_ids_of_any_size_are_exact(backend: Backend, base: int) -> None:
    ids = [base + k for k in range(1, MAX_ENTRIES + 4)]
    await backend.ledger.begin(ALICE, [], Baseline(newest_id=base))
    appended = await backend.ledger.append(ALICE, [seen(id_, pid=id_, root=id_) for id_ in ids], "push")
    assert [arrival.id for arrival in appended.new] == ids
    entries = await everything(backend)
    assert [(arrival.id, arrival.pid, arrival.root) for arrival in entries] == [(id_, id_, id_) for id_ in ids[3:]]
    assert appended.state.baseline.newest_id == ids[2]
    found = await backend.ledger.find(ALICE, ids)
    assert found.entries == {arrival.id: arrival for arrival in entries}


async def test_the_baseline_compares_ids_as_numbers(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline(newest_id=9))
    appended = await backend.ledger.append(
        ALICE, [seen(10), *(seen(k) for k in range(100, 99 + MAX_ENTRIES + 1))], "push"
    )
    assert appended.state.baseline.newest_id == 10


async def test_reading_in_both_directions(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline())
    await backend.ledger.append(ALICE, [seen(id_) for id_ in range(1, MAX_ENTRIES + 6)], "push")
    entries = await everything(backend)
    first, last = entries[0].at, entries[-1].at

    async def forth(after: StreamId, limit: int) -> list[Arrival]:
        got = await backend.ledger.read(ALICE, after, limit)
        assert got.state.last == last
        return list(got.entries)

    async def back(before: StreamId, limit: int) -> list[Arrival]:
        return list((await backend.ledger.read_back(ALICE, limit, before=before)).entries)

    assert await forth(START, 3) == list(entries[:3])
    assert await forth(first, 2) == list(entries[1:3])
    assert await forth(first.before(), 1) == [entries[0]]
    assert await forth(entries[-2].at, 10) == [entries[-1]]
    assert await forth(last, 10) == []
    assert await forth(END, 10) == []
    assert await forth(START, 0) == []
    assert await back(END, 2) == list(entries[-2:])
    assert await back(last, 2) == list(entries[-3:-1])
    assert await back(entries[2].at, 10) == list(entries[:2])
    assert await back(first, 10) == []
    assert await back(START, 10) == []
    assert await back(END, 0) == []
    assert list((await backend.ledger.read_back(ALICE, 1)).entries) == [entries[-1]]


async def test_late_roots_fill_in_the_unknown_ones(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(1, root=0)], Baseline())
    await backend.ledger.append(ALICE, [seen(2, pid=1, root=0), seen(3, pid=2, root=0), seen(4, root=4)], "push")
    await backend.ledger.set_roots(ALICE, {1: 1, 3: MAX_ID, 4: 7, 99: 5})
    await backend.ledger.set_roots(ALICE, {3: 3})
    entries = await everything(backend)
    assert [(arrival.id, arrival.pid, arrival.root) for arrival in entries] == [
        (1, None, 1),
        (2, 1, 0),
        (3, 2, MAX_ID),
        (4, None, 4),
    ]
    assert [arrival.from_ for arrival in entries] == ["@bob@b.test"] * 4
    assert (await backend.ledger.find(ALICE, [3])).entries[3] == entries[2]
    assert (await backend.ledger.read_back(ALICE, 9)).entries == entries


async def test_what_was_handed_out_is_found_held_or_trimmed(backend: Backend) -> None:
    begun = await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    appended = await backend.ledger.append(ALICE, [seen(3)], "push")
    held = {arrival.id: arrival for arrival in await everything(backend)}
    assert await backend.ledger.note_returned(ALICE, above=[3], position=2, head=Head(begun.epoch, held[2].at))
    found = await backend.ledger.find(ALICE, [3, 2, 1, 77])
    assert found.entries.keys() == {1, 2, 3}
    assert found.handed_out == {2}
    assert found.state.head == appended.state.head
    assert (await backend.ledger.find(ALICE, [])).entries == {}
    await backend.ledger.append(ALICE, [seen(100 + k) for k in range(MAX_ENTRIES)], "push")
    found = await backend.ledger.find(ALICE, [3, 2, 1])
    assert not found.entries
    assert found.handed_out == {2}


async def test_entries_say_what_was_returned_above_a_position(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(11)], Baseline())
    await backend.ledger.begin(BOB, [seen(12)], Baseline())
    await backend.ledger.append(ALICE, [seen(12), seen(13), seen(MAX_ID)], "push")
    await backend.ledger.note_returned(ALICE, above=[MAX_ID, 12])
    assert [arrival.returned for arrival in await everything(backend)] == [False, True, False, True]
    assert [arrival.returned for arrival in (await backend.ledger.read_back(ALICE, 2)).entries] == [False, True]
    found = (await backend.ledger.find(ALICE, [11, 12])).entries
    assert (found[11].returned, found[12].returned) == (False, True)
    assert not (await everything(backend, BOB))[0].returned


async def test_returned_marks_outlive_a_new_epoch_but_positions_do_not(backend: Backend) -> None:
    assert not await backend.ledger.note_returned(ALICE, above=[2], position=1, head=Head("none", START))
    begun = await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    assert [arrival.returned for arrival in await everything(backend)] == [False, True]
    assert (await backend.ledger.find(ALICE, [1])).handed_out == frozenset()
    assert await backend.ledger.note_returned(ALICE, position=2, head=begun.head)
    assert (await backend.ledger.find(ALICE, [2])).handed_out == {2}


async def test_forgetting_leaves_nothing(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    await backend.ledger.note_returned(ALICE, above=[1])
    await backend.ledger.forget(ALICE)
    assert await backend.ledger.state(ALICE) is None
    await backend.ledger.forget(ALICE)
    await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    assert not (await everything(backend))[0].returned


async def test_a_wiped_store_gives_a_new_epoch(backend: Backend) -> None:
    first = await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    await backend.wipe()
    with pytest.raises(NoLedger):
        await backend.ledger.append(ALICE, [seen(2)], "push")
    second = await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    assert second.epoch != first.epoch
    assert len(await everything(backend)) == 2


async def test_notifications_tell_of_what_is_new_only(backend: Backend) -> None:
    told: list[str] = []
    woken = asyncio.Event()

    def wake(who: str) -> None:
        told.append(who)
        woken.set()

    await backend.ledger.begin(ALICE, [], Baseline())
    await backend.ledger.begin(BOB, [], Baseline())
    end_alice = backend.notifications.listen(ALICE, lambda: wake("alice"))
    backend.notifications.listen(BOB, lambda: wake("bob"))
    async with backend.notifications.running():
        connected = getattr(backend.notifications, "connected", None)
        if connected is not None:
            await within(connected.wait(), 10)
            await within(woken.wait(), 10)

        async def woken_by(caller: CallerKey, *calls: object) -> list[str]:
            """Who is woken when a caller's ledger does what is asked; Bob's marks the end. A hint may come twice."""
            told.clear()
            for call in calls:
                await call  # type: ignore[misc]  # they are calls of the ledger
            while "bob" not in told:
                woken.clear()
                await backend.ledger.append(BOB, [seen(random.getrandbits(60) + 1)], "push")
                await within(woken.wait(), 10)
            return sorted({who for who in told if who != "bob"})

        append, roots = backend.ledger.append, backend.ledger.set_roots
        assert await woken_by(ALICE, append(ALICE, [seen(1, root=0), seen(2)], "push")) == ["alice"]
        assert await woken_by(ALICE, append(ALICE, [seen(2)], "push"), append(ALICE, [], "poll")) == []
        assert await woken_by(ALICE, roots(ALICE, {1: 42})) == ["alice"]
        assert await woken_by(ALICE, roots(ALICE, {1: 42, 99: 1})) == []
        end_alice()
        end_alice()
        assert await woken_by(ALICE, append(ALICE, [seen(3)], "push")) == []


class TestRestoring:
    """A daemon writes back what the store lost."""

    async def kept(self, backend: Backend) -> Image:
        """An image of a ledger with two snapshot entries and three arrivals."""
        await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline(newest_id=2, time_s=NOON_S))
        await backend.ledger.append(ALICE, [seen(3, pid=1, root=1, no_reply=True), seen(4)], "push")
        image = await read_image(backend.ledger, ALICE)
        grown = image.grown(await backend.ledger.append(ALICE, [seen(5)], "reconcile", verified_id=5))
        assert grown is not None
        return grown

    async def test_a_flushed_ledger_goes_on_as_it_was(self, backend: Backend) -> None:
        image = await self.kept(backend)
        entries, before = await everything(backend), await backend.ledger.state(ALICE)
        assert before is not None
        await backend.wipe()
        state = await backend.ledger.restore(ALICE, image)
        assert await everything(backend) == entries
        assert (state.head, state.low, state.verified_id) == (before.head, before.low, before.verified_id)
        assert (state.baseline, state.settled) == (before.baseline, before.settled)
        assert (await backend.ledger.read(ALICE, entries[3].at, 9, since=before.head)).entries == entries[4:]
        assert (await backend.ledger.compare(ALICE, [seen(k) for k in range(1, 7)])).news == {6}
        appended = await backend.ledger.append(ALICE, [seen(6), seen(5)], "push", since=before.head)
        assert [arrival.id for arrival in appended.new] == [6]
        assert appended.new[0].at > before.last

    async def test_a_ledger_that_lacks_nothing_stays_as_it_is(self, backend: Backend) -> None:
        image = await self.kept(backend)
        await backend.ledger.append(ALICE, [seen(6)], "push")
        entries, before = await everything(backend), await backend.ledger.state(ALICE)
        after = await backend.ledger.restore(ALICE, image)
        assert before is not None
        assert after.head == before.head
        assert await everything(backend) == entries

    async def test_one_in_another_life_stays_as_it_is(self, backend: Backend) -> None:
        image = await self.kept(backend)
        await backend.wipe()
        begun = await backend.ledger.begin(ALICE, [seen(5)], Baseline(newest_id=5))
        assert (await backend.ledger.restore(ALICE, image)).head == begun.head
        assert [arrival.id for arrival in await everything(backend)] == [5]

    async def test_a_lost_end_comes_back_under_its_ids(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [seen(1)], Baseline(newest_id=1))
        lagging = await backend.keep(ALICE)
        await backend.ledger.append(ALICE, [seen(2), seen(3)], "push", verified_id=3)
        image, entries = await read_image(backend.ledger, ALICE), await everything(backend)
        await lagging()
        assert len(await everything(backend)) == 1
        state = await backend.ledger.restore(ALICE, image)
        assert await everything(backend) == entries
        assert (state.head, state.verified_id) == (image.state.head, 3)

    async def test_where_something_came_meanwhile_the_lost_end_comes_anew(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [seen(1)], Baseline(newest_id=1))
        lagging = await backend.keep(ALICE)
        lost = await backend.ledger.append(ALICE, [seen(2), seen(3)], "push")
        image = await read_image(backend.ledger, ALICE)
        await lagging()
        while True:
            meanwhile = await backend.ledger.append(ALICE, [seen(4)], "push")
            if meanwhile.new[0].at > lost.state.last:
                break
            await lagging()
        await backend.ledger.restore(ALICE, image)
        entries = await everything(backend)
        assert [arrival.id for arrival in entries] == [1, 4, 2, 3]
        assert entries[2].at > meanwhile.state.last
        with pytest.raises(StaleEpoch):
            await backend.ledger.read(ALICE, lost.state.last, 9, since=lost.state.head)

    async def test_what_the_ledger_trimmed_since_is_not_added_again(self, backend: Backend) -> None:
        image = await self.kept(backend)
        await backend.ledger.append(ALICE, [seen(100 + k) for k in range(MAX_ENTRIES)], "push")
        before = await backend.ledger.state(ALICE)
        assert before is not None
        assert (await backend.ledger.restore(ALICE, image)).head == before.head
        assert (await backend.ledger.compare(ALICE, [seen(k) for k in range(1, 6)])).news == frozenset()

    async def test_an_end_with_a_hole_before_it_verifies_nothing(self, backend: Backend) -> None:
        """What lay in the hole is found by the next comparison."""
        await backend.ledger.begin(ALICE, [seen(1)], Baseline(newest_id=1))
        lagging = await backend.keep(ALICE)
        await backend.ledger.append(ALICE, [seen(2), seen(3)], "push", verified_id=3)
        image = Image.of(await backend.ledger.read_back(ALICE, 1), whole=False)
        await lagging()
        state = await backend.ledger.restore(ALICE, image)
        assert [arrival.id for arrival in await everything(backend)] == [1, 3]
        assert state.verified_id == 1
        assert (await backend.ledger.compare(ALICE, [seen(2)])).news == {2}

    async def test_an_empty_ledger_comes_back_empty(self, backend: Backend) -> None:
        begun = await backend.ledger.begin(ALICE, [], Baseline(newest_id=9))
        image = await read_image(backend.ledger, ALICE)
        await backend.wipe()
        restored = await backend.ledger.restore(ALICE, image)
        assert (restored.head, restored.baseline, restored.low) == (begun.head, begun.baseline, START)
        assert await everything(backend) == ()

    async def test_positions_of_the_ids_are_forgotten_with_the_store(self, backend: Backend) -> None:
        image = await self.kept(backend)
        await backend.ledger.note_returned(ALICE, position=5, head=image.state.head)
        await backend.wipe()
        await backend.ledger.restore(ALICE, image)
        assert (await backend.ledger.find(ALICE, [5])).handed_out == frozenset()
        assert await backend.ledger.note_returned(ALICE, position=5, head=image.state.head)
        assert (await backend.ledger.find(ALICE, [5])).handed_out == {5}

    async def test_an_image_below_which_nothing_was_read_begins_with_a_gap(self, backend: Backend) -> None:
        await self.kept(backend)
        image = Image.of(await backend.ledger.read_back(ALICE, 2), whole=False)
        await backend.wipe()
        state = await backend.ledger.restore(ALICE, image)
        assert [arrival.id for arrival in await everything(backend)] == [4, 5]
        assert START < state.low < image.entries[0].at


async def test_a_push_is_news_by_itself_but_is_not_appended_to_a_ledger_that_lost_its_end(backend: Backend) -> None:
    """What was found by comparing is appended only if it still is news."""
    state = await backend.ledger.begin(ALICE, (), Baseline(newest_id=50, time_s=NOON_S + 100.0))
    assert (await backend.ledger.append(ALICE, [seen(4)], "reconcile", since=state.head)).new == ()
    pushed = await backend.ledger.append(ALICE, [seen(4)], "push", since=state.head)
    assert [one.id for one in pushed.new] == [4]
    lost = Head(state.epoch, StreamId(pushed.state.last.ms + 60_000, 0))
    with pytest.raises(StaleEpoch):
        await backend.ledger.append(ALICE, [seen(5)], "push", since=lost)
    assert [one.id for one in await everything(backend)] == [4]
