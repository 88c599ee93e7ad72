"""From a message id to the place where a wait goes on reading: in the ledger, on the host's list before it, or both.

- A position that this life of the ledger recorded is exact.
- Every other id is an *estimate*: one from a list, one of the caller's own messages, one from before a reset. Neither
  its id nor its time alone says when it arrived. A draft that is sent late, and a message that somebody is added to,
  have low ids and the time at which they became available; a message that was long on its way has the id of its arrival
  and the time of its sending. So what has a higher id or a later time may have arrived later, and comes.
- What comes and may have been returned before is marked.
- An estimate from before the ledger's last reset (`resets`) is moved back by two minutes.
- Before the ledger lies the host's list, read in one order (`backlog`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fmsg.address import same_address
from fmsg.errors import Forbidden, NotFound
from fmsg.message import Message
from ledger.catch_up import CaughtUp, is_news, seen_from
from ledger.port import Documents, Ledger, NoLedger
from ledger.values import Arrival, CallerKey, LedgerState, Place
from mcp_front.waiting.backlog import (
    Backlog,
    ListPosition,
    Moved,
    Origin,
    WaitApi,
    load_list_position,
    no_backlog,
    read_backlog,
)
from mcp_front.waiting.request import UnknownPosition
from mcp_front.waiting.resets import LOOK_BACK_S

CHUNK = 200
"""Entries read at once when looking back."""
BACK_S = 600.0
"""How far before a message's own time entries are looked at that may have arrived after it: the skew of the clocks of
host and ledger, with much room."""
SKEW_S = 120.0
"""An entry recorded so long before a message was sent arrived before it, whatever the clocks say."""
MARKS_S = 86_400.0
"""How long a position and the ids returned above it are remembered (`ledger.limits.LedgerLimits.returned_ttl_s`)."""
CLOCKS_S = 2.0
"""How far the clocks of host and ledger are taken to differ, where only the ledger's is at hand."""
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
    """Where a wait goes on reading: ``backlog`` first, where there is any, then the ledger's entries after ``after_n``.

    ``over``: ids in the ledger that lie before the position although they are met again from here. ``doubtful``: ids
    that may have been returned or not. ``verify``: the entry at ``after_n`` must be ``position.id``.
    """

    position: Position
    after_n: int
    epoch: str = ""
    backlog: Backlog | None = None
    over: frozenset[int] = frozenset()
    doubtful: frozenset[int] = frozenset()
    verify: bool = False


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the entries before an estimated place come: ``wanted``; and which of those with a mark: ``doubtful``."""

    wanted: frozenset[int]
    doubtful: frozenset[int]


def may_follow(one: Arrival, message_id: int, at_s: float) -> bool:
    """Whether an arrival can have come after a message with this id and time, in spite of its place."""
    return one.id > message_id or one.sent_at_s > at_s


def estimate_recorded(
    before: Sequence[Arrival], entry: Arrival, state: LedgerState, *, handed_out_n: int, reset: bool
) -> Estimate:
    """For a message that the ledger holds as ``entry`` and never handed out; ``before`` are the entries before it.

    ``handed_out_n``: the highest offset among those that was. ``reset``: the ledger was reset after the message.
    """
    follows = [one for one in before if may_follow(one, entry.id, entry.sent_at_s)]
    forgotten = entry.n > state.seed_n and entry.arrived_at_s + MARKS_S < state.now_s
    doubtful = {
        one.id
        for one in follows
        # With a higher id but an earlier time it was on its way for a while, or follows a draft that was sent late.
        # The latter is by far the commoner: then it was returned before.
        if forgotten or state.seed_n < one.n <= handed_out_n or one.sent_at_s < entry.sent_at_s
    }
    if reset:
        since_s = entry.sent_at_s - LOOK_BACK_S
        young = (one for one in before if max(one.sent_at_s, one.arrived_at_s) >= since_s)
        doubtful |= {one.id for one in young if one.sent_at_s <= entry.sent_at_s}
    return Estimate(wanted=frozenset(doubtful).union(one.id for one in follows), doubtful=frozenset(doubtful))


def estimate_sent(
    entries: Sequence[Arrival], message_id: int, sent_at_s: float, state: LedgerState, *, handed_out_n: int
) -> Estimate:
    """For one of the caller's own messages: what arrived after it was sent. ``handed_out_n`` as above."""
    follows = [one for one in entries if _arrived_after(one, message_id, sent_at_s, state)]
    late = (one.id for one in entries if one.n > handed_out_n and one.arrived_at_s > sent_at_s)
    return Estimate(
        wanted=frozenset(one.id for one in follows).union(late),
        doubtful=frozenset(one.id for one in follows if one.n <= handed_out_n and one.arrived_at_s <= sent_at_s),
    )


def _arrived_after(one: Arrival, message_id: int, sent_at_s: float, state: LedgerState) -> bool:
    recorded_in_time = one.n <= state.seed_n or one.arrived_at_s > sent_at_s - SKEW_S
    return recorded_in_time and may_follow(one, message_id, sent_at_s)


def younger(
    entries: Sequence[Arrival], *, began_s: float, elapsed_s: float, host_time_s: float | None
) -> frozenset[int]:
    """Those of the newest entries that may be younger than the call, which began at ``began_s`` of the ledger's clock.

    What was pushed since is. What looks at the host found since, or a ledger that began took over, is judged by the
    time it carries. (A message that was long on its way and came in while the host was asked counts as older.)
    """
    earliest_s = began_s - CLOCKS_S if host_time_s is None else math.floor(host_time_s) - elapsed_s
    latest_s = earliest_s + elapsed_s + 3.0
    return frozenset(
        entry.id
        for entry in entries
        if (entry.source == "push" and entry.arrived_at_s >= began_s)
        or ((entry.arrived_at_s >= began_s or entry.source == "seed") and earliest_s < entry.sent_at_s <= latest_s)
    )


class Positions:
    """Finds places for one caller in the ledger. Every method raises what the host and the ledger raise."""

    def __init__(
        self,
        api: WaitApi,
        ledger: Ledger,
        documents: Documents,
        caller: CallerKey,
        address: str,
        *,
        look: Callable[[], Awaitable[CaughtUp]],
        last_reset: Callable[[str], Awaitable[float | None]],
    ) -> None:
        """``look`` compares the host's list with the ledger now, and begins the ledger where there is none.

        ``last_reset`` takes the ledger's epoch and gives the time of its last reset, if there was one.
        """
        self._api = api
        self._ledger = ledger
        self._documents = documents
        self._caller = caller
        self._address = address
        self._look = look
        self._last_reset = last_reset

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
            return await self._recorded(position.id, place.n)
        if not position.foreign and (origin := await self._exact_origin(position, state)) is not None:
            known = Position(position.id, 0, state.epoch, origin.offset) if origin.listed else Position(position.id)
            return await self._from_the_list(known, origin, state)
        return await self._unknown_to_ledger(position.id, state)

    async def _exact_origin(self, position: Position, state: LedgerState) -> Origin | None:
        """A position before what the ledger holds, if this life of the ledger handed it out."""
        listed = ListPosition(position.epoch, position.offset) if position.epoch else None
        listed = listed or await load_list_position(self._documents, self._caller, position.id)
        if listed is not None and listed.epoch == state.epoch:
            return Origin(id=position.id, offset=listed.offset, listed=True)
        order = await self._ledger.out_of_order(self._caller, [position.id])
        return Origin(id=position.id) if position.id in order.handed_out else None

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
        backlog = await self._backlog(origin, state)
        return Start(
            position=position,
            after_n=state.first_n - 1,
            epoch=state.epoch,
            backlog=backlog,
            doubtful=backlog.early_until(at_s),
        )

    async def _recorded(self, message_id: int, n: int) -> Start:
        """The ledger holds the message but never handed it out: its offset is an estimate."""
        entry = await self._entry(message_id, n)
        before, state = await self._back(n, since_s=entry.sent_at_s - BACK_S)
        reset = await self._was_reset_after(entry.sent_at_s, state)
        handed_out_n = await self._handed_out_n(
            [one for one in before if may_follow(one, entry.id, entry.sent_at_s)],
        )
        estimate = estimate_recorded(before, entry, state, handed_out_n=handed_out_n, reset=reset)
        backlog, doubtful = None, estimate.doubtful
        oldest = before[0] if before else entry
        trimmed = oldest.n == state.first_n > 1 and oldest.arrived_at_s >= entry.sent_at_s - BACK_S
        if n <= state.seed_n or trimmed:
            early_s = entry.sent_at_s - LOOK_BACK_S if reset else entry.sent_at_s
            backlog = await self._backlog(Origin(id=entry.id, early_s=early_s, exact=False), state)
            doubtful |= backlog.early_until(entry.sent_at_s)
        after_n = next((one.n - 1 for one in before if one.id in estimate.wanted), n)
        met_from = state.first_n if backlog is not None and backlog.early else after_n + 1
        settled = not estimate.wanted and (backlog is None or backlog.is_empty)
        return Start(
            position=Position(entry.id, n, state.epoch) if settled else Position(entry.id),
            after_n=after_n,
            epoch=state.epoch,
            backlog=backlog,
            over=frozenset(one.id for one in (*before, entry) if one.n >= met_from and one.id not in estimate.wanted),
            doubtful=doubtful,
        )

    async def _was_reset_after(self, at_s: float, state: LedgerState) -> bool:
        """Whether a position of this time may be from before the ledger's last reset."""
        reset_at_s = await self._last_reset(state.epoch)
        return reset_at_s is not None and at_s <= reset_at_s

    async def _unknown_to_ledger(self, message_id: int, state: LedgerState) -> Start:
        message = await self._fetch(message_id)
        if message.time is None:
            raise UnknownPosition(
                f"after_id: message {message_id} is a draft, so nothing can have arrived after it was sent. "
                "Pass the after_id of the last result, or leave it out to wait from now on."
            )
        if same_address(message.from_, self._address):
            return await self._sent(message_id, message.time)
        seen = seen_from(message, address=self._address, root=0)
        if is_news(seen, state.baseline):
            # It arrived, and the ledger has not heard of it: neither of what came with it.
            await self._look()
            await self._ledger.append(self._caller, [seen], "poll")
            place = await self._place(message_id)
            if place is None:
                raise Moved("trimmed")
            return await self._recorded(message_id, place.n)
        reset = await self._was_reset_after(seen.sent_at_s, state)
        early_s = seen.sent_at_s - LOOK_BACK_S if reset else seen.sent_at_s
        origin = Origin(id=seen.id, early_s=early_s, exact=False)
        start = await self._from_the_list(Position(message_id), origin, state, at_s=seen.sent_at_s)
        if seen.sent_at_s + MARKS_S > state.now_s or start.backlog is None:
            return start
        # So long ago that what was handed out then is forgotten: what may have been returned with it is marked.
        return msgspec.structs.replace(start, doubtful=start.doubtful | start.backlog.early)

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

    async def _sent(self, message_id: int, sent_at_s: float) -> Start:
        """Behind one of the caller's own messages: what arrived after it was sent, in doubt earlier."""
        back, state = await self._back(END, since_s=sent_at_s - BACK_S)
        after = [
            one for one in back if one.arrived_at_s > sent_at_s or _arrived_after(one, message_id, sent_at_s, state)
        ]
        handed_out_n = await self._handed_out_n(after)
        estimate = estimate_sent(back, message_id, sent_at_s, state, handed_out_n=handed_out_n)
        end_n = back[-1].n if back else state.last_n
        after_n = next((one.n - 1 for one in back if one.id in estimate.wanted), end_n)
        behind = next((one.id for one in back if one.n == after_n), None)
        backlog = None
        if message_id < state.baseline.newest_id or sent_at_s <= state.baseline.time_s:
            backlog = await self._backlog(Origin(id=message_id, early_s=sent_at_s, exact=False), state)
        settled = backlog is None or backlog.is_empty
        return Start(
            position=Position(behind, after_n, state.epoch) if settled and behind else Position(message_id),
            after_n=after_n,
            epoch=state.epoch,
            backlog=backlog,
            over=frozenset(one.id for one in back if one.n > after_n and one.id not in estimate.wanted),
            doubtful=estimate.doubtful,
        )

    async def _handed_out_n(self, entries: Sequence[Arrival]) -> int:
        """The highest offset among the entries that was handed out as a position; 0 for none."""
        if not entries:
            return 0
        places = await self._ledger.locate(self._caller, [one.id for one in entries])
        return max((place.n for place in places.values() if place.handed_out), default=0)

    async def _backlog(self, origin: Origin, state: LedgerState) -> Backlog:
        if not state.baseline.newest_id:
            # The ledger began with an empty inbox and was never trimmed: it holds all there ever was, and an agent that
            # waits for its first message asks from the beginning each time.
            return no_backlog(state)
        return await read_backlog(self._api, self._ledger, self._caller, self._address, origin=origin, state=state)

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
