"""What the host lists after a position and the ledger does not hold: messages from before the ledger, or trimmed.

They have one order (`ListOrder`). So a position there is an id and nothing else, and a reader that goes on from one to
the next always gets on.

The list is ordered by id, newest first, and asked for by offset (FMSG-003). Messages that arrive meanwhile push
everything to higher offsets, late-sent drafts turn up in the middle, drafts go. So offsets are only guesses, and every
page is judged by the ids on it. Pages that are to be joined overlap, and where they do not they are read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from fmsg.errors import Forbidden, HostMisbehaved, NotFound
from fmsg.message import Message, Page
from ledger.catch_up import catch_up, in_order, seen_from
from ledger.port import Documents, Ledger
from ledger.thread_roots import Ancestry, Roots, ThreadApi
from ledger.unreadable import tell_unreadable
from ledger.values import END, START, Arrival, CallerKey, Late, LedgerState, Seen, StreamId
from mcp_front.gather import gather_bounded

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
one, so the look must end somewhere. Feeds find them too, without this bound, as long as one runs."""
GALLOP = 8
"""How much farther than the last page the search may jump at once, so that a wild estimate costs little."""
MAX_CALLS = 24
"""Requests of one search. Ten reach the end of a list of 50,000 in the worst case; beyond this the list is no list."""
MAX_LATE_AT_ONCE = 20
"""Late messages fetched by one call, a request each. Where there are more, the rest comes with the next call."""
MOST_ROOTS = 200_000
"""Roots remembered by one process for all callers, 150 B each."""
MOST_ROOTS_OF_ONE = 20_000
"""And for one caller: the latest."""
KIND = "list_positions"
NAME = "all"
MAX_LIST_POSITIONS = 64
"""Positions kept per caller: so many agents may be behind the ledger at a time without forgetting each other's."""
TTL_S = 7 * 86_400.0
"""An agent that goes on after a longer pause may meet messages again that came out of order."""
TRIES = 3
"""Attempts to store against other writers. A position that is not stored costs repetitions, no message."""


class ReceivedList(Protocol):
    """What finding a place needs of `fmsg.webapi.WebApi`."""

    async def list_received(self, *, limit: int = ..., offset: int = ...) -> Page:
        """A page of the received messages, id descending."""
        ...


class WaitApi(ReceivedList, ThreadApi, Protocol):
    """What a wait needs of it."""


class Moved(Exception):
    """The ledger lacks what follows the position: find the position anew. ``cause`` is a label of `GAPS`."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


Rank = tuple[int, StreamId]
"""Where a message stands among those the ledger does not hold: its id and `START`, or for a late one the highest id
recorded before it and its place."""
END_RANK: Rank = (2**63, END)
"""Behind all others."""


class ListOrder:
    """The one order of what the ledger does not hold, the same for every reader: by id, but a late one (`Late`) where
    it was recorded. For what the ledger trimmed that is exactly the order of its entries."""

    def __init__(self, late: Sequence[Late]) -> None:
        self._late = {one.id: one for one in late}

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._late

    def rank(self, message_id: int) -> Rank:
        """Where a message stands."""
        late = self._late.get(message_id)
        return (message_id, START) if late is None else (late.top_id, late.at)

    def late_between(self, after: Rank, end: Rank) -> list[int]:
        """The ids of the late ones behind a place, up to another, in order."""
        return [one.id for one in self._late.values() if after < (one.top_id, one.at) <= end]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The position to go on from. ``offset``: where it once stood in the list.

    ``early_s``: also what has a lower id, is older than the ledger, and became available after this time. ``exact``: it
    was handed out by this ledger; else what has a higher id may follow it although it was recorded before.
    """

    id: int
    offset: int | None = None
    early_s: float | None = None
    exact: bool = True


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages after a position that the ledger does not hold, as entries without a place, in the one order.

    ``early`` are those that lie before the position in that order and may follow it all the same; ``beside`` the ids
    between those and the position, which a reader that goes on from the former meets. ``offsets``: where the messages
    stood in the list. ``complete``: the ledger goes on after them; else there are more. ``calls``: requests it took.
    """

    entries: tuple[Arrival, ...] = ()
    early: frozenset[int] = frozenset()
    beside: frozenset[int] = frozenset()
    offsets: Mapping[int, int] = {}
    complete: bool = True
    state: LedgerState
    calls: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing before the ledger."""
        return self.complete and not self.entries

    def early_until(self, at_s: float) -> frozenset[int]:
        """Those of ``early`` that became available no later than this."""
        return frozenset(entry.id for entry in self.entries if entry.id in self.early and entry.sent_at_s <= at_s)


class KnownRoots:
    """Roots of messages from before the ledger, which keeps none of them; by caller, those used last.

    Who reads thousands of old messages, a few a call, would else have their threads looked up again with each call.
    """

    def __init__(self) -> None:
        self._callers: OrderedDict[CallerKey, Roots] = OrderedDict()
        self._count = 0

    def of(self, caller: CallerKey) -> Roots:
        """The caller's, to be read."""
        return self._callers.get(caller, {})

    def learn(self, caller: CallerKey, roots: Roots) -> None:
        """Remember the caller's as long as there is room."""
        if not roots:
            return
        own = self._callers.pop(caller, {})
        self._count -= len(own)
        own |= roots
        if len(own) > MOST_ROOTS_OF_ONE:
            own = dict(list(own.items())[-MOST_ROOTS_OF_ONE // 2 :])
        self._callers[caller] = own
        self._count += len(own)
        while self._count > MOST_ROOTS:
            self._count -= len(self._callers.popitem(last=False)[1])


async def read_backlog(
    api: WaitApi,
    ledger: Ledger,
    caller: CallerKey,
    address: str,
    *,
    origin: Origin,
    state: LedgerState,
    roots: KnownRoots,
) -> Backlog:
    """What comes after ``origin`` and is not in the ledger, as far as a page or two of the list reach.

    ``state`` is the ledger's from before; ``roots`` learns the roots of what is met. Messages met on the way that the
    ledger should hold, since they arrived after it began, are recorded instead. Raises what the host and what the
    ledger raise.
    """
    order = ListOrder(await ledger.late(caller))
    reading = _Reading(api, _Sorter(api, ledger, caller, address, state), order, origin)
    while not await reading.stretch():
        pass  # all of it is in the ledger, or drafts: what is not may still follow
    found = reading.backlog(state, roots.of(caller))
    roots.learn(caller, {entry.id: entry.root for entry in found.entries if entry.root})
    return found


class _Reading:
    """One reading of the list after an origin, a stretch at a time."""

    def __init__(self, api: WaitApi, sorter: _Sorter, order: ListOrder, origin: Origin) -> None:
        self._api = api
        self._sorter = sorter
        self._order = order
        self._origin = origin
        self._place = order.rank(origin.id)
        self._after = self._place if origin.exact else (origin.id, START)
        self._from_id, self._hint = self._after[0], origin.offset
        self._margin = 0 if origin.early_s is None else MARGIN
        self._below: list[Seen] = []
        self._found: dict[int, Seen] = {}
        self._passed: list[int] = []
        self._offsets: dict[int, int] = {}
        self._complete = False
        self._calls = 0

    async def stretch(self) -> bool:
        """Read on; whether there is something to return, or nothing more before the ledger."""
        around = await look_around(self._api, self._from_id, hint=self._hint, margin=self._margin)
        newer = [seen for seen in await self._sorter.missing(around.newer) if seen.id not in self._order]
        if self._margin:
            older = await self._sorter.missing(around.older)
            self._below = [seen for seen in older if seen.id != self._origin.id]
        self._complete = around.top or around.newer[-1].id > self._sorter.state.baseline.newest_id
        late, end = await self._late(END_RANK if self._complete else (around.newer[-1].id, END))
        found = (*self._early(), *newer, *late)
        self._found = {seen.id: seen for seen in found if self._order.rank(seen.id) <= end}
        self._offsets = {message.id: around.offset - 1 - at for at, message in enumerate(around.newer)}
        self._calls += around.calls + len(late)
        if self._found or self._complete:
            return True
        self._from_id, self._hint, self._margin = around.newer[-1].id, around.offset - len(around.newer), 0
        return False

    def _early(self) -> list[Seen]:
        early_s = self._origin.early_s
        return [] if early_s is None else [seen for seen in self._below if seen.sent_at_s > early_s]

    async def _late(self, end: Rank) -> tuple[list[Seen], Rank]:
        """The late ones up to a place, and how far the stretch reaches where there are too many of them."""
        rank = self._order.rank
        self._passed = self._order.late_between(self._after, end)
        owed = [id_ for id_ in self._passed if rank(id_) > self._place or id_ > self._origin.id]
        if len(owed) > MAX_LATE_AT_ONCE:
            owed = owed[:MAX_LATE_AT_ONCE]
            self._complete, end = False, rank(owed[-1])
        return await self._sorter.fetch(owed), end

    def backlog(self, state: LedgerState, roots: Roots) -> Backlog:
        """What was found, in the one order."""
        rank, place = self._order.rank, self._place
        entries = sorted(self._found.values(), key=lambda seen: rank(seen.id))
        early = frozenset(seen.id for seen in entries if rank(seen.id) < place)
        met = {self._origin.id, *(seen.id for seen in self._below), *self._passed} if early else set()
        return Backlog(
            entries=_rooted(entries, returned=self._sorter.returned, roots=roots),
            early=early,
            beside=frozenset(id_ for id_ in met if id_ not in self._found and rank(id_) <= place),
            offsets=self._offsets,
            complete=self._complete,
            state=state,
            calls=self._calls,
        )


class _Sorter:
    """Tells messages that the ledger neither holds nor should hold from the others."""

    def __init__(self, api: WaitApi, ledger: Ledger, caller: CallerKey, address: str, state: LedgerState) -> None:
        self.state = state
        """The ledger's state after the last comparison."""
        self.returned = frozenset[int]()
        """Those of the listed messages that were returned before."""
        self._api = api
        self._ledger = ledger
        self._caller = caller
        self._address = address

    async def missing(self, messages: Iterable[Message]) -> list[Seen]:
        """Those that the ledger neither holds nor should hold; drafts are no messages.

        What it should hold is recorded with all that arrived with it: one alone might move the baseline past others.
        """
        listed = [seen_from(message, address=self._address, root=0) for message in messages if not message.is_draft]
        missing, news = await self._compare(listed)
        if news:
            await catch_up(self._api, self._ledger, self._caller, self._address, source="poll")
            missing, news = await self._compare(listed)
        if news:
            await self._ledger.append(self._caller, in_order(news), "poll", since=self.state.head)
        return missing

    async def fetch(self, message_ids: Sequence[int]) -> list[Seen]:
        """Late messages, a request each: they are few, and lie anywhere in the list."""
        messages = [message for message in await gather_bounded(self._message, message_ids) if message is not None]
        return await self.missing(messages)

    async def _message(self, message_id: int) -> Message | None:
        try:
            return await self._api.message(message_id)
        except (Forbidden, NotFound):
            return None  # taken from the caller since

    async def _compare(self, listed: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
        """What is old and not in the ledger, and what is new and not in it."""
        # Compared first: what is recorded in between is then held. What is trimmed in between is met as a gap.
        compared = await self._ledger.compare(self._caller, listed, since=self.state.head)
        found = await self._ledger.find(self._caller, [seen.id for seen in listed])
        self.state = compared.state
        self.returned |= found.returned
        missing = [seen for seen in listed if seen.id not in found.entries]
        news = [seen for seen in missing if seen.id in compared.news]
        return [seen for seen in missing if seen.id not in compared.news], news


def _rooted(listed: Sequence[Seen], *, returned: frozenset[int], roots: Roots) -> tuple[Arrival, ...]:
    """As entries from before any ledger's time: their settle windows are long over."""
    lineage = Ancestry(listed, roots)
    entries = (Arrival.of(lineage.apply(seen), START, "snapshot") for seen in listed)
    return tuple(msgspec.structs.replace(entry, returned=entry.id in returned) for entry in entries)


# A place in the list


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


# Positions that were handed out


class ListPosition(msgspec.Struct, frozen=True, array_like=True):
    """A position that was handed out before the ledger: in which life of the ledger, and where it stood in the list.

    That it was handed out makes it exact, and its offset makes it quick to find. Without this memory (it expires, it is
    bounded, the store may lose it) messages may come twice, never not at all.
    """

    epoch: str
    offset: int | None = None


async def load_list_position(documents: Documents, caller: CallerKey, message_id: int) -> ListPosition | None:
    """What is remembered of a position."""
    return _decode((await documents.load(caller, KIND, NAME)).data).get(message_id)


async def save_list_position(documents: Documents, caller: CallerKey, message_id: int, position: ListPosition) -> bool:
    """Remember a position; whether that worked."""
    for _ in range(TRIES):
        stored = await documents.load(caller, KIND, NAME)
        positions = _decode(stored.data)
        positions.pop(message_id, None)
        positions[message_id] = position
        for gone in list(positions)[:-MAX_LIST_POSITIONS]:
            del positions[gone]
        data = msgspec.msgpack.encode(list(positions.items()))
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
