from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

import pytest

from fmsg.errors import HostUnreachable
from fmsg.message import Message, Page
from ledger.catch_up import (
    CHUNK,
    FIRST_PAGE,
    SNAPSHOT_ENTRIES,
    CaughtUp,
    baseline_of,
    catch_up,
    seen_from,
)
from ledger.memory import MemoryLedger
from ledger.values import START, Appended, Arrival, Baseline, CallerKey, Compared, Head, LedgerState, Seen, Source
from tests.ledger.fake_host import ANN, ME, FakeHost

CALLER = CallerKey("c" * 32)


class How(TypedDict, total=False):
    """The rest of what `Ledger.append` is told."""

    since: Head | None
    verified_id: int


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger(clock=lambda: 1000.0)


async def entries(ledger: MemoryLedger) -> list[Arrival]:
    return list((await ledger.read(CALLER, START, 100_000)).entries)


async def ids(ledger: MemoryLedger) -> list[int]:
    return [entry.id for entry in await entries(ledger)]


def new_ids(caught: CaughtUp) -> list[int]:
    return [one.id for one in caught.new]


async def begin(host: FakeHost, ledger: MemoryLedger) -> LedgerState:
    return (await catch_up(host, ledger, CALLER, ME, source="backfill")).state


async def compare(host: FakeHost, ledger: MemoryLedger, *, min_pages: int = 1, max_pages: int = 200) -> CaughtUp:
    return await catch_up(host, ledger, CALLER, ME, source="reconcile", min_pages=min_pages, max_pages=max_pages)


class TestSeenFrom:
    def test_a_listed_message_becomes_what_the_ledger_keeps(self) -> None:
        message = Message(
            id=7, pid=5, from_="@Ann@There.test", to=(ME,), time=12.5, no_reply=True, terminal=True, reaction="👍"
        )
        assert seen_from(message, address=ME, root=3) == Seen(
            id=7, pid=5, root=3, from_=ANN, no_reply=True, terminal=True, reaction=True, sent_at_s=12.5
        )

    def test_a_parent_of_zero_is_none(self) -> None:
        assert seen_from(Message(id=7, pid=0, to=(ME,), time=1.0), address=ME, root=0).pid is None

    def test_somebody_added_has_it_from_then_on(self, host: FakeHost) -> None:
        assert seen_from(host.put(7, time_s=1.0, added_s=50.0), address=ME, root=0).sent_at_s == 50.0

    def test_a_draft_is_no_arrival(self, host: FakeHost) -> None:
        with pytest.raises(ValueError, match="message 7 is a draft"):
            seen_from(host.put(7, time_s=None), address=ME, root=0)


class TestBaseline:
    def test_it_is_the_newest_id_and_the_hosts_time(self, host: FakeHost) -> None:
        page = Page(messages=(host.put(9, time_s=5.0), host.put(4, time_s=2.0)), host_time_s=1000.0)
        assert baseline_of(page, address=ME) == Baseline(newest_id=9, time_s=1000.0)

    def test_drafts_are_left_out(self, host: FakeHost) -> None:
        page = Page(messages=(host.put(9, time_s=None), host.put(4, time_s=2.0)), host_time_s=1000.0)
        assert baseline_of(page, address=ME).newest_id == 4

    def test_a_message_of_the_same_second_shows_how_late_in_it_the_list_was_made(self, host: FakeHost) -> None:
        page = Page(messages=(host.put(9, time_s=1000.7), host.put(8, time_s=1003.0)), host_time_s=1000.0)
        assert baseline_of(page, address=ME).time_s == 1000.7

    def test_without_a_date_the_newest_time_stands_in(self, host: FakeHost) -> None:
        page = Page(messages=(host.put(9, time_s=5.0), host.put(4, time_s=7.0)))
        assert baseline_of(page, address=ME) == Baseline(newest_id=9, time_s=7.0)

    def test_of_nothing_everything_is_news(self) -> None:
        assert baseline_of(Page(messages=()), address=ME) == Baseline()

    @pytest.mark.parametrize(
        ("id_", "sent_at_s", "news"), [(10, 1.0, True), (9, 100.0, False), (3, 100.1, True), (3, 99.0, False)]
    )
    def test_news_is_above_the_id_or_after_the_time(self, id_: int, sent_at_s: float, news: bool) -> None:
        seen = Seen(id=id_, pid=None, root=id_, from_=ANN, sent_at_s=sent_at_s)
        assert Baseline(newest_id=9, time_s=100.0).covers(seen) is not news


class TestBeginning:
    async def test_a_ledger_begins_with_what_is_there_in_order_of_availability(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.put(4, time_s=30.0)
        host.put(5, time_s=20.0)
        host.put(6, time_s=None)
        state = await begin(host, ledger)
        assert await ids(ledger) == [5, 4]
        assert state.held == 2
        assert state.baseline == Baseline(newest_id=5, time_s=1000.0)
        assert {entry.source for entry in await entries(ledger)} == {"snapshot"}

    async def test_it_takes_over_the_newest_only(self, host: FakeHost, ledger: MemoryLedger) -> None:
        for id_ in range(1, 120):
            host.put(id_, time_s=float(id_))
        await begin(host, ledger)
        assert await ids(ledger) == list(range(56, 120))
        assert SNAPSHOT_ENTRIES == 64

    async def test_a_page_of_drafts_alone_makes_no_news_of_what_lies_below(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        for id_ in range(1, 50):
            host.put(id_, time_s=float(id_))
        for id_ in range(50, 150):
            host.put(id_, time_s=None)
        state = await begin(host, ledger)
        assert (state.held, state.baseline.newest_id) == (0, 69)
        assert (await compare(host, ledger, min_pages=3)).new == ()
        host.send(60, time_s=1001.0)
        host.send(100, time_s=900.0)
        assert new_ids(await compare(host, ledger, min_pages=3)) == [100, 60]

    async def test_roots_are_found_in_the_list_and_the_sent_list_and_else_left_open(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.put(4)
        host.put(5, from_=ME, to=(ANN,), pid=4)
        host.put(6, pid=5)
        host.put(7, pid=2)
        await begin(host, ledger)
        assert {entry.id: entry.root for entry in await entries(ledger)} == {4: 4, 6: 4, 7: 0}
        assert host.asked == {"list_received": 1, "list_sent": 1}

    async def test_a_sent_list_that_fails_is_no_obstacle(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.put(7, pid=2)
        host.errors["list_sent"] = [HostUnreachable("cut")]
        await begin(host, ledger)
        assert await ids(ledger) == [7]

    async def test_one_that_exists_is_left_alone(self, host: FakeHost, ledger: MemoryLedger) -> None:
        first = await begin(host, ledger)
        host.put(4)
        assert (await begin(host, ledger)).epoch == first.epoch
        assert await ids(ledger) == [4]

    async def test_catching_up_begins_where_there_is_none(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.put(4)
        caught = await compare(host, ledger)
        assert (caught.new, caught.began, caught.complete) == ((), True, True)
        assert await ids(ledger) == [4]


class TestCatchingUp:
    async def test_nothing_new_takes_one_small_page(self, host: FakeHost, ledger: MemoryLedger) -> None:
        for id_ in range(1, 60):
            host.put(id_, time_s=float(id_))
        await begin(host, ledger)
        host.asked.clear()
        caught = await compare(host, ledger)
        assert (caught.new, caught.pages, caught.complete) == ((), 1, True)
        assert host.asked == {"list_received": 1}
        assert host.limits[-1] == FIRST_PAGE

    async def test_what_came_since_is_appended_in_order_of_availability(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        await begin(host, ledger)
        host.put(5, time_s=1020.0)
        host.put(9, time_s=1010.0)
        host.now_s = 1030.0
        caught = await compare(host, ledger)
        assert new_ids(caught) == [9, 5]
        assert [caught.late_s(one) for one in caught.new] == [20.0, 10.0]
        assert await ids(ledger) == [9, 5]

    async def test_without_a_date_the_ledgers_clock_says_how_late(self, host: FakeHost, ledger: MemoryLedger) -> None:
        await begin(host, ledger)
        host.put(5, time_s=990.0)
        host.now_s = None
        caught = await compare(host, ledger)
        assert [caught.late_s(one) for one in caught.new] == [10.0]

    async def test_a_draft_sent_late_and_a_message_one_is_added_to_are_new(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.put(2, time_s=None)
        host.put(9, time_s=500.0)
        await begin(host, ledger)
        host.put(1, time_s=10.0, added_s=1001.0)
        assert new_ids(await compare(host, ledger)) == [1]
        host.send(2, time_s=1002.0)
        assert new_ids(await compare(host, ledger)) == [2]

    async def test_what_was_there_before_the_snapshot_is_old_news(self, host: FakeHost, ledger: MemoryLedger) -> None:
        for id_ in range(1, 90):
            host.put(id_, time_s=float(id_))
        await begin(host, ledger)
        assert (await compare(host, ledger, min_pages=3)).new == ()
        assert await ids(ledger) == list(range(26, 90))

    async def test_a_backlog_is_appended_whole_ascending_and_in_chunks(self, host: FakeHost) -> None:
        sizes: list[int] = []

        class Counting(MemoryLedger):
            async def append(
                self, caller: CallerKey, seen: Sequence[Seen], source: Source, **how: Unpack[How]
            ) -> Appended:
                sizes.append(len(seen))
                return await super().append(caller, seen, source, **how)

        ledger = Counting(clock=lambda: 1000.0)
        await begin(host, ledger)
        for id_ in range(1, 10_001):
            host.put(id_, time_s=1000.0 + id_)
        caught = await compare(host, ledger)
        assert new_ids(caught) == list(range(1, 10_001))
        assert [one.at for one in caught.new] == sorted({one.at for one in caught.new})
        assert await ids(ledger) == list(range(9_001, 10_001))
        assert max(sizes) == CHUNK
        assert caught.complete
        assert (await compare(host, ledger, min_pages=15)).new == ()

    async def test_the_walk_ends_where_it_must_and_says_so(self, host: FakeHost, ledger: MemoryLedger) -> None:
        await begin(host, ledger)
        for id_ in range(1, 400):
            host.put(id_, time_s=1000.0 + id_)
        caught = await compare(host, ledger, max_pages=2)
        assert not caught.complete
        assert caught.pages == 2

    async def test_messages_that_arrive_while_it_pages_push_nothing_out_of_sight(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        await begin(host, ledger)
        for id_ in range(1, 300):
            host.put(id_, time_s=1000.0 + id_)

        def more(page: int) -> None:
            if page < 4:
                for id_ in range(page * 1000, page * 1000 + 25):
                    host.put(id_, time_s=2000.0 + id_)

        host.after_page = more
        first = await compare(host, ledger)
        assert set(new_ids(first)) >= set(range(1, 300))
        await compare(host, ledger)
        assert set(await ids(ledger)) == set(host.messages)

    @pytest.mark.parametrize("deleted", [5, 40, 80])
    async def test_messages_deleted_while_it_pages_pull_nothing_out_of_sight(
        self, host: FakeHost, ledger: MemoryLedger, deleted: int
    ) -> None:
        await begin(host, ledger)
        for id_ in range(1, 400):
            host.put(id_, time_s=1000.0 + id_)
        for id_ in range(400, 400 + deleted):
            host.put(id_, time_s=None)

        def vanish(page: int) -> None:
            if page == 3:
                for id_ in range(400, 400 + deleted):
                    del host.messages[id_]

        host.after_page = vanish
        host.put(1000, time_s=1000.5)
        await compare(host, ledger, min_pages=5)
        assert set(await ids(ledger)) == set(host.messages)

    async def test_deeper_pages_are_looked_at_when_asked(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.put(1, time_s=None)
        for id_ in range(2, 252):
            host.put(id_, time_s=1.0)
        await begin(host, ledger)
        host.send(1, time_s=1001.0)
        assert (await compare(host, ledger)).new == ()
        caught = await compare(host, ledger, min_pages=3)
        assert (new_ids(caught), caught.pages, caught.complete) == ([1], 3, True)

    async def test_one_more_after_the_end_of_the_list_is_not_asked_for(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        await begin(host, ledger)
        host.put(1, time_s=1001.0)
        assert (await compare(host, ledger, min_pages=5)).pages == 1

    async def test_half_a_walk_records_nothing(self, host: FakeHost, ledger: MemoryLedger) -> None:
        await begin(host, ledger)
        for id_ in range(1, 300):
            host.put(id_, time_s=1000.0 + id_)

        def cut(page: int) -> None:
            if page == 3:
                host.errors["list_received"] = [HostUnreachable("cut")]

        host.after_page = cut
        with pytest.raises(HostUnreachable):
            await compare(host, ledger)
        assert await ids(ledger) == []
        assert len((await compare(host, ledger)).new) == 299

    async def test_flags_are_kept_since_readers_pass_over_them(self, host: FakeHost, ledger: MemoryLedger) -> None:
        await begin(host, ledger)
        host.put(1, time_s=1001.0, from_=ME)
        host.put(2, time_s=1002.0, reaction="👍", no_reply=True)
        await compare(host, ledger)
        own, reaction = await entries(ledger)
        assert own.from_ == ME
        assert (reaction.reaction, reaction.no_reply) == (True, True)

    async def test_a_ledger_lost_in_the_middle_begins_anew(self, host: FakeHost, ledger: MemoryLedger) -> None:
        before = await begin(host, ledger)
        host.put(1, time_s=1001.0)
        host.after_page = lambda page: ledger._ledgers.clear() if page == 2 else None
        caught = await compare(host, ledger)
        assert caught.began
        assert caught.state.epoch != before.epoch
        assert await ids(ledger) == [1]

    async def test_one_lost_between_comparing_and_appending_begins_anew(self, host: FakeHost) -> None:
        class Losing(MemoryLedger):
            async def compare(
                self, caller: CallerKey, listed: Sequence[Seen], *, since: Head | None = None
            ) -> Compared:
                compared = await super().compare(caller, listed, since=since)
                await self.forget(caller)
                return compared

        ledger = Losing(clock=lambda: 1000.0)
        await begin(host, ledger)
        host.put(1, time_s=1001.0)
        assert (await compare(host, ledger)).began


class TestRootsOfTheCaughtUp:
    async def test_they_are_recorded_with_one_request_for_a_reply_to_ones_own(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.put(4)
        await begin(host, ledger)
        host.put(5, from_=ME, to=(ANN,), pid=4, time_s=1001.0)
        host.put(6, pid=5, time_s=1002.0)
        host.asked.clear()
        caught = await compare(host, ledger)
        assert [one.root for one in caught.new] == [4]
        assert (await entries(ledger))[-1].root == 4
        assert host.asked == {"list_received": 1, "message": 1}
        assert caught.rootless == ()

    async def test_no_request_where_parents_are_known(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.put(4)
        await begin(host, ledger)
        host.put(5, pid=4, time_s=1001.0)
        host.put(6, pid=5, time_s=1002.0)
        host.put(7, time_s=1003.0)
        host.asked.clear()
        caught = await compare(host, ledger)
        assert [one.root for one in caught.new] == [4, 4, 7]
        assert host.asked == {"list_received": 1}

    async def test_what_cannot_be_found_yet_is_recorded_without_and_named(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        await begin(host, ledger)
        host.put(6, pid=5, time_s=1002.0)
        caught = await compare(host, ledger)
        assert [one.id for one in caught.rootless] == [6]
        assert (await entries(ledger))[-1].root == 0

    async def test_a_ledger_lost_meanwhile_is_somebody_elses_news(self, host: FakeHost) -> None:
        class Losing(MemoryLedger):
            async def append(
                self, caller: CallerKey, seen: Sequence[Seen], source: Source, **how: Unpack[How]
            ) -> Appended:
                appended = await super().append(caller, seen, source, **how)
                await self.forget(caller)
                return appended

        ledger = Losing(clock=lambda: 1000.0)
        await begin(host, ledger)
        host.put(6, pid=5, time_s=1002.0)
        assert new_ids(await compare(host, ledger)) == [6]
