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

from fmsg.errors import Forbidden, NotFound
from fmsg.message import Message
from ledger.catch_up import catch_up, in_order, seen_from
from ledger.port import Ledger
from ledger.thread_roots import Lineage, ThreadApi
from ledger.values import Arrival, CallerKey, Latecomer, LedgerState, Seen
from mcp_front.waiting.history import MARGIN, ReceivedList, look_around

MAX_LATE = 20
"""Latecomers fetched by one call, a request each. Where there are more, the rest comes with the next call."""
CONCURRENCY = 4
"""Requests to the host at a time: enough to hide the latency, too few to be a burst."""

END = (2**63, 2**63)
"""The rank behind all others."""

Rank = tuple[int, int]
"""Where a message stands among those the ledger does not hold: its id and 0, or for a latecomer the highest id recorded
before it and its offset."""


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
    was handed out by this ledger; else what has a higher id may follow it although it was recorded before.
    """

    id: int
    offset: int | None = None
    early_s: float | None = None
    exact: bool = True


class Past(msgspec.Struct, frozen=True, kw_only=True):
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


def nothing_past(state: LedgerState) -> Past:
    """There is nothing that the ledger does not hold, and nobody has to be asked to know it."""
    nobody = frozenset[int]()
    return Past(entries=(), early=nobody, beside=nobody, complete=True, offsets={}, state=state, calls=0)


async def read_past(
    api: WaitApi, ledger: Ledger, caller: CallerKey, address: str, *, origin: Origin, state: LedgerState
) -> Past:
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
    return Past(
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
