"""What the host lists after a position and the ledger does not hold: messages from before the ledger, or trimmed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from fmsg.message import Message
from ledger.arrival import Arrival, CallerKey, LedgerState, Seen
from ledger.catch_up import in_order, is_news, seen_from
from ledger.port import Ledger
from ledger.roots import Lineage, ThreadApi
from mcp_front.waiting.bookmarks import MAX_MET, Bookmark
from mcp_front.waiting.history import MARGIN, ReceivedList, look_around


class WaitApi(ReceivedList, ThreadApi, Protocol):
    """What a wait needs of `fmsg.webapi.WebApi`."""


class Moved(Exception):
    """The ledger is not the one the position belongs to any more, or lacks what follows it: find the position anew.

    ``cause`` is a label of `telemetry.metrics.GAPS`.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """Messages after a position that the ledger does not hold, as entries without an offset.

    First ``late`` (below the position, but available after it), then ``run`` (above it, ascending by id). ``complete``:
    the ledger goes on after them; else there are more.
    """

    late: tuple[Arrival, ...]
    run: tuple[Arrival, ...]
    complete: bool
    base: Bookmark
    offsets: dict[int, int]
    state: LedgerState
    calls: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing before the ledger."""
        return self.complete and not self.late and not self.run

    @property
    def entries(self) -> tuple[Arrival, ...]:
        """All of them in the order they are returned in."""
        return self.late + self.run

    def bookmark(self, message_id: int) -> Bookmark:
        """What to remember when one of the messages is handed out as a position."""
        late = [entry.id for entry in self.late]
        if message_id in late:
            met = self.base.met + tuple(late[: late.index(message_id) + 1])
            return msgspec.structs.replace(self.base, met=met[-MAX_MET:])
        at = next(index for index, entry in enumerate(self.run) if entry.id == message_id)
        here = self.run[at]
        passed = [entry.id for entry in (*self.late, *self.run[:at]) if entry.sent_at_s > here.sent_at_s]
        met = tuple(sorted(id_ for id_ in {*self.base.met, *passed} if id_ < message_id))
        return Bookmark(
            here.id,
            here.sent_at_s,
            self.base.origin_id,
            self.base.origin_at_s,
            met[-MAX_MET:],
            self.offsets.get(message_id),
            self.state.epoch,
            self.state.first_n,
        )


async def read_past(
    api: WaitApi, ledger: Ledger, caller: CallerKey, address: str, *, base: Bookmark, state: LedgerState
) -> Past:
    """What comes after ``base`` and is not in the ledger, oldest first, as far as a page or two of the list reach.

    ``state`` is the ledger's from before. Messages met on the way that the ledger should hold, since they arrived after
    it began, are appended to it instead. Raises `Moved`, what the host and what the ledger raise.
    """
    unchanged = (base.epoch, base.first_n) == (state.epoch, state.first_n)
    from_id, hint, margin, calls = base.base_id, base.offset, 0 if unchanged else MARGIN, 0
    while True:
        around = await look_around(api, from_id, hint=hint, margin=margin)
        calls += around.calls
        newer = _seen(around.newer, address)
        owed = [seen for seen in _seen(around.older, address) if margin and base.owes(seen.id, seen.sent_at_s)]
        old, after = await _sort(ledger, caller, (*in_order(owed), *newer), state)
        complete = around.top or around.newer[-1].id > after.baseline.newest_id
        if old or complete:
            break
        # All of it is in the ledger (or drafts): what is not may still follow.
        from_id, hint, margin = around.newer[-1].id, around.offset - len(around.newer), 0
    late = tuple(entry for entry in old if entry.id <= base.base_id)
    return Past(
        late=late,
        run=old[len(late) :],
        complete=complete,
        base=base,
        offsets={message.id: around.offset - 1 - at for at, message in enumerate(around.newer)},
        state=state,
        calls=calls,
    )


async def _sort(
    ledger: Ledger, caller: CallerKey, listed: Sequence[Seen], state: LedgerState
) -> tuple[tuple[Arrival, ...], LedgerState]:
    """Those that the ledger neither holds nor should hold (that is appended), and the ledger's state afterwards."""
    held = await ledger.locate(caller, [seen.id for seen in listed])
    # Read after the places: what was trimmed in between is then below the baseline and no news.
    after = await ledger.state(caller)
    if after is None or after.epoch != state.epoch:
        raise Moved("epoch")
    missing = [seen for seen in listed if seen.id not in held]
    news = [seen for seen in missing if is_news(seen, after.baseline)]
    if news:
        await ledger.append(caller, in_order(news), "poll")
    return _rooted(seen for seen in missing if not is_news(seen, after.baseline)), after


def _seen(messages: Iterable[Message], address: str) -> list[Seen]:
    return [seen_from(message, address=address, root=0) for message in messages if not message.is_draft]


def _rooted(seen: Iterable[Seen]) -> tuple[Arrival, ...]:
    """As entries from before any ledger's time: their settle windows are long over."""
    listed = list(seen)
    lineage = Lineage(listed)
    fields = Seen.__struct_fields__
    return tuple(
        Arrival(n=0, arrived_at_s=0.0, source="seed", **{name: getattr(one, name) for name in fields})
        for one in (lineage.apply(one) for one in listed)
    )
