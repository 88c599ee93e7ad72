"""From a message id to the place where a wait goes on reading: in the ledger, on the host's list before it, or both.

An offset that this ledger handed out is exact. Everything else is an id whose place among the arrivals is an estimate:
an id from a list, from before a flush, from another replica's emergency ledger. Then what may have arrived after it
comes again: what has a higher id (it was given its id later) or became available later (late drafts, added people).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fmsg.address import same_address
from fmsg.errors import Forbidden, NotFound
from fmsg.message import Message
from ledger.catch_up import CaughtUp, catch_up, is_news, seen_from
from ledger.port import Documents, Ledger, NoLedger
from ledger.values import Arrival, CallerKey, LedgerState, Place
from mcp_front.waiting.backlog import Moved, Origin, Past, WaitApi, nothing_past, read_past
from mcp_front.waiting.errors import UnknownPosition
from mcp_front.waiting.list_positions import Step, load_step
from mcp_front.waiting.precedence import (
    MARKS_S,
    arrived_after,
    may_follow,
    out_of_order,
    perhaps_returned,
    reaches_back_to,
    younger,
)
from mcp_front.waiting.recent import Recent
from mcp_front.waiting.resets import LOOK_BACK_S, Unrest

CHUNK = 200
"""Entries read at once when looking back."""
BACK_S = 600.0
"""How far before a message's own time entries are looked at that may have arrived after it: the skew of the clocks of
host and ledger, with much room."""
AT_ONCE_S = 0.05
"""A call that finds its place so soon after it began looks at the newest entry only, unless that is younger."""
END = 2**52
"""An offset no ledger reaches, exact in Lua's numbers."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place between arrivals, named by the message before it: 0 is before everything.

    ``n`` and ``epoch`` say where that message stands in which ledger, as far as they are known. With an ``epoch`` but
    no ``n`` it lies before what the ledger held, at ``offset`` of the host's list. ``foreign``: it is known to be from
    another ledger than the present one, whatever that one handed out since.
    """

    id: int
    n: int = 0
    epoch: str = ""
    offset: int | None = None
    foreign: bool = False

    def left(self, *, foreign: bool) -> Position:
        """The same by its id, to be found anew: in another ledger, or in front of what this one still holds."""
        if foreign or not self.epoch:
            return Position(self.id, foreign=self.foreign or foreign)
        return Position(self.id, 0, self.epoch, self.offset)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a wait goes on reading: ``past`` first, where there is any, then the ledger's entries after ``after_n``.

    ``over``: ids in the ledger that lie before the position although they are met again from here. ``doubtful``: ids
    that may have been returned or not. ``verify``: the entry at ``after_n`` must be ``position.id``.
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
        unrest: Callable[[str], Awaitable[Unrest | None]] | None = None,
        recent: Recent | None = None,
        emergency: bool = False,
    ) -> None:
        """``unrest`` is told the ledger's epoch and tells of a change of ledgers, if there was one.

        ``recent``: what this process read of the shared ledger. ``emergency``: the ledger is none that lasts.
        """
        self.look_together: Callable[[], Awaitable[CaughtUp]] | None = None
        """Looks at the host's list together with the caller's other waits; else each looks for itself."""
        self._api = api
        self._ledger = ledger
        self._documents = documents
        self._caller = caller
        self._address = address
        self._seed_limit = seed_limit
        self._unrest = unrest
        self._recent = recent or Recent()
        self._emergency = emergency

    async def look(self) -> CaughtUp:
        """Compare the host's list with the ledger now; begin the ledger where there is none."""
        to = (self._api, self._ledger, self._caller, self._address)
        return await catch_up(*to, source="poll", seed_limit=self._seed_limit)

    async def _look(self) -> CaughtUp:
        return await (self.look() if self.look_together is None else self.look_together())

    async def now(self, caught_up: CaughtUp | None, *, elapsed_s: float) -> Start:
        """Behind the newest message there was when the call began, ``elapsed_s`` ago.

        ``caught_up``: no feed keeps the ledger up to date, so the host was asked just now. What was recorded since may
        be younger than the call; its time says so, to the second, and in doubt a message counts as younger.
        """
        now = asyncio.get_running_loop().time
        began_at = now() - elapsed_s
        at_once = caught_up is None and elapsed_s < AT_ONCE_S
        tail = await self._ledger.read_back(self._caller, END, 1 if at_once else CHUNK)
        if at_once and any(entry.arrived_at_s > tail.state.now_s - (now() - began_at) for entry in tail.entries):
            at_once, tail = False, await self._ledger.read_back(self._caller, END, CHUNK)
        elapsed_s = now() - began_at  # the way to the store and back included: in doubt a message is younger
        entries, state, young = tail.entries, tail.state, frozenset[int]()
        if not at_once:
            host_time_s = caught_up.host_time_s if caught_up else None
            young = younger(entries, began_s=state.now_s - elapsed_s, elapsed_s=elapsed_s, host_time_s=host_time_s)
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
        if position.n and position.epoch:
            return Start(position=position, after_n=position.n, epoch=position.epoch)
        place = await self._place(position.id) if position.id else None
        if place is not None and place.handed_out and not position.foreign:
            return Start(position=Position(position.id, place.n), after_n=place.n, verify=True)
        state = await self._state()
        if position.id == 0:
            return await self._from_the_list(position, Origin(id=0), state)
        if place is not None:
            return await self._in_ledger(position.id, place.n)
        step = await self._step(position)
        if step is not None and step.epoch == state.epoch:
            walked = Position(position.id, 0, state.epoch, step.offset)
            return await self._from_the_list(walked, Origin(id=position.id, offset=step.offset), state)
        if not position.foreign:
            order = await self._ledger.out_of_order(self._caller, [position.id])
            if position.id in order.handed_out:
                return await self._from_the_list(Position(position.id), Origin(id=position.id), state)
        return await self._unknown_to_ledger(position.id, state)

    async def _step(self, position: Position) -> Step | None:
        """What is known of a position that lies before what the ledger holds."""
        if position.foreign:
            return None
        if position.epoch:
            return Step(position.epoch, position.offset)
        return await load_step(self._documents, self._caller, position.id)

    async def _state(self) -> LedgerState:
        return await self._ledger.state(self._caller) or (await self._look()).state

    async def _place(self, message_id: int) -> Place | None:
        try:
            places = await self._ledger.locate(self._caller, [message_id])
        except NoLedger:
            await self._look()
            places = await self._ledger.locate(self._caller, [message_id])
        return places.get(message_id)

    async def _from_the_list(
        self, position: Position, origin: Origin, state: LedgerState, *, at_s: float = -math.inf
    ) -> Start:
        """What the list holds after ``origin``, then the whole ledger. ``at_s``: when the origin became available."""
        past = await self._past(origin, state)
        return Start(
            position=position,
            after_n=state.first_n - 1,
            epoch=state.epoch,
            past=past,
            doubtful=past.early_until(at_s),
        )

    async def _in_ledger(self, message_id: int, n: int) -> Start:
        """The ledger holds the message but never handed it out: its offset is an estimate."""
        entry = await self._entry(message_id, n)
        if self._emergency:
            return await self._in_time(entry.id, entry.sent_at_s)
        before, state = await self._back(n, since_s=entry.sent_at_s - BACK_S)
        follows = {one.id for one in before if may_follow(one, entry.id, entry.sent_at_s)}
        stood = self._recent.before(message_id)
        known = {one.id for one in before if one.id in stood and one.sent_at_s <= entry.sent_at_s}
        follows -= known
        unrest = await self._unrest_at(entry.sent_at_s, state)
        again = perhaps_returned(before, follows, entry, state, unrest) | out_of_order(before, state)
        again -= known
        if follows:
            handed_out_n = await self._handed_out_n(before)
            again |= {one.id for one in before if one.id in follows and state.seed_n < one.n <= handed_out_n}
            # With a higher id but an earlier time it was on its way for a while, or follows a draft that was sent late.
            # The latter is by far the commoner: then it was returned before.
            again |= {one.id for one in before if one.id in follows and one.sent_at_s < entry.sent_at_s}
        doubtful = [one for one in before if one.id in follows or one.id in again]
        past = None
        oldest = before[0] if before else entry
        trimmed = oldest.n == state.first_n > 1 and oldest.arrived_at_s >= entry.sent_at_s - BACK_S
        if n <= state.seed_n or trimmed:
            early_s = entry.sent_at_s - LOOK_BACK_S if unrest else entry.sent_at_s
            past = await self._past(Origin(id=entry.id, early_s=early_s, exact=False), state)
            again |= past.early_until(entry.sent_at_s)
        after_n = doubtful[0].n - 1 if doubtful else n
        met_from = state.first_n if past is not None and past.early else after_n + 1
        over = frozenset(one.id for one in (*before, entry) if one.n >= met_from and one not in doubtful)
        settled = not doubtful and (past is None or past.is_empty)
        return Start(
            position=Position(entry.id, n, state.epoch) if settled else Position(entry.id),
            after_n=after_n,
            epoch=state.epoch,
            past=past,
            over=over,
            doubtful=again,
        )

    async def _unrest_at(self, at_s: float, state: LedgerState) -> Unrest | None:
        """The change of ledgers that a position of this time may be from before, if there was one."""
        unrest = await self._unrest(state.epoch) if self._unrest else None
        return unrest if unrest is not None and unrest.since_s <= at_s <= unrest.until_s else None

    async def _unknown_to_ledger(self, message_id: int, state: LedgerState) -> Start:
        message = await self._fetch(message_id)
        if message.time is None:
            raise UnknownPosition(
                f"after_id: message {message_id} is a draft, so nothing can have arrived after it was sent. "
                "Pass the after_id of the last result, or leave it out to wait from now on."
            )
        if same_address(message.from_, self._address):
            return await self._after_sending(message_id, message.time)
        seen = seen_from(message, address=self._address, root=0)
        if is_news(seen, state.baseline):
            # It arrived, and the ledger has not heard of it: neither of what came with it.
            await self._look()
            await self._ledger.append(self._caller, [seen], "poll")
            place = await self._place(message_id)
            if place is None:
                raise Moved("trimmed")
            return await self._in_ledger(message_id, place.n)
        if self._emergency:
            entries, _ = await self._back(END, since_s=-math.inf)
            if reaches_back_to(entries, seen.sent_at_s):
                return await self._in_time(seen.id, seen.sent_at_s)
        origin = await self._origin(seen.id, seen.sent_at_s, state)
        start = await self._from_the_list(Position(message_id), origin, state, at_s=seen.sent_at_s)
        if seen.sent_at_s + MARKS_S > state.now_s or start.past is None:
            return start
        # So long ago that what was handed out then is forgotten: what may have been returned with it is marked.
        return msgspec.structs.replace(start, doubtful=start.doubtful | start.past.early)

    async def _in_time(self, message_id: int, at_s: float) -> Start:
        """Behind a message in the order in which messages became available, for a ledger that is none that lasts.

        A late draft, or an old message somebody was added to, does not lead back to what has higher ids. What this
        passes over, since it was on its way for longer than others, comes when the store is back: the position stays.
        """
        entries, state = await self._back(END, since_s=-math.inf)
        follows = [one for one in entries if (one.sent_at_s, one.id) > (at_s, message_id)]
        after_n = (follows[0].n if follows else state.last_n + 1) - 1
        wanted = {one.id for one in follows}
        return Start(
            position=Position(message_id),
            after_n=after_n,
            epoch=state.epoch,
            over=frozenset(one.id for one in entries if one.n > after_n and one.id not in wanted),
        )

    async def _fetch(self, message_id: int) -> Message:
        try:
            return await self._api.message(message_id)
        except (NotFound, Forbidden) as error:
            raise UnknownPosition(
                f"after_id: {message_id} is no message this address received or sent (the host answers "
                f"{error.status}). "
                'Pass the after_id of the last result, leave it out to wait from now on, or pass "0" to get '
                "everything from the beginning."
            ) from error

    async def _after_sending(self, message_id: int, sent_at_s: float) -> Start:
        """Behind one of the caller's own messages: what arrived after it was sent, in doubt earlier."""
        back, state = await self._back(END, since_s=sent_at_s - BACK_S)
        follows = [one for one in back if arrived_after(one, message_id, sent_at_s, state)]
        rest = [one for one in back if one.arrived_at_s > sent_at_s or one in follows]
        handed_out_n = await self._handed_out_n(rest)
        wanted = {one.id for one in follows}
        wanted |= {one.id for one in rest if one.n > handed_out_n and one.arrived_at_s > sent_at_s}
        after_n = next((one.n for one in back if one.id in wanted), back[-1].n + 1 if back else state.last_n + 1) - 1
        behind = next((one.id for one in back if one.n == after_n), None)
        past = None
        if message_id < state.baseline.newest_id or sent_at_s <= state.baseline.time_s:
            past = await self._past(Origin(id=message_id, early_s=sent_at_s, exact=False), state)
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

    async def _origin(self, message_id: int, at_s: float, state: LedgerState) -> Origin:
        """A message that the ledger does not hold and did not hand out, as where to go on from."""
        unrest = await self._unrest_at(at_s, state)
        return Origin(id=message_id, early_s=at_s - LOOK_BACK_S if unrest else at_s, exact=False)

    async def _past(self, origin: Origin, state: LedgerState) -> Past:
        if not state.baseline.newest_id:
            # The ledger began with an empty inbox and was never trimmed: it holds all there ever was, and an agent that
            # waits for its first message asks from the beginning each time.
            return nothing_past(state)
        return await read_past(self._api, self._ledger, self._caller, self._address, origin=origin, state=state)

    async def _entry(self, message_id: int, n: int) -> Arrival:
        entries = (await self._ledger.read(self._caller, n - 1, 1)).entries
        if not entries or entries[0].id != message_id:
            raise Moved("epoch")
        return entries[0]

    async def _back(self, before_n: int, *, since_s: float) -> tuple[list[Arrival], LedgerState]:
        """Entries before an offset, ascending, back to those recorded before ``since_s``; seeds always.

        And the ledger as it was when the earliest were read: what is not among them may be trimmed by then.
        """
        found: list[Arrival] = []
        while True:
            slice_ = await self._ledger.read_back(self._caller, before_n, CHUNK)
            found = [*slice_.entries, *found]
            if len(slice_.entries) < CHUNK:
                return found, slice_.state
            oldest = slice_.entries[0]
            if oldest.n > slice_.state.seed_n and oldest.arrived_at_s < since_s:
                return found, slice_.state
            before_n = oldest.n
