"""What every ledger knows of what may be missing: the verified watermark, comparing, trimming, and lost ends."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from fmsg.reference import MAX_ID
from ledger.port import NoLedger, StaleEpoch
from ledger.values import START, Baseline, CallerKey, Head, LedgerState, Seen
from tests.contract.backends import Backend
from tests.contract.conftest import MAX_ENTRIES

ALICE = CallerKey("a" * 32)
LONG_AGO_S = 1_700_000_000.0
BASE = Baseline(newest_id=100, time_s=LONG_AGO_S)


def seen(message_id: int, sent_at_s: float = LONG_AGO_S + 1.0) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@b.test", sent_at_s=sent_at_s)


def some(ids: Iterable[int]) -> list[Seen]:
    return [seen(id_) for id_ in ids]


async def push(backend: Backend, ids: Iterable[int]) -> LedgerState:
    return (await backend.ledger.append(ALICE, some(ids), "push")).state


async def news(backend: Backend, ids: Iterable[int]) -> set[int]:
    return set((await backend.ledger.compare(ALICE, some(ids))).news)


async def verify(backend: Backend, verified_id: int) -> LedgerState:
    return (await backend.ledger.append(ALICE, (), "poll", verified_id=verified_id)).state


class TestTheVerifiedWatermark:
    @pytest.mark.parametrize(
        ("snapshot", "newest_id", "verified_id"), [([], 0, 0), ([3, 9], 7, 9), ([3], 2**60, 2**60)]
    )
    async def test_a_ledger_begins_with_nothing_missing(
        self, backend: Backend, snapshot: list[int], newest_id: int, verified_id: int
    ) -> None:
        begun = await backend.ledger.begin(ALICE, some(snapshot), Baseline(newest_id=newest_id))
        assert begun.verified_id == verified_id
        assert (await backend.ledger.begin(ALICE, [], Baseline(newest_id=MAX_ID))).verified_id == verified_id

    async def test_only_who_compared_moves_it_and_never_back(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [], Baseline(newest_id=9))
        assert (await push(backend, [50])).verified_id == 9
        for told, stands in [(10, 10), (9, 10), (2**53 + 1, 2**53 + 1), (2**53, 2**53 + 1), (MAX_ID, MAX_ID)]:
            assert (await verify(backend, told)).verified_id == stands
        found = await backend.ledger.state(ALICE)
        assert found is not None
        assert found.verified_id == MAX_ID

    async def test_a_ledger_that_begins_anew_begins_with_its_own(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [], BASE)
        await verify(backend, 5000)
        await backend.ledger.forget(ALICE)
        assert (await backend.ledger.begin(ALICE, [], BASE)).verified_id == 100


class TestComparing:
    async def test_without_a_ledger_there_is_nothing_to_compare_with(self, backend: Backend) -> None:
        with pytest.raises(NoLedger):
            await backend.ledger.compare(ALICE, some([1]))

    async def test_news_is_what_is_neither_held_nor_from_before(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, some([99, 100]), BASE)
        await push(backend, [105, 2**60])
        listed = [*some([99, 105, 2**60, 101, 2**60 + 1]), seen(50, LONG_AGO_S), seen(51, LONG_AGO_S + 0.5)]
        compared = await backend.ledger.compare(ALICE, listed)
        assert compared.news == {101, 2**60 + 1, 51}
        assert (await backend.ledger.compare(ALICE, ())).news == frozenset()

    async def test_many_unknown_ones_are_told_from_the_known(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [], BASE)
        await push(backend, range(102, 142, 2))
        assert await news(backend, range(101, 160)) == {*range(101, 143, 2), *range(142, 160)}

    async def test_places_among_many_unknown_ones_are_exact(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [], BASE)
        await push(backend, range(101, 101 + MAX_ENTRIES + 3))
        found = await backend.ledger.find(ALICE, list(range(101 + MAX_ENTRIES + 20, 100, -1)))
        held = (await backend.ledger.read(ALICE, START, 1000)).entries
        assert found.entries == {entry.id: entry for entry in held}
        assert [entry.id for entry in held] == list(range(104, 104 + MAX_ENTRIES))


class TestForgetting:
    async def test_what_is_missing_below_a_flood_of_pushes_stays_news(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [], BASE)
        missed = range(110, 115)
        pushed = range(200, 200 + 3 * MAX_ENTRIES)
        state = await push(backend, pushed)
        assert (await backend.ledger.read(ALICE, START, 1)).entries[0].id == 200 + 2 * MAX_ENTRIES
        assert state.low > START
        assert await news(backend, [*missed, *pushed]) == set(missed)

    async def test_what_was_trimmed_is_never_news_again(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [], BASE)
        pushed = range(200, 200 + 3 * MAX_ENTRIES)
        await push(backend, pushed)
        again = await backend.ledger.append(ALICE, some(pushed), "poll")
        assert (again.new, again.duplicates) == ((), len(pushed))
        await verify(backend, pushed[-1])
        assert await news(backend, pushed) == set()
        await push(backend, range(1000, 1000 + 2 * MAX_ENTRIES))
        assert await news(backend, pushed) == set()

    async def test_below_the_watermark_trimmed_and_missing_are_one(self, backend: Backend) -> None:
        """Only late ones can be missing there: they are news by their time."""
        await backend.ledger.begin(ALICE, [], BASE)
        await push(backend, range(200, 200 + 3 * MAX_ENTRIES))
        await verify(backend, 1000)
        assert await news(backend, [201]) == set()
        late = seen(110, LONG_AGO_S + 2.0)
        assert (await backend.ledger.compare(ALICE, [late, seen(111)])).news == {110}

    async def test_the_baseline_for_readers_moves_at_once(self, backend: Backend) -> None:
        """They go to the host's list for what the ledger holds no more, up to the newest of it."""
        await backend.ledger.begin(ALICE, [], BASE)
        state = await push(backend, range(200, 200 + 3 * MAX_ENTRIES))
        assert state.baseline == Baseline(newest_id=199 + 2 * MAX_ENTRIES, time_s=LONG_AGO_S + 1.0)
        assert state.settled == BASE

    async def test_where_too_much_is_trimmed_what_lies_below_is_given_up(self, roomy: Backend) -> None:
        """Else a ledger that cannot be compared would grow, and the comparison with it."""
        await roomy.ledger.begin(ALICE, [], BASE)
        await push(roomy, range(200, 1600))
        assert await news(roomy, range(101, 1600)) == set(range(101, 200))
        state = await push(roomy, [1600, 1601])
        assert 599 <= state.verified_id < 602
        assert await news(roomy, range(101, 1602)) == set()
        state = await push(roomy, range(1700, 1800))
        assert 599 <= state.verified_id < 602
        assert await news(roomy, range(1602, 1800)) == set(range(1602, 1700))


class TestClocksAhead:
    """Messages whose sender's clock is ahead say nothing of the host's time."""

    async def test_a_draft_sent_late_is_news_although_a_message_ahead_of_time_was_trimmed(
        self, backend: Backend
    ) -> None:
        now_s = time.time()
        await backend.ledger.begin(ALICE, [], BASE)
        ahead = seen(200, now_s + 86_400.0 * 365)
        await backend.ledger.append(ALICE, [ahead, *some(range(201, 200 + MAX_ENTRIES + 5))], "push")
        await verify(backend, 1000)
        late = seen(150, now_s)
        assert (await backend.ledger.compare(ALICE, [late, ahead])).news == {150}

    async def test_it_is_remembered_until_the_oldest_entry_is_younger(self, backend: Backend) -> None:
        now_s = time.time()
        await backend.ledger.begin(ALICE, [], BASE)
        ahead = seen(200, now_s + 0.05)
        await backend.ledger.append(ALICE, [ahead], "push")
        while time.time() < now_s + 0.06:
            await push(backend, [])
        await push(backend, range(300, 300 + 2 * MAX_ENTRIES))
        await verify(backend, 1000)
        late = seen(150, now_s + 0.04)
        held = (await backend.ledger.read(ALICE, START, 1)).entries[0]
        assert held.arrived_at_s > now_s + 0.05
        assert (await backend.ledger.compare(ALICE, [ahead, late])).news == frozenset()

    async def test_of_too_many_ahead_the_least_are_covered_and_none_is_news_again(self, roomy: Backend) -> None:
        now_s = time.time()
        await roomy.ledger.begin(ALICE, [], BASE)
        ahead = [seen(200 + k, now_s + 600.0 + k) for k in range(450)] + [seen(900, now_s + 1e9)]
        for start in range(0, len(ahead), 100):
            await roomy.ledger.append(ALICE, ahead[start : start + 100], "push")
        await push(roomy, range(1000, 2005))
        await verify(roomy, 3000)
        assert (await roomy.ledger.compare(ALICE, ahead)).news == frozenset()
        assert (await roomy.ledger.compare(ALICE, [seen(150, now_s + 1200.0)])).news == {150}


class TestAppendingWhatWasCompared:
    async def test_it_goes_to_the_ledger_that_was_looked_at_however_much_that_has_grown(self, backend: Backend) -> None:
        since = (await backend.ledger.begin(ALICE, some([99]), BASE)).head
        for ids in ([120], range(200, 200 + 2 * MAX_ENTRIES)):
            await push(backend, ids)
            appended = await backend.ledger.append(ALICE, some([ids[0] + 1]), "poll", since=since)
            since = appended.state.head
        assert (await backend.ledger.compare(ALICE, some([500]), since=since)).news == {500}

    async def test_only_what_is_still_news(self, backend: Backend) -> None:
        """Another process was faster, and what it appended is trimmed already."""
        since = (await backend.ledger.begin(ALICE, [], BASE)).head
        backlog = range(101, 101 + 3 * MAX_ENTRIES)
        await push(backend, backlog)
        await verify(backend, backlog[-1])
        appended = await backend.ledger.append(ALICE, some([*backlog, 500]), "backfill", since=since, verified_id=500)
        assert [entry.id for entry in appended.new] == [500]
        assert appended.state.verified_id == 500

    @pytest.mark.parametrize("held", [0, 2])
    async def test_not_to_one_that_began_anew(self, backend: Backend, held: int) -> None:
        since = (await backend.ledger.begin(ALICE, some(range(1, 1 + held)), BASE)).head
        await backend.ledger.forget(ALICE)
        await backend.ledger.begin(ALICE, some(range(1, 1 + held)), BASE)
        with pytest.raises(StaleEpoch, match="Look again"):
            await backend.ledger.compare(ALICE, some([200]), since=since)
        with pytest.raises(StaleEpoch):
            await backend.ledger.append(ALICE, some([200]), "poll", since=since, verified_id=200)
        assert await news(backend, [200]) == {200}

    @pytest.mark.parametrize("grown", [0, 1, 2, 5])
    async def test_nor_to_one_that_lost_its_tail(self, backend: Backend, grown: int) -> None:
        """A failover to a replica that lagged. What was pushed before it is found missing, not taken for recorded."""
        await backend.ledger.begin(ALICE, some([99]), BASE)
        lagging = await backend.keep(ALICE)
        await push(backend, [120, 121])
        compared = await backend.ledger.compare(ALICE, some([121, 120, 119]))
        assert compared.news == {119}
        await lagging()
        await push(backend, range(130, 130 + grown))
        with pytest.raises(StaleEpoch):
            await backend.ledger.append(ALICE, some([119]), "poll", since=compared.state.head, verified_id=121)
        assert await news(backend, [121, 120, 119]) == {119, 120, 121}

    async def test_a_tail_that_was_not_looked_at_may_be_lost(self, backend: Backend) -> None:
        since = (await backend.ledger.begin(ALICE, some([99]), BASE)).head
        lagging = await backend.keep(ALICE)
        await push(backend, [120, 121])
        await lagging()
        assert [one.id for one in (await backend.ledger.append(ALICE, some([120]), "poll", since=since)).new] == [120]


class TestReadingOn:
    async def test_it_goes_on_in_the_ledger_it_stood_in(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, some([99]), BASE)
        first = await backend.ledger.read(ALICE, START, 10)
        await push(backend, [120])
        second = await backend.ledger.read(ALICE, first.state.last, 10, since=first.state.head)
        assert [entry.id for entry in second.entries] == [120]
        await push(backend, range(200, 200 + 2 * MAX_ENTRIES))
        third = await backend.ledger.read(ALICE, second.state.last, 10, since=second.state.head)
        assert third.state.low > second.state.last, "a trim gap is the reader's to see"

    @pytest.mark.parametrize("grown", [1, 2, 5])
    async def test_not_in_one_that_lost_what_was_read(self, backend: Backend, grown: int) -> None:
        """The entry it stood behind is not there any more, and its message may come again."""
        await backend.ledger.begin(ALICE, some([99]), BASE)
        lagging = await backend.keep(ALICE)
        await push(backend, [120, 121])
        stood = (await backend.ledger.read(ALICE, START, 10)).state
        await lagging()
        await push(backend, range(130, 130 + grown))
        with pytest.raises(StaleEpoch):
            await backend.ledger.read(ALICE, stood.last, 10, since=stood.head)
        await backend.ledger.forget(ALICE)
        await backend.ledger.begin(ALICE, some([99, 120, 121]), BASE)
        with pytest.raises(StaleEpoch):
            await backend.ledger.read(ALICE, stood.last, 10, since=stood.head)


class TestPositions:
    async def test_one_whose_place_changed_is_not_remembered(self, backend: Backend) -> None:
        begun = await backend.ledger.begin(ALICE, some([99, 100]), BASE)
        first, second = (await backend.ledger.read(ALICE, START, 2)).entries
        note = backend.ledger.note_returned
        assert await note(ALICE, position=99, head=Head(begun.epoch, first.at))
        assert not await note(ALICE, position=100, head=Head("another", second.at))
        assert not await note(ALICE, position=100, head=Head(begun.epoch, second.at.before()))
        assert not await note(ALICE, above=[100], position=100)
        found = await backend.ledger.find(ALICE, [99, 100])
        assert found.handed_out == {99}
        assert found.entries[100].returned
        assert await note(ALICE, position=100, head=begun.head)
        assert (await backend.ledger.find(ALICE, [99, 100])).handed_out == {99, 100}

    async def test_an_entry_that_came_after_the_mark_was_not_handed_out(self, backend: Backend) -> None:
        """It has the id of one that the ledger held before, and stands somewhere else."""
        await backend.ledger.begin(ALICE, [], BASE)
        lagging = await backend.keep(ALICE)
        first = await push(backend, [120])
        assert await backend.ledger.note_returned(ALICE, position=120, head=first.head)
        assert (await backend.ledger.find(ALICE, [120])).handed_out == {120}
        await lagging()
        while (other := await push(backend, [121])).now_s <= first.now_s:
            await lagging()
        second = await push(backend, [120])
        assert second.last > other.last
        assert (await backend.ledger.find(ALICE, [120])).handed_out == frozenset()
        assert not await backend.ledger.note_returned(ALICE, position=120, head=first.head)
        assert await backend.ledger.note_returned(ALICE, position=120, head=second.head)
        assert (await backend.ledger.find(ALICE, [120])).handed_out == {120}

    async def test_a_clock_that_steps_back_makes_no_position_unknown(self, backend: Backend) -> None:
        await backend.ledger.begin(ALICE, [], BASE)
        await push(backend, [119])
        await backend.turn_back(ALICE, 3600.0)
        state = await push(backend, [120])
        await backend.ledger.note_returned(ALICE, position=120, head=state.head)
        assert (await backend.ledger.find(ALICE, [120])).handed_out == {120}
