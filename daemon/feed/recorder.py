"""From frames to arrivals: which events are arrivals, how they get into the ledger, and the roots that come later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice

import msgspec

from daemon.feed.context import Feed, FeedContext
from daemon.feed.copy import LedgerCopy
from daemon.feed.diagnosis import Diagnosis, diagnose
from fmsg.events import Event
from fmsg.message import Message
from fmsg.webapi import WebApi
from ledger.catch_up import seen_from
from ledger.port import LedgerError, NoLedger, StaleEpoch
from ledger.thread_roots import resolve_roots, sort_out
from ledger.values import Arrival, CallerKey, Seen
from telemetry.logs import SELDOM
from telemetry.metrics import INGEST_LAG

log = logging.getLogger(__name__)

BATCH = 64
"""Frames appended in one step at most: one append is one script, and blocks the store for everybody else meanwhile."""

MAX_ROOTLESS = 64
"""Messages without a root kept per feed. More at a time means a host in trouble; the workers' sweep finds the rest."""

ROOT_DELAYS_S = (2.0, 8.0, 30.0, 120.0)
"""Between the searches: a message can be pushed an instant before it is readable, and a host in trouble takes minutes.
With the last one, a line ends at an ancestor that cannot be found."""

ROOTS_AGAIN_S = 30.0
"""When to look for roots again after the store or our own code failed meanwhile."""

WRITE_WITHIN_S = 2.0
"""How long a closing feed waits for a write under way; what it cuts off is found in the list later."""


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
    me = address.lower()

    def names_me(addresses: Iterable[str] | None) -> bool:
        return any(one.lower() == me for one in addresses or ())

    if names_me(message.to):
        return None
    batches = sorted(message.add_to or (), key=lambda batch: (batch.time or 0.0, batch.batch_id or 0))
    mine = [index for index, batch in enumerate(batches) if names_me(batch.to)]
    return mine[-1] == len(batches) - 1 if mine else None


class Recorder:
    """Writes one caller's pushed messages, then looks for the roots they lack. One write and one search at a time."""

    __slots__ = (
        "_api",
        "_caller",
        "_copy",
        "_ctx",
        "_feed",
        "_rooting",
        "_rootless",
        "_searches",
        "_waiting",
        "_writing",
    )

    def __init__(self, ctx: FeedContext, caller: CallerKey, api: WebApi, copy: LedgerCopy, feed: Feed) -> None:
        self._ctx = ctx
        self._caller = caller
        self._api = api
        self._copy = copy
        self._feed = feed
        self._waiting: dict[int, Pushed] = {}
        self._rootless: dict[int, Seen | Arrival] = {}
        self._searches = 0
        self._writing: asyncio.Task[None] | None = None
        self._rooting: asyncio.Task[None] | None = None

    def __contains__(self, message_id: object) -> bool:
        """Whether the message was pushed and is not written yet."""
        return message_id in self._waiting

    def keep(self, pushed: Pushed) -> None:
        """Keep a pushed message until `write` is asked for. Without room for it the feed hears that it fell behind."""
        if pushed.seen.id in self._waiting or len(self._waiting) < self._ctx.settings.pending_limit:
            self._waiting[pushed.seen.id] = pushed
        else:
            self._feed.fell_behind()

    def write(self) -> None:
        """Write what is kept. Frames that come meanwhile go with the next batch."""
        if self._writing is None and self._waiting:
            self._writing = self._ctx.spawn(self._write())

    def add_rootless(self, seen: Iterable[Seen | Arrival]) -> None:
        """Messages in the ledger whose root is to be found."""
        for one in seen:
            if len(self._rootless) < MAX_ROOTLESS:
                self._rootless[one.id] = one
                self._searches = 0

    def find_roots(self) -> None:
        """Look for the roots that are missing."""
        if self._rooting is None and self._rootless:
            self._rooting = self._ctx.spawn(self._find_roots())

    async def close(self) -> None:
        """End what is under way; a write gets `WRITE_WITHIN_S`."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=WRITE_WITHIN_S)
        tasks = [task for task in (self._writing, self._rooting) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _write(self) -> None:
        failure: Diagnosis | None = None
        behind = False
        try:
            while self._waiting:
                await self._write_batch(list(islice(self._waiting.values(), BATCH)))
                self.find_roots()
        except (NoLedger, StaleEpoch):
            behind = True
        except LedgerError as error:
            failure = diagnose(error)
        except Exception as error:
            # What cannot be written because of a fault of ours must not come round for ever: the list still has it.
            log.exception("writing arrivals failed", extra={"action": "write_failed", "caller": self._caller, **SELDOM})
            self._waiting.clear()
            failure = diagnose(error)
        finally:
            self._writing = None
        if behind:
            self._feed.fell_behind()
        elif failure is not None:
            self._feed.write_failed(failure)

    async def _write_batch(self, batch: list[Pushed]) -> None:
        """Append a batch in the order in which it came, without a request to the host."""
        ledger = self._ctx.ledger
        seen = [pushed.seen for pushed in batch]
        shown = [pushed.seen for pushed in batch if not pushed.certain]
        if shown:
            news = (await ledger.compare(self._caller, shown)).news
            seen = [pushed.seen for pushed in batch if pushed.certain or pushed.seen.id in news]
        if not all(one.root for one in seen):
            lineage = await sort_out(ledger, self._caller, seen)
            seen = [lineage.apply(one) for one in seen]
        new: set[int] = set()
        if seen:
            since = self._copy.image.state.head if self._copy.image is not None else None
            appended = await ledger.append(self._caller, seen, "push", since=since)
            new = {one.id for one in appended.new}
            await self._copy.appended(appended)
        now_s = self._ctx.clock()
        for pushed in batch:
            if self._waiting.get(pushed.seen.id) is pushed:
                del self._waiting[pushed.seen.id]
            if pushed.seen.id in new:
                INGEST_LAG.observe(max(0.0, now_s - pushed.seen.sent_at_s))
        self.add_rootless(one for one in seen if one.id in new and not one.root)

    async def _find_roots(self) -> None:
        delay_s: float | None = ROOTS_AGAIN_S
        try:
            async with self._ctx.rooting:
                delay_s = await self._search()
        except LedgerError:
            log.debug("roots wait for the store", extra={"action": "roots_put_off", "caller": self._caller})
        except Exception:
            log.exception(
                "looking for roots failed", extra={"action": "roots_failed", "caller": self._caller, **SELDOM}
            )
        finally:
            self._rooting = None
        if delay_s is not None:
            self._feed.check_within(delay_s)

    async def _search(self) -> float | None:
        """Look once; the seconds until the next search, or None where nothing is left to be found."""
        asked = list(self._rootless.values())
        last_try = self._searches >= len(ROOT_DELAYS_S)
        roots = await resolve_roots(self._api, self._ctx.ledger, self._caller, asked, last_try=last_try)
        found = {message_id: root for message_id, root in roots.items() if root}
        if found:
            await self._ctx.ledger.set_roots(self._caller, found)
        for one in asked:
            if one.id in found or last_try:
                self._rootless.pop(one.id, None)
        if not self._rootless:
            self._searches = 0
            return None
        delay_s = ROOT_DELAYS_S[min(self._searches, len(ROOT_DELAYS_S) - 1)]
        self._searches += 1
        return delay_s
