"""From frames to arrivals: which events are arrivals, and how they get into the ledger in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import msgspec

from fmsg.address import fold
from fmsg.events import Event
from fmsg.message import Message
from ledger.catch_up import seen_from
from ledger.port import Ledger
from ledger.thread_roots import sort_out
from ledger.values import CallerKey, Seen
from telemetry.metrics import INGEST_LAG

BATCH = 64
"""Frames appended in one step at most: one append is one script, and blocks the store for everybody else meanwhile."""


class Pushed(msgspec.Struct, frozen=True):
    """A message that was pushed. ``certain``: the event itself says that it became available just now."""

    seen: Seen
    certain: bool = True


def read_push(event: Event, address: str) -> Pushed | None:
    """What an event says arrived for the caller with this address; None where it says nothing of the kind.

    ``new_msg`` goes to recipients only. ``recipients_added`` goes to every participant, so it counts only if a batch
    names the caller, and it is certain only if that is the newest batch: the frame shows the earlier ones too. Drafts
    are not messages. ``delivered`` and ``reaction`` are about messages known already (FMSG-003, WebSocket).
    """
    message = event.message
    if message.is_draft or not message.id:
        return None
    if event.type == "new_msg":
        certain = True
    elif event.type == "recipients_added":
        added = _added(message, address)
        if added is None:
            return None
        certain = added
    else:
        return None
    return Pushed(seen_from(message, address=address, root=0 if message.pid else message.id), certain)


def _added(message: Message, address: str) -> bool | None:
    """Whether the newest batch names the caller; None where no batch does, or the caller was a recipient before."""
    me = fold(address)

    def names_me(addresses: Iterable[str] | None) -> bool:
        return any(fold(one) == me for one in addresses or ())

    if names_me(message.to):
        return None
    batches = sorted(message.add_to or (), key=lambda batch: (batch.time or 0.0, batch.batch_id or 0))
    mine = [index for index, batch in enumerate(batches) if names_me(batch.to)]
    return mine[-1] == len(batches) - 1 if mine else None


class Intake:
    """The pushed messages of one caller that are not in its ledger yet; at most ``limit``, each once."""

    __slots__ = ("_waiting", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._waiting: dict[int, Pushed] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._waiting

    def add(self, pushed: Pushed) -> bool:
        """Keep a message; False where there is no room: then only the list still knows of it."""
        message_id = pushed.seen.id
        if message_id not in self._waiting and len(self._waiting) >= self.limit:
            return False
        self._waiting[message_id] = pushed
        return True

    def clear(self) -> None:
        """Drop what waits; only the list still knows of it."""
        self._waiting.clear()

    async def write(self, ledger: Ledger, caller: CallerKey, *, clock: Callable[[], float]) -> list[Seen]:
        """Append a batch of what waits, in the order in which it came, without a request to the host.

        Returns those that were new and whose root is still to be found. What could not be appended keeps waiting:
        raises `NoLedger`, `StaleEpoch` and `LedgerUnavailable`.
        """
        batch = list(islice(self._waiting.values(), BATCH))
        seen = await self._sort_out(ledger, caller, batch)
        new: dict[int, int] = {}
        if seen:
            new = dict((await ledger.append(caller, seen, "push")).new)
        now_s = clock()
        for pushed in batch:
            if self._waiting.get(pushed.seen.id) is pushed:
                del self._waiting[pushed.seen.id]
            if pushed.seen.id in new:
                INGEST_LAG.observe(max(0.0, now_s - pushed.seen.sent_at_s))
        return [one for one in seen if one.id in new and not one.root]

    async def _sort_out(self, ledger: Ledger, caller: CallerKey, batch: list[Pushed]) -> list[Seen]:
        seen = [pushed.seen for pushed in batch]
        if not all(pushed.certain for pushed in batch):
            shown = [pushed.seen for pushed in batch if not pushed.certain]
            news = (await ledger.compare(caller, shown)).news
            seen = [pushed.seen for pushed in batch if pushed.certain or pushed.seen.id in news]
        if all(one.root for one in seen):
            return seen
        lineage = await sort_out(ledger, caller, seen)
        return [lineage.apply(one) for one in seen]
