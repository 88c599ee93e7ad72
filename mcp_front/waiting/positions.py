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
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from fmsg.address import fold
from fmsg.errors import FmsgError, Forbidden, NotFound
from fmsg.message import Message, Page
from ledger.catch_up import SNAPSHOT_PAGE, CaughtUp, seen_from
from ledger.port import Documents, Ledger, NoLedger
from ledger.values import END, START, Arrival, CallerKey, Found, Head, LedgerState, Seen, StreamId
from mcp_front.waiting.backlog import (
    PAGE,
    Backlog,
    KnownRoots,
    ListPosition,
    Moved,
    Origin,
    WaitApi,
    load_list_position,
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
"""How long a position and the ids returned above it are remembered (`ledger.values.LedgerLimits.returned_ttl_s`)."""
CLOCKS_S = 2.0
"""How far the clocks of host and ledger are taken to differ, where only the ledger's is at hand."""
CUT_S = 0.001
"""Arrival times and the ledger's clock are cut to the millisecond, so a comparison with the beginning of a call is in
doubt by as much."""
OLDER_WITHIN_S = 2.0
"""Counting what is older may take so long: it is an extra."""
AT_ONCE_S = 0.05
"""A call that finds its place so soon after it began looks at the newest entry only, unless that is younger."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place between arrivals, named by the message before it: 0 is before everything.

    ``epoch``: the life of the ledger in which it is exact; empty where it is an estimate. ``at``: the message's place
    in that ledger; `START` where it lies before what that held, at ``offset`` of the host's list. ``foreign``: it is
    known to be from another life than the present one, whatever that one handed out since.
    """

    id: int
    epoch: str = ""
    at: StreamId = START
    offset: int | None = None
    foreign: bool = False

    @property
    def head(self) -> Head | None:
        """Its place in the ledger; None before what that holds, and for an estimate."""
        return Head(self.epoch, self.at) if self.at != START else None

    def left(self, *, foreign: bool) -> Position:
        """The same by its id, to be found anew: in another ledger, or in front of what this one still holds."""
        if foreign or not self.epoch:
            return Position(self.id, foreign=self.foreign or foreign)
        return Position(self.id, self.epoch, offset=self.offset)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a wait goes on reading: ``backlog`` first, where there is any, then the ledger's entries after ``after``.

    ``epoch`` is the ledger's life. ``over``: ids in the ledger that lie before the position although they are met again
    from here. ``doubtful``: ids that may have been returned or not. ``older``: what a wait from now on leaves unread.
    """

    position: Position
    epoch: str
    after: StreamId
    backlog: Backlog | None = None
    over: frozenset[int] = frozenset()
    doubtful: frozenset[int] = frozenset()
    older: OlderUnread | None = None


class OlderUnread(msgspec.Struct, frozen=True, kw_only=True):
    """Unread messages from before a wait that begins at "now": id and folded sender; ``more``: there may be others."""

    senders: Mapping[int, str]
    more: bool


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the entries before an estimated place come: ``wanted``; and which of those with a mark: ``doubtful``."""

    wanted: frozenset[int]
    doubtful: frozenset[int]


def may_follow(one: Arrival, message_id: int, at_s: float) -> bool:
    """Whether an arrival can have come after a message with this id and time, in spite of its place."""
    return one.id > message_id or one.sent_at_s > at_s


def estimate_recorded(
    before: Sequence[Arrival], entry: Arrival, *, now_s: float, handed_out: StreamId, reset: bool
) -> Estimate:
    """For a message that the ledger holds as ``entry`` and never handed out; ``before`` are the entries before it.

    ``handed_out``: the last of those that was. ``reset``: the ledger was reset after the message was sent.
    """
    follows = [one for one in before if may_follow(one, entry.id, entry.sent_at_s)]
    forgotten = entry.source != "snapshot" and entry.arrived_at_s + MARKS_S < now_s
    doubtful = {
        one.id
        for one in follows
        # With a higher id but an earlier time it was on its way for a while, or follows a draft that was sent late.
        # The latter is by far the commoner: then it was returned before.
        if forgotten or (one.source != "snapshot" and one.at <= handed_out) or one.sent_at_s < entry.sent_at_s
    }
    if reset:
        since_s = entry.sent_at_s - LOOK_BACK_S
        young = (one for one in before if max(one.sent_at_s, one.arrived_at_s) >= since_s)
        doubtful |= {one.id for one in young if one.sent_at_s <= entry.sent_at_s}
    return Estimate(wanted=frozenset(doubtful).union(one.id for one in follows), doubtful=frozenset(doubtful))


def estimate_sent(entries: Sequence[Arrival], message_id: int, sent_at_s: float, *, handed_out: StreamId) -> Estimate:
    """For one of the caller's own messages: what arrived after it was sent. ``handed_out`` as above."""
    follows = [one for one in entries if _arrived_after(one, message_id, sent_at_s)]
    late = (one.id for one in entries if one.at > handed_out and one.arrived_at_s > sent_at_s)
    return Estimate(
        wanted=frozenset(one.id for one in follows).union(late),
        doubtful=frozenset(one.id for one in follows if one.at <= handed_out and one.arrived_at_s <= sent_at_s),
    )


def _arrived_after(one: Arrival, message_id: int, sent_at_s: float) -> bool:
    recorded_in_time = one.source == "snapshot" or one.arrived_at_s > sent_at_s - SKEW_S
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
        or ((entry.arrived_at_s >= began_s or entry.source == "snapshot") and earliest_s < entry.sent_at_s <= latest_s)
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
        handed_out: Mapping[int, Head],
        roots: KnownRoots,
    ) -> None:
        """``look`` compares the host's list with the ledger now, and begins the ledger where there is none.

        ``last_reset`` takes the ledger's epoch and gives the time of its last reset, if there was one. ``handed_out``:
        where positions stood that this process recorded.
        """
        self._api = api
        self._ledger = ledger
        self._documents = documents
        self._caller = caller
        self._address = address
        self._look = look
        self._last_reset = last_reset
        self._handed_out = handed_out
        self.roots = roots
        """Roots of messages from before the ledger, as far as they were met."""

    async def now(self, caught_up: CaughtUp | None, *, elapsed_s: float) -> Start:
        """Behind the newest message there was when the call began, ``elapsed_s`` ago.

        ``caught_up``: no feed keeps the ledger up to date, so the host was asked just now. What was recorded since may
        be younger than the call; its time says so, to the second, and in doubt a message counts as younger.
        """
        now = asyncio.get_running_loop().time
        began_at = now() - elapsed_s
        at_once = caught_up is None and elapsed_s < AT_ONCE_S
        tail = await self._ledger.read_back(self._caller, 1 if at_once else CHUNK)
        if at_once and any(
            entry.arrived_at_s > tail.state.now_s - CUT_S - (now() - began_at) for entry in tail.entries
        ):
            at_once, tail = False, await self._ledger.read_back(self._caller, CHUNK)
        elapsed_s = now() - began_at  # the way to the store and back included: in doubt a message is younger
        entries, state, young = tail.entries, tail.state, frozenset[int]()
        if not at_once:
            host_time_s = caught_up.host_time_s if caught_up else None
            began_s = state.now_s - CUT_S - elapsed_s
            young = younger(entries, began_s=began_s, elapsed_s=elapsed_s, host_time_s=host_time_s)
        first_young = next((at for at, entry in enumerate(entries) if entry.id in young), len(entries))
        behind = entries[first_young - 1] if first_young else None
        after = behind.at if behind else entries[0].at.before() if entries else state.last
        return Start(
            position=Position(behind.id if behind else 0, state.epoch, behind.at if behind else START),
            epoch=state.epoch,
            after=after,
            over=frozenset(entry.id for entry in entries[first_young:] if entry.id not in young),
        )

    async def older_unread(self, page: Page | None) -> OlderUnread | None:
        """What is unread now on the newest page of the list; None where the host does not say so in a moment.

        ``page``: that page, where a ledger has just begun with it.
        """
        full = PAGE if page is None else SNAPSHOT_PAGE
        try:
            async with asyncio.timeout(OLDER_WITHIN_S):
                page = page or await self._api.list_received(limit=PAGE)
        except (TimeoutError, FmsgError):
            return None
        unread = [one for one in page.messages if not (one.is_draft or one.is_reaction or one.read)]
        more = len(page.messages) + page.skipped >= full
        return OlderUnread(senders={one.id: fold(one.from_) for one in unread}, more=more)

    async def after(self, position: Position) -> Start:
        """Behind a position. Raises `UnknownPosition` for an id the caller neither received nor sent."""
        if position.head is not None:
            return Start(position=position, epoch=position.epoch, after=position.at)
        found = await self._find([position.id] if position.id else [])
        state, entry = found.state, found.entries.get(position.id)
        if position.id == 0:
            return await self._from_the_list(position, Origin(id=0), state)
        if entry is not None and not position.foreign:
            head = Head(state.epoch, entry.at)
            if entry.id in found.handed_out or self._handed_out.get(entry.id) == head:
                return Start(position=Position(entry.id, state.epoch, entry.at), epoch=state.epoch, after=entry.at)
        if entry is not None:
            return await self._recorded(entry, state)
        listed = await self._listed(position)
        if listed is not None and listed.epoch == state.epoch:
            known = Position(position.id, state.epoch, offset=listed.offset)
            return await self._from_the_list(known, Origin(id=position.id, offset=listed.offset), state)
        if position.id in found.handed_out and not position.foreign:
            return await self._from_the_list(Position(position.id), Origin(id=position.id), state)
        return await self._unknown_to_ledger(position.id, state)

    async def _listed(self, position: Position) -> ListPosition | None:
        """What is known of a position before what the ledger holds."""
        if position.foreign:
            return None
        if position.epoch:
            return ListPosition(position.epoch, position.offset)
        return await load_list_position(self._documents, self._caller, position.id)

    async def _find(self, message_ids: Sequence[int]) -> Found:
        try:
            return await self._ledger.find(self._caller, message_ids)
        except NoLedger:
            await self._look()
            return await self._ledger.find(self._caller, message_ids)

    async def _from_the_list(self, position: Position, origin: Origin, state: LedgerState) -> Start:
        """What the list holds after ``origin``, then the whole ledger."""
        backlog = await self._backlog(origin, state)
        return Start(position=position, epoch=state.epoch, after=state.low, backlog=backlog)

    async def _estimated(self, message_id: int, at_s: float, state: LedgerState, *, reset: bool) -> Backlog:
        """What the list may hold after a message whose place is an estimate. ``at_s``: when it became available."""
        early_s = at_s - LOOK_BACK_S if reset else at_s
        return await self._backlog(Origin(id=message_id, early_s=early_s, exact=False), state)

    async def _backlog(self, origin: Origin, state: LedgerState) -> Backlog:
        if not state.baseline.newest_id:
            # The ledger began with an empty inbox and was never trimmed: it holds all there ever was, and an agent that
            # waits for its first message asks from the beginning each time.
            return Backlog(state=state)
        return await read_backlog(
            self._api, self._ledger, self._caller, self._address, origin=origin, state=state, roots=self.roots
        )

    async def _recorded(self, entry: Arrival, state: LedgerState) -> Start:
        """The ledger holds the message but never handed it out: its place is an estimate."""
        epoch = state.epoch
        before, state, whole = await self._back(since_s=entry.sent_at_s - BACK_S, before=entry.at)
        reset = await self._was_reset_after(entry.sent_at_s, state)
        handed_out = await self._last_handed_out([one for one in before if may_follow(one, entry.id, entry.sent_at_s)])
        estimate = estimate_recorded(before, entry, now_s=state.now_s, handed_out=handed_out, reset=reset)
        backlog, doubtful = None, estimate.doubtful
        oldest = before[0] if before else entry
        trimmed = whole and state.low != START and oldest.arrived_at_s >= entry.sent_at_s - BACK_S
        if entry.source == "snapshot" or trimmed:
            backlog = await self._estimated(entry.id, entry.sent_at_s, state, reset=reset)
            doubtful |= backlog.early_until(entry.sent_at_s)
        after = next((one.at.before() for one in before if one.id in estimate.wanted), entry.at)
        met_from = state.low if backlog is not None and backlog.early else after
        settled = not estimate.wanted and (backlog is None or backlog.is_empty)
        return Start(
            position=Position(entry.id, epoch, entry.at) if settled else Position(entry.id),
            epoch=epoch,
            after=after,
            backlog=backlog,
            over=frozenset(one.id for one in (*before, entry) if one.at > met_from and one.id not in estimate.wanted),
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
        if message.from_.lower() == self._address.lower():
            return await self._sent(message_id, message.time)
        seen = seen_from(message, address=self._address, root=0)
        if not state.baseline.covers(seen):
            return await self._unheard_of(seen)
        reset = await self._was_reset_after(seen.sent_at_s, state)
        backlog = await self._estimated(seen.id, seen.sent_at_s, state, reset=reset)
        # Where it was so long ago that what was handed out then is forgotten, all that may have been is marked.
        forgotten = seen.sent_at_s + MARKS_S <= state.now_s
        return Start(
            position=Position(message_id),
            epoch=state.epoch,
            after=state.low,
            backlog=backlog,
            doubtful=backlog.early if forgotten else backlog.early_until(seen.sent_at_s),
        )

    async def _unheard_of(self, seen: Seen) -> Start:
        """It arrived, and the ledger has not heard of it: neither of what came with it."""
        await self._look()
        await self._ledger.append(self._caller, [seen], "poll")
        found = await self._find([seen.id])
        if seen.id not in found.entries:
            raise Moved("trimmed")
        return await self._recorded(found.entries[seen.id], found.state)

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
        back, state, _ = await self._back(since_s=sent_at_s - BACK_S)
        late = [one for one in back if one.arrived_at_s > sent_at_s or _arrived_after(one, message_id, sent_at_s)]
        estimate = estimate_sent(back, message_id, sent_at_s, handed_out=await self._last_handed_out(late))
        wanted_at = next((at for at, one in enumerate(back) if one.id in estimate.wanted), len(back))
        behind = back[wanted_at - 1] if wanted_at else None
        after = behind.at if behind else back[0].at.before() if back else state.last
        backlog = None
        if message_id < state.baseline.newest_id or sent_at_s <= state.baseline.time_s:
            backlog = await self._estimated(message_id, sent_at_s, state, reset=False)
        settled = behind is not None and (backlog is None or backlog.is_empty)
        return Start(
            position=Position(behind.id, state.epoch, behind.at) if settled and behind else Position(message_id),
            epoch=state.epoch,
            after=after,
            backlog=backlog,
            over=frozenset(one.id for one in back if one.at > after and one.id not in estimate.wanted),
            doubtful=estimate.doubtful,
        )

    async def _last_handed_out(self, entries: Sequence[Arrival]) -> StreamId:
        """The place of the last of the entries that was handed out as a position."""
        if not entries:
            return START
        found = await self._ledger.find(self._caller, [one.id for one in entries])
        return max((found.entries[id_].at for id_ in found.handed_out if id_ in found.entries), default=START)

    async def _back(self, *, since_s: float, before: StreamId = END) -> tuple[list[Arrival], LedgerState, bool]:
        """Entries before a place, ascending, back to those recorded before ``since_s``; the snapshot always.

        And the ledger as it was when the earliest were read (what is not among them may be trimmed by then), and
        whether these are all that it held.
        """
        found: list[Arrival] = []
        while True:
            slice_ = await self._ledger.read_back(self._caller, CHUNK, before=before)
            found = [*slice_.entries, *found]
            if len(slice_.entries) < CHUNK:
                return found, slice_.state, True
            oldest = slice_.entries[0]
            if oldest.source != "snapshot" and oldest.arrived_at_s < since_s:
                return found, slice_.state, False
            before = oldest.at
