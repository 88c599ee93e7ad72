"""A ledger within one process: for stdio, for the all-in-one without Redis, and for everybody's tests."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from ledger.book import Book
from ledger.limits import LedgerLimits
from ledger.listeners import Listeners
from ledger.port import NoLedger, StaleEpoch
from ledger.values import (
    Appended,
    Baseline,
    CallerKey,
    Compared,
    Head,
    LedgerState,
    OutOfOrder,
    Place,
    Seen,
    Slice,
    Source,
)
from telemetry.metrics import APPENDS, DUPLICATES


class MemoryDoorbell:
    """Rings within the process; never loses a ring."""

    def __init__(self) -> None:
        self._listeners: Listeners[CallerKey] = Listeners()

    def listen(self, caller: CallerKey, wake: Callable[[], None]) -> Callable[[], None]:
        """See `ledger.port.Doorbell`."""
        return self._listeners.add(caller, wake)

    def ring(self, caller: CallerKey) -> None:
        """Wake whoever listens for the caller."""
        self._listeners.ring(caller)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nothing needs to run: whoever appends, rings."""
        yield


class MemoryLedger:
    """See `ledger.port.Ledger`. Lives and dies with the process."""

    def __init__(
        self,
        *,
        limits: LedgerLimits | None = None,
        clock: Callable[[], float] = time.time,
        doorbell: MemoryDoorbell | None = None,
        new_epoch: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._limits = limits or LedgerLimits()
        self._clock = clock
        self._doorbell = doorbell or MemoryDoorbell()
        self._new_epoch = new_epoch
        self._books: dict[CallerKey, Book] = {}
        self._marks: dict[CallerKey, dict[tuple[str, int], float]] = {}
        self._ahead_s = 0.0
        self._latest_s = 0.0

    async def state(self, caller: CallerKey) -> LedgerState | None:
        """See `ledger.port.Ledger`."""
        book = self._find(caller)
        return None if book is None else self._state(book)

    async def heads(self, callers: Sequence[CallerKey]) -> Sequence[Head | None]:
        """See `ledger.port.Ledger`."""
        books = map(self._find, callers)
        return tuple(None if book is None else self._state(book).head for book in books)

    async def begin(self, caller: CallerKey, seeds: Sequence[Seen], baseline: Baseline) -> LedgerState:
        """See `ledger.port.Ledger`."""
        book = self._find(caller)
        if book is None:
            book = self._books[caller] = Book(self._new_epoch(), baseline)
            now_s = self._now()
            for seed in seeds:
                if seed.id not in book.places:
                    book.add(seed, arrived_at_s=min(seed.sent_at_s, now_s), source="seed")
            book.begun()
            book.trim(self._limits.max_entries, self._limits.max_gone)
            book.touched_s = now_s
            marks = self._marks.get(caller, {})
            for mark in [mark for mark in marks if mark[0] == "position"]:
                del marks[mark]
        return self._state(book)

    async def compare(self, caller: CallerKey, listed: Sequence[Seen], *, since: LedgerState | None = None) -> Compared:
        """See `ledger.port.Ledger`."""
        book = self._get(caller, since)
        news = frozenset(one.id for one in listed if book.is_news(one) and not book.knows(one.id))
        return Compared(news=news, state=self._state(book))

    async def append(
        self,
        caller: CallerKey,
        seen: Sequence[Seen],
        source: Source,
        *,
        since: LedgerState | None = None,
        complete_id: int = 0,
    ) -> Appended:
        """See `ledger.port.Ledger`."""
        book = self._get(caller, since)
        book.touched_s = now_s = self._now()
        new = [
            (one.id, book.add(one, arrived_at_s=now_s, source=source))
            for one in seen
            if not book.knows(one.id) and (since is None or book.is_news(one))
        ]
        book.compared(complete_id, self._limits.max_gone)
        book.trim(self._limits.max_entries, self._limits.max_gone)
        count_append(source, new=len(new), duplicates=len(seen) - len(new))
        if new:
            self._doorbell.ring(caller)
        return Appended(new=tuple(new), duplicates=len(seen) - len(new), state=self._state(book))

    async def read(self, caller: CallerKey, after_n: int, limit: int, *, since: LedgerState | None = None) -> Slice:
        """See `ledger.port.Ledger`."""
        book = self._get(caller, since)
        start = max(after_n + 1 - book.first_n, 0)
        return Slice(entries=tuple(islice(book.entries, start, start + max(limit, 0))), state=self._state(book))

    async def read_back(self, caller: CallerKey, before_n: int, limit: int) -> Slice:
        """See `ledger.port.Ledger`."""
        book = self._get(caller)
        stop = max(min(before_n - book.first_n, len(book.entries)), 0)
        start = max(stop - max(limit, 0), 0)
        return Slice(entries=tuple(islice(book.entries, start, stop)), state=self._state(book))

    async def locate(self, caller: CallerKey, message_ids: Sequence[int]) -> Mapping[int, Place]:
        """See `ledger.port.Ledger`."""
        book = self._get(caller)
        return {
            id_: Place(n=book.places[id_], handed_out=self._handed_out(caller, book, id_))
            for id_ in message_ids
            if id_ in book.places
        }

    async def set_roots(self, caller: CallerKey, roots: Mapping[int, int]) -> None:
        """See `ledger.port.Ledger`."""
        book = self._get(caller)
        book.touched_s = self._now()
        changed = False
        for message_id, root in roots.items():
            n = book.places.get(message_id)
            if n is None or book.entries[n - book.first_n].root == root:
                continue
            index = n - book.first_n
            book.entries[index] = msgspec.structs.replace(book.entries[index], root=root)
            changed = True
        if changed:
            self._doorbell.ring(caller)

    async def note_returned(
        self, caller: CallerKey, *, above: Iterable[int], position: int, epoch: str = "", n: int = 0
    ) -> None:
        """See `ledger.port.Ledger`."""
        now_s = self._now()
        book = self._find(caller)
        stands = not n or (book is not None and epoch in ("", book.epoch) and book.stands(position, n))
        marks = self._marks.setdefault(caller, {})
        for mark in [*([("position", position)] if stands else []), *(("returned", id_) for id_ in above)]:
            marks.pop(mark, None)
            marks[mark] = now_s
        stale = [mark for mark, made_s in marks.items() if made_s + self._limits.returned_ttl_s <= now_s]
        for mark in [*stale, *islice(tuple(marks), max(len(marks) - self._limits.max_marks, 0))]:
            marks.pop(mark, None)
        if book is not None:
            book.touched_s = now_s

    async def returned(self, caller: CallerKey, message_ids: Sequence[int]) -> frozenset[int]:
        """See `ledger.port.Ledger`."""
        return frozenset(id_ for id_ in message_ids if self._marked(caller, "returned", id_))

    async def out_of_order(self, caller: CallerKey, positions: Sequence[int] = ()) -> OutOfOrder:
        """See `ledger.port.Ledger`."""
        book = self._get(caller)
        handed_out = frozenset(id_ for id_ in positions if self._marked_s(caller, "position", id_) is not None)
        return OutOfOrder(began=book.began, latecomers=tuple(book.latecomers), handed_out=handed_out)

    async def forget(self, caller: CallerKey) -> None:
        """See `ledger.port.Ledger`."""
        self._books.pop(caller, None)
        self._marks.pop(caller, None)

    def _find(self, caller: CallerKey) -> Book | None:
        book = self._books.get(caller)
        if book is not None and book.touched_s + self._limits.ttl_s <= self._now():
            del self._books[caller]
            return None
        return book

    def _get(self, caller: CallerKey, since: LedgerState | None = None) -> Book:
        book = self._find(caller)
        if book is None:
            raise NoLedger(no_ledger_text(caller))
        if since is not None and not book.continues(since):
            raise StaleEpoch(stale_text(caller))
        return book

    def _marked_s(self, caller: CallerKey, kind: str, message_id: int) -> float | None:
        """When the mark was made, if it was and still counts."""
        made_s = self._marks.get(caller, {}).get((kind, message_id))
        return made_s if made_s is not None and made_s + self._limits.returned_ttl_s > self._now() else None

    def _marked(self, caller: CallerKey, kind: str, message_id: int) -> bool:
        return self._marked_s(caller, kind, message_id) is not None

    def _handed_out(self, caller: CallerKey, book: Book, message_id: int) -> bool:
        """Whether the entry itself was a position, not one that the ledger had in its place before."""
        made_s = self._marked_s(caller, "position", message_id)
        return made_s is not None and made_s >= book.entries[book.places[message_id] - book.first_n].arrived_at_s

    def _state(self, book: Book) -> LedgerState:
        return book.state(self._now())

    def _now(self) -> float:
        """The ledger's clock: the process's, but it never goes back and goes on at the same pace when that one does."""
        now_s = self._clock() + self._ahead_s
        if now_s < self._latest_s:
            self._ahead_s += self._latest_s - now_s
            now_s = self._latest_s
        self._latest_s = now_s
        return now_s


def count_append(source: Source, *, new: int, duplicates: int) -> None:
    """Count the outcome of one append."""
    if new:
        APPENDS.labels(source).inc(new)
    if duplicates:
        DUPLICATES.labels(source).inc(duplicates)


def no_ledger_text(caller: CallerKey) -> str:
    """What a `NoLedger` says."""
    return f"ledger of caller {caller[:8]}…: there is none (never begun, expired or flushed). Begin one, then repeat."


def stale_text(caller: CallerKey) -> str:
    """What a `StaleEpoch` says."""
    return f"ledger of caller {caller[:8]}…: not the one looked at before (begun anew, or its tail lost). Look again."
