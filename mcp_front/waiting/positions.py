"""From a message id to the place where a wait goes on reading: in the ledger, on the host's list before it, or both.

An offset that this ledger handed out is exact. Everything else is an id whose place among the arrivals is an estimate:
an id from a list, from before a flush, from another replica's emergency ledger. Then what may have arrived after it
comes again: what has a higher id (it was given its id later) or became available later (late drafts, added people).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from fmsg.address import same_address
from fmsg.errors import Forbidden, NotFound
from fmsg.message import Message
from ledger.arrival import Arrival, CallerKey, LedgerState, Place
from ledger.catch_up import CaughtUp, catch_up, is_news, seen_from
from ledger.port import Documents, Ledger, NoLedger
from mcp_front.waiting.bookmarks import Bookmark, load_bookmark
from mcp_front.waiting.errors import UnknownPosition
from mcp_front.waiting.past import Moved, Past, WaitApi, read_past

CHUNK = 200
"""Entries read at once when looking back."""
BACK_S = 600.0
"""How far before a message's own time entries are looked at that may have arrived after it: the skew of the clocks of
host and ledger, with much room."""
SKEW_S = 120.0
"""An entry recorded so long before a message was sent arrived before it, whatever the clocks say."""
MARKS_S = 86_400.0
"""How long a handed-out position is remembered (`ledger.limits.LedgerLimits.returned_ttl_s`)."""
END = 2**52
"""An offset no ledger reaches, exact in Lua's numbers."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place between arrivals, named by the message before it: 0 is before everything.

    ``n`` and ``epoch`` say where that message stands in a ledger (0 and "" where not known), ``bookmark`` where in the
    host's list, for one that lies before the ledger.
    """

    id: int
    n: int = 0
    epoch: str = ""
    bookmark: Bookmark | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a wait goes on reading: ``past`` first, where there is any, then the ledger's entries after ``after_n``.

    ``over``: ids in the ledger that lie before the position although their offset is higher. ``doubtful``: ids that may
    have been returned so long ago that nobody remembers. ``verify``: the entry at ``after_n`` must be ``position.id``.
    """

    position: Position
    after_n: int
    epoch: str = ""
    past: Past | None = None
    over: frozenset[int] = frozenset()
    doubtful: frozenset[int] = frozenset()
    verify: bool = False


class Positions:
    """Finds places for one caller in one ledger. Every method raises what the host and the ledger raise."""

    def __init__(
        self,
        api: WaitApi,
        ledger: Ledger,
        documents: Documents,
        caller: CallerKey,
        address: str,
        *,
        seed_limit: int,
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._documents = documents
        self._caller = caller
        self._address = address
        self._seed_limit = seed_limit

    async def look(self) -> CaughtUp:
        """Compare the host's list with the ledger now; begin the ledger where there is none."""
        return await catch_up(
            self._api, self._ledger, self._caller, self._address, source="poll", seed_limit=self._seed_limit
        )

    async def now(self, caught_up: CaughtUp | None, *, elapsed_s: float) -> Start:
        """Behind the newest message there was when the call began, ``elapsed_s`` ago.

        ``caught_up``: no feed keeps the ledger up to date, so the host was asked just now. What it listed may be
        younger than the call; its times say so, to the second, and in doubt a message counts as younger.
        """
        tail = await self._ledger.read_back(self._caller, END, CHUNK if caught_up else 1)
        entries, state = tail.entries, tail.state
        young = _younger(entries, caught_up, elapsed_s=elapsed_s) if caught_up else frozenset[int]()
        first_young = next((at for at, entry in enumerate(entries) if entry.id in young), len(entries))
        behind = entries[first_young - 1] if first_young else None
        after_n = (entries[first_young].n if first_young < len(entries) else state.last_n + 1) - 1
        return Start(
            position=Position(behind.id if behind else 0, after_n, state.epoch),
            after_n=after_n,
            epoch=state.epoch,
            over=frozenset(entry.id for entry in entries[first_young:] if entry.id not in young),
        )

    async def after(self, position: Position) -> Start:
        """Behind a position. Raises `UnknownPosition` for an id the caller neither received nor sent."""
        if position.epoch:
            return Start(position=position, after_n=position.n, epoch=position.epoch)
        place = await self._place(position.id) if position.id else None
        if place is not None and place.handed_out:
            return Start(position=Position(position.id, place.n), after_n=place.n, verify=True)
        state = await self._state()
        if position.id == 0:
            return await self._before_everything(state)
        if place is not None:
            return await self._in_ledger(position.id, place.n, state)
        bookmark = position.bookmark or await load_bookmark(self._documents, self._caller, position.id)
        if bookmark is not None:
            return await self._bookmarked(position.id, bookmark, state)
        return await self._unknown_to_ledger(position.id, state)

    async def _state(self) -> LedgerState:
        return await self._ledger.state(self._caller) or (await self.look()).state

    async def _place(self, message_id: int) -> Place | None:
        try:
            places = await self._ledger.locate(self._caller, [message_id])
        except NoLedger:
            await self.look()
            places = await self._ledger.locate(self._caller, [message_id])
        return places.get(message_id)

    async def _before_everything(self, state: LedgerState) -> Start:
        return await self._from_the_list(Position(0), Bookmark(0, math.inf, 0, math.inf), state)

    async def _from_the_list(self, position: Position, base: Bookmark, state: LedgerState) -> Start:
        """What the list holds after ``base``, then the whole ledger."""
        past = await self._past(base, state)
        return Start(position=position, after_n=state.first_n - 1, epoch=state.epoch, past=past)

    async def _bookmarked(self, message_id: int, bookmark: Bookmark, state: LedgerState) -> Start:
        place = await self._place(bookmark.base_id) if bookmark.base_id != message_id else None
        if place is None:
            return await self._from_the_list(Position(message_id, bookmark=bookmark), bookmark, state)
        start = await self._in_ledger(bookmark.base_id, place.n, state, base=bookmark)
        return msgspec.structs.replace(start, position=Position(message_id, bookmark=bookmark))

    async def _in_ledger(self, message_id: int, n: int, state: LedgerState, *, base: Bookmark | None = None) -> Start:
        """The ledger holds the message but never handed it out: its offset is an estimate."""
        entry = await self._entry(message_id, n)
        before = await self._back(n, since_s=entry.sent_at_s - BACK_S)
        doubtful = [one for one in before if _may_follow(one, entry.id, entry.sent_at_s)]
        past = None
        if n <= state.seed_n:
            here = base or Bookmark(entry.id, entry.sent_at_s, entry.id, entry.sent_at_s)
            past = await self._past(here, state)
        after_n = doubtful[0].n - 1 if doubtful else n
        forgotten = n > state.seed_n and entry.arrived_at_s + MARKS_S < state.now_s
        follows = frozenset(one.id for one in doubtful)
        over = frozenset(one.id for one in (*before, entry) if one.n > after_n and one.id not in follows)
        settled = not doubtful and (past is None or past.is_empty)
        return Start(
            position=Position(entry.id, n, state.epoch) if settled else Position(entry.id),
            after_n=after_n,
            epoch=state.epoch,
            past=past,
            over=over,
            doubtful=follows if forgotten else frozenset(),
        )

    async def _unknown_to_ledger(self, message_id: int, state: LedgerState) -> Start:
        message = await self._fetch(message_id)
        if message.time is None:
            raise UnknownPosition(
                f"after_id: message {message_id} is a draft, so nothing can have arrived after it was sent. "
                "Pass the after_id of the last result, or leave it out to wait from now on."
            )
        if same_address(message.from_, self._address):
            return await self._after_sending(message_id, message.time, state)
        seen = seen_from(message, address=self._address, root=0)
        if is_news(seen, state.baseline):
            # It arrived, and the ledger has not heard of it: neither of what came with it.
            await self.look()
            await self._ledger.append(self._caller, [seen], "poll")
            place = await self._place(message_id)
            if place is None:
                raise Moved("trimmed")
            return await self._in_ledger(message_id, place.n, await self._state())
        base = Bookmark(seen.id, seen.sent_at_s, seen.id, seen.sent_at_s)
        return await self._from_the_list(Position(message_id), base, state)

    async def _fetch(self, message_id: int) -> Message:
        try:
            return await self._api.message(message_id)
        except (NotFound, Forbidden) as error:
            raise UnknownPosition(
                f"after_id: {message_id} is no message this address received or sent (the host says: {error.reason}). "
                'Pass the after_id of the last result, leave it out to wait from now on, or pass "0" to get '
                "everything from the beginning."
            ) from error

    async def _after_sending(self, message_id: int, sent_at_s: float, state: LedgerState) -> Start:
        """Behind one of the caller's own messages: what arrived after it was sent, in doubt earlier."""
        back = await self._back(END, since_s=sent_at_s - BACK_S)
        follows = [one for one in back if _arrived_after(one, message_id, sent_at_s, state)]
        rest = [one for one in back if one.arrived_at_s > sent_at_s or one in follows]
        handed_out_n = await self._handed_out_n(rest)
        wanted = {one.id for one in follows}
        wanted |= {one.id for one in rest if one.n > handed_out_n and one.arrived_at_s > sent_at_s}
        after_n = next((one.n for one in back if one.id in wanted), back[-1].n + 1 if back else state.last_n + 1) - 1
        behind = next((one.id for one in back if one.n == after_n), None)
        past = None
        if message_id < state.baseline.newest_id or sent_at_s <= state.baseline.time_s:
            past = await self._past(Bookmark(message_id, sent_at_s, message_id, sent_at_s), state)
        settled = past is None or past.is_empty
        return Start(
            position=Position(behind, after_n, state.epoch) if settled and behind else Position(message_id),
            after_n=after_n,
            epoch=state.epoch,
            past=past,
            over=frozenset(one.id for one in back if one.n > after_n and one.id not in wanted),
            doubtful=frozenset(one.id for one in follows if one.n <= handed_out_n and one.arrived_at_s <= sent_at_s),
        )

    async def _handed_out_n(self, entries: Sequence[Arrival]) -> int:
        """The highest offset among the entries that was handed out as a position; 0 for none."""
        if not entries:
            return 0
        places = await self._ledger.locate(self._caller, [one.id for one in entries])
        return max((place.n for place in places.values() if place.handed_out), default=0)

    async def _past(self, base: Bookmark, state: LedgerState) -> Past:
        return await read_past(self._api, self._ledger, self._caller, self._address, base=base, state=state)

    async def _entry(self, message_id: int, n: int) -> Arrival:
        entries = (await self._ledger.read(self._caller, n - 1, 1)).entries
        if not entries or entries[0].id != message_id:
            raise Moved("epoch")
        return entries[0]

    async def _back(self, before_n: int, *, since_s: float) -> list[Arrival]:
        """Entries before an offset, ascending, back to those recorded before ``since_s``; seeds always."""
        found: list[Arrival] = []
        while True:
            slice_ = await self._ledger.read_back(self._caller, before_n, CHUNK)
            found = [*slice_.entries, *found]
            if len(slice_.entries) < CHUNK:
                return found
            oldest = slice_.entries[0]
            if oldest.n > slice_.state.seed_n and oldest.arrived_at_s < since_s:
                return found
            before_n = oldest.n


def _may_follow(one: Arrival, message_id: int, at_s: float) -> bool:
    """Whether an arrival can have come after a message with this id and time, in spite of its place."""
    return one.id > message_id or one.sent_at_s > at_s


def _arrived_after(one: Arrival, message_id: int, sent_at_s: float, state: LedgerState) -> bool:
    recorded_in_time = one.n <= state.seed_n or one.arrived_at_s > sent_at_s - SKEW_S
    return recorded_in_time and _may_follow(one, message_id, sent_at_s)


def _younger(entries: Sequence[Arrival], caught_up: CaughtUp, *, elapsed_s: float) -> frozenset[int]:
    """Those of the newest entries that this very look found and that may be younger than the call."""
    found = frozenset(id_ for id_, _ in caught_up.new)
    host_time_s = caught_up.host_time_s
    if host_time_s is None:
        return frozenset()
    earliest_s = math.floor(host_time_s) - elapsed_s
    latest_s = host_time_s + 2.0
    return frozenset(
        entry.id
        for entry in entries
        if (entry.source == "seed" if caught_up.began else entry.id in found)
        and earliest_s < entry.sent_at_s <= latest_s
    )
