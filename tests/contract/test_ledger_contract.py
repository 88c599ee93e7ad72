"""What every ledger promises (`ledger.port`), whatever it is kept in."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from fmsg.reference import MAX_ID
from ledger.limits import MAX_LATECOMERS
from ledger.port import NoLedger
from ledger.values import Arrival, Baseline, CallerKey, Latecomer, OutOfOrder, Seen
from tests.contract.backends import Backend
from tests.contract.conftest import MAX_ENTRIES

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
    return (await backend.ledger.read(caller, 0, 10_000)).entries


async def test_no_ledger_is_said_where_none_was_begun(backend: Backend) -> None:
    ledger = backend.ledger
    assert await ledger.state(ALICE) is None
    for call in (
        ledger.append(ALICE, [seen(1)], "push"),
        ledger.read(ALICE, 0, 10),
        ledger.read_back(ALICE, 10, 10),
        ledger.locate(ALICE, [1]),
        ledger.set_roots(ALICE, {1: 1}),
        ledger.out_of_order(ALICE),
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
    await ledger.note_returned(ALICE, above=[1], position=0)
    assert list(await ledger.heads([ALICE])) == [grown.head]
    await ledger.forget(ALICE)
    assert list(await ledger.heads([ALICE])) == [None]
    again = await ledger.begin(ALICE, [], Baseline())
    assert list(await ledger.heads([ALICE])) == [again.head] != [empty.head]
    assert list(await ledger.heads([])) == []


async def test_a_ledger_can_begin_empty(backend: Backend) -> None:
    state = await backend.ledger.begin(ALICE, [], Baseline(newest_id=7, time_s=NOON_S))
    assert (state.first_n, state.last_n, state.seed_n) == (1, 0, 0)
    assert state.baseline == Baseline(newest_id=7, time_s=NOON_S)
    assert await everything(backend) == ()
    appended = await backend.ledger.append(ALICE, [seen(8)], "push")
    assert appended.new == ((8, 1),)


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
    assert [arrival.source for arrival in await everything(backend)] == ["seed", source]


async def test_offsets_are_contiguous_and_appending_twice_is_harmless(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(5), seen(6)], Baseline(newest_id=6))
    first = await backend.ledger.append(ALICE, [seen(9), seen(7), seen(9), seen(5)], "push")
    assert first.new == ((9, 3), (7, 4))
    assert first.duplicates == 2
    again = await backend.ledger.append(ALICE, [seen(9), seen(7), seen(8)], "backfill")
    assert again.new == ((8, 5),)
    assert again.duplicates == 2
    assert (again.state.first_n, again.state.last_n, again.state.seed_n) == (1, 5, 2)
    assert [(arrival.n, arrival.id) for arrival in await everything(backend)] == [
        (1, 5),
        (2, 6),
        (3, 9),
        (4, 7),
        (5, 8),
    ]


@pytest.mark.parametrize("count", [3, 15])
async def test_an_id_twice_in_a_batch_counts_once(backend: Backend, count: int) -> None:
    batch = [seen(k) for k in range(1, count + 1)]
    state = await backend.ledger.begin(ALICE, [*batch, *batch], Baseline())
    assert state.last_n == count
    more = [seen(k) for k in range(2, count + 3)]
    appended = await backend.ledger.append(ALICE, [*more, *more], "poll")
    assert appended.new == ((count + 1, count + 1), (count + 2, count + 2))
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
    assert [arrival.n for arrival in entries] == ids
    assert sorted(arrival.id for arrival in entries) == ids
    told = sorted(new for outcome in outcomes for new in outcome.new)
    assert told == sorted((arrival.id, arrival.n) for arrival in entries)
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


async def test_seeds_arrive_when_they_were_sent_but_never_later_than_now(backend: Backend) -> None:
    future_s = time.time() + 7200.0
    state = await backend.ledger.begin(ALICE, [seen(1), seen(2, sent_at_s=future_s)], Baseline())
    old, odd = await everything(backend)
    assert old.arrived_at_s == pytest.approx(NOON_S, abs=1e-5)
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
    appended = await backend.ledger.append(ALICE, [seen(1000)], "push")
    state = appended.state
    assert (state.first_n, state.last_n) == (2, MAX_ENTRIES + 1)
    assert state.baseline == Baseline(newest_id=50, time_s=NOON_S + 99.0)
    assert not await backend.ledger.locate(ALICE, [1])
    beyond = await backend.ledger.append(ALICE, [seen(2000 + k) for k in range(MAX_ENTRIES + 5)], "poll")
    assert len(beyond.new) == MAX_ENTRIES + 5
    assert beyond.state.last_n - beyond.state.first_n + 1 == MAX_ENTRIES
    assert beyond.state.baseline.newest_id == 2004
    assert [arrival.n for arrival in await everything(backend)] == list(
        range(beyond.state.first_n, beyond.state.last_n + 1)
    )


async def test_what_was_recorded_out_of_the_order_of_ids_is_remembered(backend: Backend) -> None:
    began = Baseline(newest_id=40, time_s=NOON_S)
    await backend.ledger.begin(ALICE, [seen(31), seen(40), seen(35)], began)
    for ids in ([38], [41], [50, 44], [45, 60]):
        await backend.ledger.append(ALICE, [seen(id_) for id_ in ids], "push")
    await backend.ledger.append(ALICE, [seen(44), seen(31)], "poll")
    late = (Latecomer(n=3, id=35, top_id=40), Latecomer(n=4, id=38, top_id=40), Latecomer(n=7, id=44, top_id=50))
    order = await backend.ledger.out_of_order(ALICE)
    assert order == OutOfOrder(began=began, latecomers=(*late, Latecomer(n=8, id=45, top_id=50)))
    for k in range(MAX_ENTRIES):
        await backend.ledger.append(ALICE, [seen(100 + k)], "push")
    assert not await backend.ledger.locate(ALICE, [35, 38, 44, 45])
    assert await backend.ledger.out_of_order(ALICE) == order
    state = await backend.ledger.state(ALICE)
    assert state is not None
    assert state.baseline.newest_id > 40
    await backend.ledger.note_returned(ALICE, above=[], position=45)
    await backend.ledger.note_returned(ALICE, above=[], position=38, epoch=state.epoch, n=4)
    await backend.ledger.note_returned(ALICE, above=[], position=44, epoch="another", n=7)
    assert (await backend.ledger.out_of_order(ALICE, [35, 38, 44, 45, 99])).handed_out == {38, 45}


async def test_in_an_empty_ledger_what_was_there_before_is_above_what_comes_late(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline(newest_id=2**60, time_s=NOON_S))
    await backend.ledger.append(ALICE, [seen(7), seen(2**60 + 1)], "push")
    order = await backend.ledger.out_of_order(ALICE)
    assert order.latecomers == (Latecomer(n=1, id=7, top_id=2**60),)


async def test_of_very_many_out_of_order_the_newest_are_remembered(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline(newest_id=10_000))
    for start in range(0, MAX_LATECOMERS + 50, 50):
        await backend.ledger.append(ALICE, [seen(5_000 - k) for k in range(start, start + 50)], "push")
    latecomers = (await backend.ledger.out_of_order(ALICE)).latecomers
    assert [one.n for one in latecomers] == list(range(51, MAX_LATECOMERS + 51))
    assert latecomers[-1].id == 5_000 - MAX_LATECOMERS - 49


async def test_a_ledger_trims_its_seeds_too(backend: Backend) -> None:
    seeds = [seen(k) for k in range(1, MAX_ENTRIES + 4)]
    state = await backend.ledger.begin(ALICE, seeds, Baseline(newest_id=MAX_ENTRIES + 3))
    assert (state.first_n, state.last_n, state.seed_n) == (4, MAX_ENTRIES + 3, MAX_ENTRIES + 3)


@pytest.mark.parametrize("base", [0, 2**53 - 2, 10**18, MAX_ID - MAX_ENTRIES - 3])
async def test_ids_of_any_size_are_exact(backend: Backend, base: int) -> None:
    ids = [base + k for k in range(1, MAX_ENTRIES + 4)]
    await backend.ledger.begin(ALICE, [], Baseline(newest_id=base))
    appended = await backend.ledger.append(ALICE, [seen(id_, pid=id_, root=id_) for id_ in ids], "push")
    assert [id_ for id_, _ in appended.new] == ids
    entries = await everything(backend)
    assert [(arrival.id, arrival.pid, arrival.root) for arrival in entries] == [(id_, id_, id_) for id_ in ids[3:]]
    assert appended.state.baseline.newest_id == ids[2]
    places = await backend.ledger.locate(ALICE, ids)
    assert {id_: place.n for id_, place in places.items()} == {id_: n for n, id_ in enumerate(ids[3:], 4)}


async def test_the_baseline_compares_ids_as_numbers(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline(newest_id=9))
    appended = await backend.ledger.append(
        ALICE, [seen(10), *(seen(k) for k in range(100, 99 + MAX_ENTRIES + 1))], "push"
    )
    assert appended.state.baseline.newest_id == 10


async def test_reading_in_both_directions(backend: Backend) -> None:
    ids = list(range(1, MAX_ENTRIES + 6))
    await backend.ledger.begin(ALICE, [], Baseline())
    await backend.ledger.append(ALICE, [seen(id_) for id_ in ids], "push")
    first, last = 6, MAX_ENTRIES + 5

    async def forth(after_n: int, limit: int) -> list[int]:
        got = await backend.ledger.read(ALICE, after_n, limit)
        assert (got.state.first_n, got.state.last_n) == (first, last)
        return [arrival.n for arrival in got.entries]

    async def back(before_n: int, limit: int) -> list[int]:
        return [arrival.n for arrival in (await backend.ledger.read_back(ALICE, before_n, limit)).entries]

    assert await forth(0, 3) == [6, 7, 8]
    assert await forth(first, 2) == [7, 8]
    assert await forth(last - 1, 10) == [last]
    assert await forth(last, 10) == []
    assert await forth(last + 100, 10) == []
    assert await forth(0, 0) == []
    assert await back(last + 1, 2) == [last - 1, last]
    assert await back(last + 100, 2) == [last - 1, last]
    assert await back(first + 2, 10) == [first, first + 1]
    assert await back(first, 10) == []
    assert await back(0, 10) == []
    assert await back(last, 0) == []


async def test_late_roots_replace_the_unknown_ones(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(1, root=0)], Baseline())
    await backend.ledger.append(ALICE, [seen(2, pid=1, root=0), seen(3, pid=2, root=0)], "push")
    await backend.ledger.set_roots(ALICE, {1: 1, 3: MAX_ID, 99: 5})
    entries = await everything(backend)
    assert [(arrival.id, arrival.pid, arrival.root) for arrival in entries] == [(1, None, 1), (2, 1, 0), (3, 2, MAX_ID)]
    assert [arrival.from_ for arrival in entries] == ["@bob@b.test"] * 3


async def test_places_say_what_was_handed_out(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    await backend.ledger.append(ALICE, [seen(3)], "push")
    await backend.ledger.note_returned(ALICE, above=[3], position=2)
    places = await backend.ledger.locate(ALICE, [3, 2, 1, 77])
    assert {id_: (place.n, place.handed_out) for id_, place in places.items()} == {
        1: (1, False),
        2: (2, True),
        3: (3, False),
    }
    assert await backend.ledger.locate(ALICE, []) == {}


async def test_what_was_returned_is_remembered(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [], Baseline())
    await backend.ledger.note_returned(ALICE, above=[MAX_ID, 12], position=11)
    await backend.ledger.note_returned(ALICE, above=[], position=12)
    assert await backend.ledger.returned(ALICE, [10, 11, 12, MAX_ID]) == {12, MAX_ID}
    assert await backend.ledger.returned(ALICE, []) == frozenset()
    assert await backend.ledger.returned(BOB, [12]) == frozenset()


async def test_returned_marks_outlive_a_new_epoch_but_positions_do_not(backend: Backend) -> None:
    await backend.ledger.note_returned(ALICE, above=[2], position=1)
    await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    assert await backend.ledger.returned(ALICE, [1, 2]) == {2}
    assert not (await backend.ledger.locate(ALICE, [1]))[1].handed_out


async def test_forgetting_leaves_nothing(backend: Backend) -> None:
    await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    await backend.ledger.note_returned(ALICE, above=[1], position=1)
    await backend.ledger.forget(ALICE)
    assert await backend.ledger.state(ALICE) is None
    assert await backend.ledger.returned(ALICE, [1]) == frozenset()
    await backend.ledger.forget(ALICE)


async def test_a_wiped_store_gives_a_new_epoch(backend: Backend) -> None:
    first = await backend.ledger.begin(ALICE, [seen(1)], Baseline())
    await backend.wipe()
    with pytest.raises(NoLedger):
        await backend.ledger.append(ALICE, [seen(2)], "push")
    second = await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline())
    assert second.epoch != first.epoch
    assert second.last_n == 2


async def test_the_bell_rings_for_what_is_new_only(backend: Backend) -> None:
    rung: list[str] = []
    bell = asyncio.Event()

    def wake(who: str) -> None:
        rung.append(who)
        bell.set()

    await backend.ledger.begin(ALICE, [], Baseline())
    await backend.ledger.begin(BOB, [], Baseline())
    end_alice = backend.doorbell.listen(ALICE, lambda: wake("alice"))
    backend.doorbell.listen(BOB, lambda: wake("bob"))
    async with backend.doorbell.running():
        connected = getattr(backend.doorbell, "connected", None)
        if connected is not None:
            await asyncio.wait_for(connected.wait(), 10)
            await asyncio.wait_for(bell.wait(), 10)

        async def ring(caller: CallerKey, *calls: object) -> list[str]:
            """What rings when a caller's ledger does what is asked; Bob's bell marks the end."""
            rung.clear()
            for call in calls:
                await call  # type: ignore[misc]  # they are calls of the ledger
            while "bob" not in rung:
                bell.clear()
                await backend.ledger.append(BOB, [seen(random.getrandbits(60) + 1)], "push")
                await asyncio.wait_for(bell.wait(), 10)
            return [who for who in rung if who != "bob"]

        append, roots = backend.ledger.append, backend.ledger.set_roots
        assert await ring(ALICE, append(ALICE, [seen(1), seen(2)], "push")) == ["alice"]
        assert await ring(ALICE, append(ALICE, [seen(2)], "push"), append(ALICE, [], "poll")) == []
        assert await ring(ALICE, roots(ALICE, {1: 42})) == ["alice"]
        assert await ring(ALICE, roots(ALICE, {1: 42, 99: 1})) == []
        end_alice()
        end_alice()
        assert await ring(ALICE, append(ALICE, [seen(3)], "push")) == []
