"""Messages that are missing while newer ones are recorded already are found, whatever the ledger is kept in."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from fmsg.errors import HostUnreachable
from fmsg.message import Page
from ledger.catch_up import CHUNK, CaughtUp, catch_up, seen_from
from ledger.port import LedgerUnavailable
from ledger.values import START, CallerKey, Seen
from tests.contract.backends import Backend
from tests.ledger.fake_host import ME, FakeHost

ALICE = CallerKey("a" * 32)
SNAPSHOT = range(1, 11)
MISSED = range(11, 41)
PUSHED = range(41, 381)
"""More than three pages: nothing on the pages that a reconnect looks at tells of what lies below."""


class Spy:
    """A ledger that counts what is asked of it, and calls back before each append."""

    def __init__(self, ledger: Any) -> None:
        self.asked: Counter[str] = Counter()
        self.sizes: list[int] = []
        self.before_append: Callable[[int], Any] = lambda _number: None
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._ledger, name)

    async def append(self, caller: CallerKey, seen: Sequence[Seen], *args: Any, **kwargs: Any) -> Any:
        self.asked["append"] += 1
        self.sizes.append(len(seen))
        waited = self.before_append(self.asked["append"])
        if waited is not None:
            await waited
        return await self._ledger.append(caller, seen, *args, **kwargs)


class Place:
    """A host, a ledger that began with its list, and what happens to both."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.host = FakeHost(now_s=time.time())
        self.spy = Spy(backend.ledger)
        self.new: list[int] = []

    def arrive(self, ids: Sequence[int]) -> None:
        """Become available, one after the other."""
        for id_ in ids:
            self.host.put(id_, time_s=time.time())
        self.host.now_s = time.time() + 1.0

    async def push(self, ids: Sequence[int]) -> None:
        """Become available and be recorded at once."""
        self.arrive(ids)
        await self.record(ids)

    async def record(self, ids: Sequence[int]) -> None:
        """Be recorded as a feed records what is pushed."""
        for start in range(0, len(ids), 64):
            seen = [seen_from(self.host.messages[id_], address=ME, root=id_) for id_ in list(ids)[start : start + 64]]
            await self.backend.ledger.append(ALICE, seen, "push")

    async def compare(self, *, min_pages: int = 1, max_pages: int = 200) -> CaughtUp:
        """Catch up, counting from now what it costs."""
        self.host.asked.clear()
        self.spy.asked.clear()
        self.spy.sizes.clear()
        caught = await catch_up(
            self.host, self.spy, ALICE, ME, source="reconcile", min_pages=min_pages, max_pages=max_pages
        )
        self.new += [one.id for one in caught.new]
        return caught

    @property
    def pages(self) -> int:
        """List pages the last comparison asked for."""
        return self.host.asked["list_received"]


@pytest.fixture
async def place(roomy: Backend) -> AsyncIterator[Place]:
    made = Place(roomy)
    for id_ in SNAPSHOT:
        made.host.put(id_, time_s=1000.0 + id_)
    assert (await made.compare()).began
    yield made
    assert len(made.new) == len(set(made.new)), "a message was found twice"


async def test_what_was_missed_below_hundreds_of_pushes_is_found(place: Place) -> None:
    place.arrive(MISSED)
    await place.push(PUSHED)
    caught = await place.compare(min_pages=2)
    assert sorted(place.new) == list(MISSED)
    assert caught.complete
    assert caught.state.verified_id == PUSHED[-1]


async def test_also_when_the_ledger_has_trimmed_what_lies_above_it(place: Place) -> None:
    place.arrive(MISSED)
    await place.push(range(41, 1241))
    caught = await place.compare()
    assert caught.state.held == 1000
    assert caught.state.low > START
    assert sorted(place.new) == list(MISSED)
    assert (await place.compare(min_pages=20)).new == ()


async def test_then_one_page_is_enough_again_and_nothing_is_written(place: Place) -> None:
    await place.push(PUSHED)
    assert (await place.compare()).new == ()
    assert place.pages == 5
    assert place.spy.sizes == [0], "the watermark moves, and nothing else"
    assert (await place.compare()).new == ()
    assert (place.pages, place.spy.asked) == (1, {"state": 1, "compare": 1})
    await place.push(range(400, 420))
    await place.compare()
    assert (place.pages, place.spy.asked) == (1, {"state": 1, "compare": 1, "append": 1})
    place.arrive([500])
    await place.compare()
    assert (place.pages, place.new) == (2, [500])
    assert place.spy.asked["append"] == 1, "what is new and the watermark go together"


@pytest.mark.parametrize("pushed_since", [0, 20, 21, 25, 29, 30])
async def test_one_that_became_visible_just_after_it_was_passed_is_found(place: Place, pushed_since: int) -> None:
    """Its id was given before the next one's, and nobody pushed it."""
    ids = [id_ for id_ in PUSHED if id_ != PUSHED[-3]]
    await place.push(ids)
    await place.compare()
    place.arrive([PUSHED[-3]])
    await place.push(range(400, 400 + pushed_since))
    await place.compare()
    assert place.new == [PUSHED[-3]]


@pytest.mark.parametrize("pages", [1, 3])
async def test_a_walk_that_is_cut_moves_no_watermark(place: Place, pages: int) -> None:
    place.arrive(MISSED)
    await place.push(PUSHED)
    cut = await place.compare(max_pages=pages)
    assert (cut.complete, cut.new, cut.state.verified_id) == (False, (), SNAPSHOT[-1])
    await place.compare()
    assert sorted(place.new) == list(MISSED)


async def test_neither_does_one_that_fails(place: Place) -> None:
    place.arrive(MISSED)
    await place.push(PUSHED)

    def cut(page: int) -> None:
        if page == 2:
            place.host.errors["list_received"] = [HostUnreachable("cut")]

    place.host.after_page = cut
    with pytest.raises(HostUnreachable):
        await place.compare()
    place.host.after_page = lambda _page: None
    await place.compare()
    assert sorted(place.new) == list(MISSED)


async def test_what_is_pushed_while_a_walk_goes_on_hides_nothing_from_the_next(place: Place) -> None:
    place.arrive(range(11, 200))

    async def burst(number: int) -> None:
        if number == 1:
            place.arrive(range(200, 210))
            await place.push(range(210, 600))

    place.spy.before_append = burst
    await place.compare()
    place.spy.before_append = lambda _number: None
    await place.compare()
    assert sorted(place.new) == list(range(11, 210))


@pytest.mark.parametrize("crash_at", [2, 13])
async def test_a_crash_in_the_middle_of_a_long_backlog_loses_nothing_and_doubles_nothing(
    place: Place, crash_at: int
) -> None:
    """The ledger has trimmed a part of the backlog by then."""
    backlog = range(11, 2511)
    place.arrive(backlog)

    def crash(number: int) -> None:
        if number == crash_at:
            raise LedgerUnavailable("killed")

    place.spy.before_append = crash
    with pytest.raises(LedgerUnavailable):
        await place.compare()
    place.spy.before_append = lambda _number: None
    held = await place.backend.ledger.read(ALICE, START, 2000)
    done = (crash_at - 1) * CHUNK
    assert held.state.held == min(len(SNAPSHOT) + done, 1000)
    assert held.state.verified_id < max(held.entries[0].id, backlog[0])
    await place.compare()
    assert [*backlog[:done], *place.new] == list(backlog)
    assert (await place.compare(min_pages=30)).new == ()


async def test_two_that_compare_a_long_backlog_at_once_record_each_message_once(place: Place) -> None:
    """One is faster: what the slower one appends last is trimmed already."""
    backlog = range(11, 2511)
    place.arrive(backlog)
    other = Place(place.backend)
    other.host = place.host

    async def overtake(number: int) -> None:
        if number == 3:
            await other.compare()

    place.spy.before_append = overtake
    await place.compare()
    assert sorted(place.new + other.new) == list(backlog)


async def test_a_tail_lost_to_a_failover_in_the_middle_of_a_walk_is_found_missing(place: Place) -> None:
    """Pushes that the walk saw recorded on its first pages are gone when it ends."""
    place.arrive(MISSED)
    lagging = await place.backend.keep(ALICE)
    await place.push(PUSHED)
    more = range(400, 400 + len(PUSHED) + 50)

    async def fail_over(number: int) -> None:
        if number == 1:
            await lagging()
            await place.push(more)

    place.spy.before_append = fail_over
    caught = await place.compare()
    assert sorted(place.new) == [*MISSED, *PUSHED]
    assert caught.state.verified_id == more[-1]


async def test_a_ledger_that_is_lost_again_and_again_is_given_up(place: Place) -> None:
    place.arrive(MISSED)
    lagging = await place.backend.keep(ALICE)

    async def fail_over(number: int) -> None:
        await lagging()
        await place.push([1000 + number])

    await place.push([1000])
    place.spy.before_append = fail_over
    with pytest.raises(LedgerUnavailable, match="lost 3 times"):
        await place.compare()
    place.spy.before_append = lambda _number: place.backend.ledger.forget(ALICE)
    assert (await place.compare()).began, "one loss is a new beginning"


async def test_who_begins_from_a_newer_list_than_the_ledger_began_with_compares_at_once(place: Place) -> None:
    await place.backend.ledger.forget(ALICE)
    first = asyncio.Event()
    second = asyncio.Event()

    class Slow(FakeHost):
        """Answers with the list as it was when it was asked, after the other one was answered."""

        async def list_received(self, *, limit: int = 20, offset: int = 0) -> Page:
            page = await place.host.list_received(limit=limit, offset=offset)
            first.set()
            await second.wait()
            return page

    async def newer() -> CaughtUp:
        await first.wait()
        place.arrive(MISSED)

        class Waiting(FakeHost):
            async def list_received(self, *, limit: int = 20, offset: int = 0) -> Page:
                page = await place.host.list_received(limit=limit, offset=offset)
                if not second.is_set():
                    second.set()
                    await older
                return page

        return await catch_up(Waiting(), place.backend.ledger, ALICE, ME, source="poll")

    older = asyncio.create_task(catch_up(Slow(), place.backend.ledger, ALICE, ME, source="poll"))  # awaited in `newer`
    caught = await newer()
    assert caught.began
    assert [one.id for one in caught.new] == list(MISSED)
    assert (await older).began


async def test_a_list_that_shrinks_below_where_the_walk_has_come_is_read_again(place: Place) -> None:
    place.arrive(range(11, 91))
    for id_ in range(1000, 1060):
        place.host.put(id_, time_s=None)

    def vanish(page: int) -> None:
        if page == 2:
            for id_ in range(1000, 1060):
                del place.host.messages[id_]

    place.host.after_page = vanish
    await place.compare()
    assert sorted(place.new) == list(range(11, 91))


@pytest.mark.parametrize("unreadable", [[350], range(340, 381), range(200, 381), range(60, 381)])
async def test_messages_that_cannot_be_read_end_no_walk(place: Place, unreadable: Sequence[int]) -> None:
    """A page without them is shorter than was asked for, and yet not the last."""

    class Odd(FakeHost):
        async def list_received(self, *, limit: int = 20, offset: int = 0) -> Page:
            page = await place.host.list_received(limit=limit, offset=offset)
            kept = tuple(message for message in page.messages if message.id not in unreadable)
            return Page(messages=kept, host_time_s=page.host_time_s, skipped=len(page.messages) - len(kept))

    place.arrive(MISSED)
    await place.push(PUSHED)
    caught = await catch_up(Odd(), place.backend.ledger, ALICE, ME, source="poll")
    assert sorted(one.id for one in caught.new) == list(MISSED)
