"""A ledger within one process: for stdio, for the all-in-one without Redis, and for everybody's tests."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from ledger.arrival import (
    Appended,
    Arrival,
    Baseline,
    CallerKey,
    Latecomer,
    LedgerState,
    OutOfOrder,
    Place,
    Seen,
    Slice,
    Source,
)
from ledger.limits import MAX_LATECOMERS, LedgerLimits
from ledger.listeners import Listeners
from ledger.port import NoLedger
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


class _Book:
    """The ledger of one caller."""

    __slots__ = (
        "baseline",
        "began",
        "entries",
        "epoch",
        "last_n",
        "latecomers",
        "places",
        "seed_n",
        "top_id",
        "touched_s",
    )

    def __init__(self, epoch: str, baseline: Baseline) -> None:
        self.epoch = epoch
        self.began = self.baseline = baseline
        self.top_id = 0
        self.latecomers: deque[Latecomer] = deque(maxlen=MAX_LATECOMERS)
        self.entries: deque[Arrival] = deque()
        self.places: dict[int, int] = {}
        self.last_n = 0
        self.seed_n = 0
        self.touched_s = 0.0

    @property
    def first_n(self) -> int:
        return self.last_n - len(self.entries) + 1

    def add(self, seen: Seen, *, arrived_at_s: float, source: Source) -> int:
        self.last_n += 1
        fields = {name: getattr(seen, name) for name in Seen.__struct_fields__}
        self.entries.append(Arrival(n=self.last_n, arrived_at_s=arrived_at_s, source=source, **fields))
        self.places[seen.id] = self.last_n
        if seen.id < self.top_id:
            self.latecomers.append(Latecomer(n=self.last_n, id=seen.id, top_id=self.top_id))
        self.top_id = max(self.top_id, seen.id)
        return self.last_n

    def trim(self, max_entries: int) -> None:
        while len(self.entries) > max_entries:
            gone = self.entries.popleft()
            del self.places[gone.id]
            self.baseline = Baseline(
                newest_id=max(self.baseline.newest_id, gone.id), time_s=max(self.baseline.time_s, gone.sent_at_s)
            )


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
        self._books: dict[CallerKey, _Book] = {}
        self._marks: dict[CallerKey, dict[tuple[str, int], float]] = {}
        self._ahead_s = 0.0
        self._latest_s = 0.0

    async def state(self, caller: CallerKey) -> LedgerState | None:
        """See `ledger.port.Ledger`."""
        book = self._find(caller)
        return None if book is None else self._state(book)

    async def begin(self, caller: CallerKey, seeds: Sequence[Seen], baseline: Baseline) -> LedgerState:
        """See `ledger.port.Ledger`."""
        book = self._find(caller)
        if book is None:
            book = self._books[caller] = _Book(self._new_epoch(), baseline)
            now_s = self._now()
            for seed in seeds:
                if seed.id not in book.places:
                    book.add(seed, arrived_at_s=min(seed.sent_at_s, now_s), source="seed")
            book.seed_n = book.last_n
            book.top_id = max(book.top_id, baseline.newest_id)
            book.trim(self._limits.max_entries)
            book.touched_s = now_s
            marks = self._marks.get(caller, {})
            for mark in [mark for mark in marks if mark[0] == "position"]:
                del marks[mark]
        return self._state(book)

    async def append(self, caller: CallerKey, seen: Sequence[Seen], source: Source) -> Appended:
        """See `ledger.port.Ledger`."""
        book = self._get(caller)
        book.touched_s = now_s = self._now()
        new = [(one.id, book.add(one, arrived_at_s=now_s, source=source)) for one in seen if one.id not in book.places]
        book.trim(self._limits.max_entries)
        count_append(source, new=len(new), duplicates=len(seen) - len(new))
        if new:
            self._doorbell.ring(caller)
        return Appended(new=tuple(new), duplicates=len(seen) - len(new), state=self._state(book))

    async def read(self, caller: CallerKey, after_n: int, limit: int) -> Slice:
        """See `ledger.port.Ledger`."""
        book = self._get(caller)
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
            id_: Place(n=book.places[id_], handed_out=self._marked(caller, "position", id_))
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

    async def note_returned(self, caller: CallerKey, *, above: Iterable[int], position: int) -> None:
        """See `ledger.port.Ledger`."""
        now_s = self._now()
        marks = self._marks.setdefault(caller, {})
        for mark in [("position", position), *(("returned", id_) for id_ in above)]:
            marks.pop(mark, None)
            marks[mark] = now_s + self._limits.returned_ttl_s
        stale = [mark for mark, until_s in marks.items() if until_s <= now_s]
        for mark in [*stale, *islice(tuple(marks), max(len(marks) - self._limits.max_marks, 0))]:
            marks.pop(mark, None)
        book = self._find(caller)
        if book is not None:
            book.touched_s = now_s

    async def returned(self, caller: CallerKey, message_ids: Sequence[int]) -> frozenset[int]:
        """See `ledger.port.Ledger`."""
        return frozenset(id_ for id_ in message_ids if self._marked(caller, "returned", id_))

    async def out_of_order(self, caller: CallerKey) -> OutOfOrder:
        """See `ledger.port.Ledger`."""
        book = self._get(caller)
        return OutOfOrder(began=book.began, latecomers=tuple(book.latecomers))

    async def forget(self, caller: CallerKey) -> None:
        """See `ledger.port.Ledger`."""
        self._books.pop(caller, None)
        self._marks.pop(caller, None)

    def _find(self, caller: CallerKey) -> _Book | None:
        book = self._books.get(caller)
        if book is not None and book.touched_s + self._limits.ttl_s <= self._now():
            del self._books[caller]
            return None
        return book

    def _get(self, caller: CallerKey) -> _Book:
        book = self._find(caller)
        if book is None:
            raise NoLedger(no_ledger_text(caller))
        return book

    def _marked(self, caller: CallerKey, kind: str, message_id: int) -> bool:
        until_s = self._marks.get(caller, {}).get((kind, message_id))
        return until_s is not None and until_s > self._now()

    def _state(self, book: _Book) -> LedgerState:
        return LedgerState(
            epoch=book.epoch,
            first_n=book.first_n,
            last_n=book.last_n,
            seed_n=book.seed_n,
            baseline=book.baseline,
            now_s=self._now(),
        )

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
