"""Messages before the ledger: a place in the host's list while it moves, and the positions handed out there."""

from __future__ import annotations

import random

import pytest

from fmsg.errors import HostMisbehaved
from fmsg.message import Message, Page
from ledger.memory import MemoryDocuments
from ledger.values import CallerKey
from mcp_front.waiting.backlog import (
    ENOUGH,
    KIND,
    MAX_CALLS,
    MAX_LIST_POSITIONS,
    NAME,
    PAGE,
    ListPosition,
    load_list_position,
    look_around,
    save_list_position,
)

ALICE = CallerKey("a" * 32)


class List:
    """A host's list of ids, newest first, in which something may happen after each request."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = sorted(ids, reverse=True)
        self.calls = 0
        self.shown = self.ids
        """The list as it was at the last request."""
        self.happens: list[list[int]] = []
        """Ids that arrive after the first request, the second …"""
        self.unreadable: frozenset[int] = frozenset()

    async def list_received(self, *, limit: int = 20, offset: int = 0) -> Page:
        self.calls += 1
        self.shown = self.ids
        listed = self.ids[offset : offset + limit]
        page = tuple(Message(id=id_, time=float(id_)) for id_ in listed if id_ not in self.unreadable)
        if self.happens:
            self.ids = sorted([*self.ids, *self.happens.pop(0)], reverse=True)
        return Page(messages=page, host_time_s=0.0, skipped=len(listed) - len(page))


async def check(listing: List, message_id: int, **more: int) -> int:
    """Look; what is newer must follow the place without a hole. Returns the number of requests."""
    around = await look_around(listing, message_id, **more)
    newer = [message.id for message in around.newer]
    expected = [id_ for id_ in reversed(listing.shown) if id_ > message_id]
    assert newer == expected[: len(newer)]
    assert len(newer) == len(expected) if around.top else len(newer) >= ENOUGH
    older = [id_ for id_ in listing.ids if id_ <= message_id]
    assert [message.id for message in around.older] == older[: len(around.older)]
    return around.calls


@pytest.mark.parametrize("seed", range(4))
async def test_a_backlog_of_ten_thousand_takes_a_few_requests(seed: int) -> None:
    """Ten thousand messages with the ids of a host with many users: a handful of requests, wherever the place is."""
    rng = random.Random(seed)
    ids = sorted(rng.sample(range(1, 3_000_000), 10_000))
    calls = [await check(List(ids), message_id) for message_id in rng.sample(ids, 40)]
    assert max(calls) <= 12
    assert sum(calls) / len(calls) < 5


async def test_ids_in_clumps_take_few_requests_too() -> None:
    """Ids that jump by millions between quiet weeks: interpolation misleads, halving helps."""
    ids = [base * 10**9 + k * k for base in (1, 2, 50, 3000) for k in range(2500)]
    for message_id in (ids[0], ids[2600], ids[7400], ids[-300], 5):
        assert await check(List(ids), message_id) <= 14


async def test_the_oldest_of_all_is_found_by_galloping() -> None:
    """After "0": the end of the list is found without walking to it."""
    listing = List(list(range(1000, 21_000, 2)))
    assert await check(listing, 0) <= 14


async def test_a_hint_saves_the_search() -> None:
    """Where the place was a moment ago: one request."""
    listing = List(list(range(1, 10_001)))
    assert await check(listing, 4_000, hint=6_000) == 1
    listing.ids = list(range(10_040, 0, -1))
    assert await check(listing, 4_000, hint=6_000) == 1


@pytest.mark.parametrize("seed", range(30))
async def test_messages_that_cannot_be_understood_leave_no_hole_but_their_own(seed: int) -> None:
    """A page without them is shorter, and yet neither the end of the list nor the place that is looked for."""
    rng = random.Random(seed)
    listing = List(rng.sample(range(1, 100_000), 3_000))
    listing.unreadable = frozenset(rng.sample(listing.ids, 300))
    message_id = rng.choice([0, *listing.ids[5:]])
    around = await look_around(listing, message_id, hint=rng.choice([None, rng.randrange(3_000)]), margin=120)
    readable = [id_ for id_ in listing.ids if id_ not in listing.unreadable]
    newer = [id_ for id_ in reversed(readable) if id_ > message_id]
    older = [id_ for id_ in readable if id_ <= message_id]
    assert [message.id for message in around.newer] == newer[: len(around.newer)]
    assert around.newer or not newer
    assert [message.id for message in around.older] == older[: len(around.older)]
    assert len(around.older) >= min(120, len(older))


@pytest.mark.parametrize("seed", range(30))
async def test_messages_that_arrive_while_it_pages_leave_no_hole(seed: int) -> None:
    """Bursts between the requests push everything down, late drafts turn up in the middle: nothing is skipped."""
    rng = random.Random(seed)
    listing = List(rng.sample(range(1, 50_000), rng.choice((5, 90, 100, 101, 3000))))
    top = 50_000
    for _ in range(12):
        burst = rng.choice((0, 1, 12, 95, 300))
        listing.happens.append(list(range(top, top + burst)))
        top += burst
    await check(listing, rng.choice(listing.ids))


async def test_the_margin_below_is_fetched_where_it_is_asked_for() -> None:
    """Late drafts are looked for below the place, so far and no farther."""
    listing = List(list(range(1, 2_001)))
    around = await look_around(listing, 1_000, margin=250)
    assert [message.id for message in around.older][:250] == list(range(1_000, 750, -1))
    few = await look_around(List([3, 2, 1]), 2, margin=250)
    assert [message.id for message in few.older] == [2, 1]


@pytest.mark.parametrize(("ids", "message_id"), [([], 5), ([9], 5), ([1, 2], 5), (list(range(1, PAGE + 1)), 0)])
async def test_small_lists(ids: list[int], message_id: int) -> None:
    """Empty lists, places above everything and below everything."""
    await check(List(ids), message_id)


async def test_a_list_that_never_stands_still_is_given_up() -> None:
    """A host whose pages make no sense: an error that a wait outlasts, not a hole and not an endless search."""

    class Nonsense(List):
        async def list_received(self, *, limit: int = 20, offset: int = 0) -> Page:
            self.calls += 1
            newest = 10**6 if self.calls % 2 else 5
            return Page(messages=tuple(Message(id=newest - k, time=0.0) for k in range(PAGE)))

    listing = Nonsense([])
    with pytest.raises(HostMisbehaved, match="stand still"):
        await look_around(listing, 1000, hint=500)
    assert listing.calls <= MAX_CALLS


def documents() -> MemoryDocuments:
    """An empty store."""
    return MemoryDocuments(clock=lambda: 0.0)


async def test_a_position_is_remembered_with_its_place() -> None:
    """Handed out, found again, and the last word counts."""
    store = documents()
    assert await load_list_position(store, ALICE, 7) is None
    assert await save_list_position(store, ALICE, 7, ListPosition("epoch", 70))
    assert await save_list_position(store, ALICE, 7, ListPosition("epoch", 71))
    assert await load_list_position(store, ALICE, 7) == ListPosition("epoch", 71)


async def test_the_newest_positions_are_remembered() -> None:
    """Very many positions: the newest stay, and what is stored stays small."""
    store = documents()
    for message_id in range(1, MAX_LIST_POSITIONS + 11):
        await save_list_position(store, ALICE, message_id, ListPosition("epoch", message_id))
    assert await load_list_position(store, ALICE, 10) is None
    assert await load_list_position(store, ALICE, 11) == ListPosition("epoch", 11)
    assert len((await store.load(ALICE, KIND, NAME)).data) < 4_000


async def test_what_another_replica_writes_stays() -> None:
    """Two replicas store at the same time: both positions are there afterwards."""
    store = documents()
    plain = store.store

    async def slow(*arguments: object, **more: object) -> int:
        store.store = plain  # type: ignore[method-assign]
        await save_list_position(store, ALICE, 8, ListPosition("epoch"))
        return await plain(*arguments, **more)  # type: ignore[arg-type]

    store.store = slow  # type: ignore[method-assign]
    assert await save_list_position(store, ALICE, 7, ListPosition("epoch"))
    assert await load_list_position(store, ALICE, 7)
    assert await load_list_position(store, ALICE, 8)


async def test_a_store_that_is_never_quiet_costs_the_memory_not_the_wait() -> None:
    """Every attempt meets another writer: it is given up, and says so."""
    store = documents()

    async def taken(*_: object, **__: object) -> int:
        return 0

    store.store = taken  # type: ignore[method-assign]
    assert not await save_list_position(store, ALICE, 7, ListPosition("epoch"))


async def test_what_another_version_wrote_is_forgotten() -> None:
    """Unreadable data: as if there were none."""
    store = documents()
    await store.store(ALICE, KIND, NAME, b"\xc1", expected=0, ttl_s=9.0)
    assert await load_list_position(store, ALICE, 7) is None
