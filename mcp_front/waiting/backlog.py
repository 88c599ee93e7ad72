"""What the host lists after a position and the ledger does not hold: messages from before the ledger, or trimmed.

They have one order, the same for every reader: by id, but a latecomer (`ledger.values.OutOfOrder`) where it was
recorded. For what the ledger trimmed that is exactly the order of its offsets. So a position there is an id and nothing
else, and a reader that goes on from one to the next always gets on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from fmsg.errors import Forbidden, HostMisbehaved, NotFound
from fmsg.message import Message, Page
from ledger.catch_up import catch_up, in_order, seen_from
from ledger.port import Documents, Ledger
from ledger.thread_roots import Lineage, ThreadApi
from ledger.unreadable import tell_unreadable
from ledger.values import Arrival, CallerKey, Latecomer, LedgerState, Seen

MAX_LATE = 20
"""Latecomers fetched by one call, a request each. Where there are more, the rest comes with the next call."""
CONCURRENCY = 4
"""Requests to the host at a time: enough to hide the latency, too few to be a burst."""

PAGE = 100
"""The longest page a host gives."""
NEWER_SHARE = 70
"""Where on a page the wanted place is put: most of the page should be what comes after it."""
ENOUGH = 50
"""Newer messages that are worth a decision; with fewer another page is fetched."""
OVERLAP = 10
"""Messages two joined pages share. More arrive between two requests only in a burst; then the page is read again."""
MARGIN = 120
"""How far below a place late-sent drafts and added messages are looked for. They are found by comparing times, one by
one, so the look must end somewhere; feeds find them too, without this bound, as long as one runs."""
GALLOP = 8
"""How much farther than the last page the search may jump at once, so that a wild estimate costs little."""
MAX_CALLS = 24
"""Requests of one search. Ten reach the end of a list of 50,000 in the worst case; beyond this the list is no list."""
KIND = "list_positions"
NAME = "all"
MAX_LIST_POSITIONS = 64
"""Positions kept per caller: so many agents may be behind the ledger at a time without forgetting each other's."""
TTL_S = 7 * 86_400.0
"""An agent that goes on after a longer pause may meet messages again that came out of order."""
TRIES = 3
"""Attempts to store against other writers. A position that is not stored costs repetitions, no message."""

END = (2**63, 2**63)
"""The rank behind all others."""

Rank = tuple[int, int]
"""Where a message stands among those the ledger does not hold: its id and 0, or for a latecomer the highest id recorded
before it and its offset."""


class ReceivedList(Protocol):
    """What is needed of `fmsg.webapi.WebApi`."""

    async def list_received(self, *, limit: int = ..., offset: int = ...) -> Page:
        """A page of the received messages, id descending."""
        ...


class WaitApi(ReceivedList, ThreadApi, Protocol):
    """What a wait needs of `fmsg.webapi.WebApi`."""


class Moved(Exception):
    """The ledger is not the one the position belongs to any more, or lacks what follows it: find the position anew.

    ``cause`` is a label of `telemetry.metrics.GAPS`.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The position to go on from. ``offset``: where it once stood in the list.

    ``early_s``: also what has a lower id, is older than the ledger, and became available after this time. ``exact``: it
    was handed out by this ledger; else what has a higher id may follow it although it was recorded before. ``listed``:
    it was handed out as a place on the list.
    """

    id: int
    offset: int | None = None
    early_s: float | None = None
    exact: bool = True
    listed: bool = False


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages after a position that the ledger does not hold, as entries without an offset, in the one order.

    ``early`` are those that lie before the position in that order and may follow it all the same. ``complete``: the
    ledger goes on after them; else there are more.
    """

    entries: tuple[Arrival, ...]
    early: frozenset[int]
    beside: frozenset[int]
    """Ids between those of ``early`` and the position: a reader that goes on from the former meets them."""
    complete: bool
    offsets: Mapping[int, int]
    """Where the messages stood in the list."""
    state: LedgerState
    calls: int
    """Requests to the host it took."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing before the ledger."""
        return self.complete and not self.entries

    def early_until(self, at_s: float) -> frozenset[int]:
        """Those of ``early`` that became available no later than this."""
        return frozenset(entry.id for entry in self.entries if entry.id in self.early and entry.sent_at_s <= at_s)


def no_backlog(state: LedgerState) -> Backlog:
    """There is nothing that the ledger does not hold, and nobody has to be asked to know it."""
    nobody = frozenset[int]()
    return Backlog(entries=(), early=nobody, beside=nobody, complete=True, offsets={}, state=state, calls=0)


async def read_backlog(
    api: WaitApi, ledger: Ledger, caller: CallerKey, address: str, *, origin: Origin, state: LedgerState
) -> Backlog:
    """What comes after ``origin`` and is not in the ledger, as far as a page or two of the list reach.

    ``state`` is the ledger's from before. Messages met on the way that the ledger should hold, since they arrived after
    it began, are recorded instead. Raises `Moved`, what the host and what the ledger raise.
    """
    sorter = _Sorter(api, ledger, caller, address, state)
    order = await ledger.out_of_order(caller)
    records = {one.id: one for one in order.latecomers}
    place = _rank(origin.id, records)
    rank = place if origin.exact else (origin.id, 0)
    from_id, hint, margin, calls = rank[0], origin.offset, MARGIN if origin.early_s is not None else 0, 0
    below: list[Seen] = []
    while True:
        around = await look_around(api, from_id, hint=hint, margin=margin)
        calls += around.calls
        newer = [seen for seen in await sorter.sort(sorter.seen(around.newer)) if seen.id not in records]
        if margin:
            below = await sorter.sort([seen for seen in sorter.seen(around.older) if seen.id != origin.id])
        complete = around.top or around.newer[-1].id > sorter.after.baseline.newest_id
        end: Rank = END if complete else (around.newer[-1].id, END[1])
        trimmed = [one for one in order.latecomers if one.n < state.first_n and rank < (one.top_id, one.n) <= end]
        owed = [one for one in trimmed if (one.top_id, one.n) > place or one.id > origin.id]
        late = await _fetch(api, owed[:MAX_LATE], sorter)
        if len(owed) > MAX_LATE and late:
            complete, end = False, max(_rank(seen.id, records) for seen in late)
        early = [seen for seen in below if origin.early_s is not None and seen.sent_at_s > origin.early_s]
        found = {seen.id: seen for seen in (*early, *newer, *late) if _rank(seen.id, records) <= end}
        if found or complete:
            break
        # All of it is in the ledger (or drafts): what is not may still follow.
        from_id, hint, margin = around.newer[-1].id, around.offset - len(around.newer), 0
    entries = sorted(found.values(), key=lambda seen: _rank(seen.id, records))
    first = frozenset(seen.id for seen in entries if _rank(seen.id, records) < place)
    passed = {origin.id, *(seen.id for seen in below), *(one.id for one in trimmed)} if first else set()
    return Backlog(
        entries=_rooted(entries),
        early=first,
        beside=frozenset(id_ for id_ in passed if id_ not in found and _rank(id_, records) <= place),
        complete=complete,
        offsets={message.id: around.offset - 1 - at for at, message in enumerate(around.newer)},
        state=state,
        calls=calls + len(late),
    )


def _rank(message_id: int, records: Mapping[int, Latecomer]) -> Rank:
    record = records.get(message_id)
    return (message_id, 0) if record is None else (record.top_id, record.n)


async def _fetch(api: WaitApi, owed: Sequence[Latecomer], sorter: _Sorter) -> list[Seen]:
    """Latecomers, a request each: they are few, and lie anywhere in the list."""
    found: list[Seen] = []
    gate = asyncio.Semaphore(CONCURRENCY)

    async def fetch(message_id: int) -> None:
        async with gate:
            try:
                found.extend(sorter.seen([await api.message(message_id)]))
            except (Forbidden, NotFound):
                return  # taken from the caller since

    try:
        async with asyncio.TaskGroup() as group:
            for one in owed:
                group.create_task(fetch(one.id))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return found


class _Sorter:
    """Tells messages that the ledger neither holds nor should hold from the others."""

    def __init__(self, api: WaitApi, ledger: Ledger, caller: CallerKey, address: str, state: LedgerState) -> None:
        self.after = state
        """The ledger's state after the last comparison."""
        self._news: list[Seen] = []
        self._api = api
        self._ledger = ledger
        self._caller = caller
        self._address = address

    def seen(self, messages: Iterable[Message]) -> list[Seen]:
        """Listed messages as the ledger would keep them; drafts are none."""
        return [seen_from(message, address=self._address, root=0) for message in messages if not message.is_draft]

    async def sort(self, listed: Sequence[Seen]) -> list[Seen]:
        """Those that the ledger neither holds nor should hold.

        What it should hold is recorded with all that arrived with it: one alone might move the baseline past others.
        """
        missing = await self._compare(listed)
        if self._news:
            await catch_up(self._api, self._ledger, self._caller, self._address, source="poll")
            missing = await self._compare(listed)
        if self._news:
            await self._ledger.append(self._caller, in_order(self._news), "poll", since=self.after)
        return missing

    async def _compare(self, listed: Sequence[Seen]) -> list[Seen]:
        """What is old and not in the ledger; and ``_news``, what is new and not in it."""
        # Before the places: what is recorded in between is then held. What is trimmed in between is met as a gap.
        compared = await self._ledger.compare(self._caller, listed, since=self.after)
        held = await self._ledger.locate(self._caller, [seen.id for seen in listed])
        if compared.state.epoch != self.after.epoch:
            raise Moved("epoch")
        self.after = compared.state
        missing = [seen for seen in listed if seen.id not in held]
        self._news = [seen for seen in missing if seen.id in compared.news]
        return [seen for seen in missing if seen.id not in compared.news]


def _rooted(listed: Sequence[Seen]) -> tuple[Arrival, ...]:
    """As entries from before any ledger's time: their settle windows are long over."""
    lineage = Lineage(listed)
    fields = Seen.__struct_fields__
    return tuple(
        Arrival(n=0, arrived_at_s=0.0, source="seed", **{name: getattr(one, name) for name in fields})
        for one in (lineage.apply(one) for one in listed)
    )


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the list holds around an id: ``newer`` ascending and without holes from it on, ``older`` (the id itself and
    below) descending.

    ``top``: ``newer`` reaches the newest message of the list. ``offset``: where ``older`` begins. ``calls``: requests
    made.
    """

    newer: tuple[Message, ...]
    older: tuple[Message, ...]
    top: bool
    offset: int
    calls: int


async def look_around(api: ReceivedList, message_id: int, *, hint: int | None = None, margin: int = 0) -> Surroundings:
    """What stands around ``message_id`` in the list, whether the list holds it or not.

    ``hint`` is the offset it had some time ago; ``margin`` how many older messages are wanted. Raises what the host
    raises.
    """
    search = _Search(api, message_id)
    page, offset = await search.find(hint)
    newer = [message for message in reversed(page) if message.id > message_id]
    older = [message for message in page if message.id <= message_id]
    boundary = offset + len(newer)
    goes_on = not search.at_end
    newer, start = await search.climb(newer, offset)
    if goes_on:
        older = await search.descend(older, boundary, margin)
    return Surroundings(newer=tuple(newer), older=tuple(older), top=start == 0, offset=boundary, calls=search.calls)


class _Search:
    """The requests of one look."""

    def __init__(self, api: ReceivedList, message_id: int) -> None:
        self.calls = 0
        self.at_end = False
        """Whether the last page was the end of the list. Messages that cannot be understood count, too."""
        self._api = api
        self._id = message_id
        self._low: tuple[int, int] | None = None
        """An offset that holds something newer, the largest known, and the id there."""
        self._high: tuple[int, int | None] | None = None
        """An offset that holds nothing newer, the smallest known, and the id there (None: the list ends before)."""
        self._spacing = 1.0
        """Ids per message, as on the last page."""

    async def find(self, hint: int | None) -> tuple[Sequence[Message], int]:
        """The page on which the list goes from newer to not newer (or ends), and its offset."""
        offset = max(0, (hint or 0) - ENOUGH)  # whatever arrived since then has pushed it down
        while True:
            page = await self._page(offset)
            newer = sum(message.id > self._id for message in page)
            if (newer or offset == 0) and (newer < len(page) or self.at_end):
                return page, offset
            if self.calls >= MAX_CALLS:
                raise HostMisbehaved(
                    f"message {self._id}: the host's list does not stand still long enough to find it."
                )
            self._learn(page, offset, newer)
            offset = self._guess()

    async def climb(self, newer: list[Message], start: int) -> tuple[list[Message], int]:
        """Add newer pages until there is enough; the messages ascending, and the offset where they begin."""
        while len(newer) < ENOUGH and start > 0 and self.calls < MAX_CALLS:
            wanted = max(0, start + OVERLAP - PAGE)
            page = await self._page(wanted)
            newest = newer[-1].id if newer else self._id
            fresh = [message for message in reversed(page) if message.id > newest]
            if len(fresh) == len(page) and page:
                # Everything moved down by more than the overlap: what is on this page does not join on.
                start += PAGE // 2
                continue
            newer = newer + fresh
            start = wanted
        return newer, start

    async def descend(self, older: list[Message], boundary: int, margin: int) -> list[Message]:
        """Add older pages until there are enough; arrivals meanwhile only make the pages share more."""
        while len(older) < margin and self.calls < MAX_CALLS:
            page = await self._page(boundary + max(len(older) - OVERLAP, 0))
            lowest = older[-1].id if older else self._id + 1
            older = older + [message for message in page if message.id < lowest]
            if self.at_end:
                break
        return older

    async def _page(self, offset: int) -> Sequence[Message]:
        self.calls += 1
        page = await self._api.list_received(limit=PAGE, offset=offset)
        self.at_end = len(page.messages) + page.skipped < PAGE
        return page.messages

    def _learn(self, page: Sequence[Message], offset: int, newer: int) -> None:
        if newer:
            self._low = (offset + len(page) - 1, page[-1].id)
            self._spacing = max((page[0].id - page[-1].id) / max(len(page) - 1, 1), 1.0)
            if self._high is not None and self._high[0] <= self._low[0]:
                self._high = None  # the list moved down since
        else:
            self._high = (offset, page[0].id if page else None)
            if self._low is not None and self._low[0] >= offset:
                self._low = None  # messages went since

    def _guess(self) -> int:
        """Where to look next, by interpolation between what is known, every second time by halving."""
        if self._low is None:
            return max(0, (self._high or (0, None))[0] - (PAGE << self.calls))
        low, low_id = self._low
        if self._high is None:
            estimate = low + (low_id - self._id) / self._spacing
            return round(min(max(estimate - NEWER_SHARE, low + 1 - OVERLAP), (low + PAGE) * GALLOP))
        high, high_id = self._high
        share = 0.5
        if high_id is not None and self.calls % 2 and low_id > high_id:
            share = (low_id - self._id) / (low_id - high_id)
        estimate = low + (high - low) * share
        return round(min(max(estimate - NEWER_SHARE, low + 1 - OVERLAP), max(high - 1, 0)))


class ListPosition(msgspec.Struct, frozen=True, array_like=True):
    """A position that was handed out: in which life of the ledger, and where it stood in the list."""

    epoch: str
    offset: int | None = None


async def load_list_position(documents: Documents, caller: CallerKey, message_id: int) -> ListPosition | None:
    """What is remembered of a position."""
    return _decode((await documents.load(caller, KIND, NAME)).data).get(message_id)


async def save_list_position(documents: Documents, caller: CallerKey, message_id: int, step: ListPosition) -> bool:
    """Remember a position; whether that worked."""
    for _ in range(TRIES):
        stored = await documents.load(caller, KIND, NAME)
        steps = _decode(stored.data)
        steps.pop(message_id, None)
        steps[message_id] = step
        for gone in list(steps)[:-MAX_LIST_POSITIONS]:
            del steps[gone]
        data = msgspec.msgpack.encode(list(steps.items()))
        if await documents.store(caller, KIND, NAME, data, expected=stored.version, ttl_s=TTL_S):
            return True
    return False


def _decode(data: bytes) -> dict[int, ListPosition]:
    if not data:
        return {}
    try:
        return dict(msgspec.msgpack.decode(data, type=list[tuple[int, ListPosition]]))
    except msgspec.DecodeError:
        tell_unreadable(KIND)
        return {}  # forgotten, which is allowed
