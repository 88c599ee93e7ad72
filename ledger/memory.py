"""A store within one process: for stdio, for the all-in-one without Redis, and for tests.

It imports no redis-py: a stdio server starts sooner and is 6 MB smaller without it.

What counts as news. A message the host lists and the ledger does not hold was there before, or was forgotten, or has
arrived; only the last must be recorded. Three things tell:

- ``settled``: ids up to one and times up to one are old news. Begins as the baseline the ledger began with.
- ``verified_id``: everything available up to this id is in the ledger or old news. Pushes are recorded while older
  messages are still missing, so what is above it proves nothing of what lies below it.
- ``gone``: what was trimmed and may not move ``settled`` yet, by id with its time. An entry above the verified
  watermark may not, since missing messages would become old news with it. Nor may one whose time is ahead of the clock
  (its sender's clock is wrong): messages that become available from now on would be old news before they are sent.

So ``settled`` passes only what was verified, and its time never passes the arrival of the oldest entry held. The
exception are floods of more than ``max_gone``, where the ledger gives up on what lies below.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from fmsg.reference import MAX_ID
from ledger.connect_slots import ConnectSlots, reserve_slots
from ledger.operators import Order, Process, in_order
from ledger.port import (
    Activation,
    ActiveFeed,
    DeferredTask,
    FeedReport,
    Lease,
    Member,
    NoLedger,
    StaleEpoch,
    Versioned,
)
from ledger.values import (
    END,
    MAX_LATE,
    START,
    Appended,
    Arrival,
    Baseline,
    CallerKey,
    Compared,
    Found,
    Head,
    Image,
    Late,
    LedgerLimits,
    LedgerState,
    Seen,
    Slice,
    Source,
    StreamId,
)
from telemetry.metrics import APPENDS, DUPLICATES

log = logging.getLogger(__name__)

WAKES_AT_ONCE = 500
"""Listeners called in one go when all are. A wake-up costs some microseconds; many more at once would hold the event
loop longer than anybody should notice."""

K = TypeVar("K", bound=Hashable)


class Listeners(Generic[K]):
    """Functions to call by key. Calling those of one key costs nothing for the others, however many there are."""

    def __init__(self) -> None:
        self._by_key: dict[K, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return sum(len(wakes) for wakes in self._by_key.values())

    def add(self, key: K, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` for the key; returns the function that ends it (calling that again is harmless)."""
        self._by_key.setdefault(key, []).append(wake)
        ended = False

        def end() -> None:
            nonlocal ended
            if ended:
                return
            ended = True
            wakes = self._by_key[key]
            wakes.remove(wake)
            if not wakes:
                del self._by_key[key]

        return end

    def wake(self, key: K) -> None:
        """Wake all listeners of the key."""
        for wake in tuple(self._by_key.get(key, ())):
            _call(wake)

    async def wake_all(self, *, within_s: float = 0.0) -> None:
        """Wake all listeners, letting other tasks run in between; evenly spread over a time where one is given."""
        wakes = [wake for wakes in self._by_key.values() for wake in wakes]
        at_once = WAKES_AT_ONCE if not within_s else max(1, len(wakes) // 100)
        for start in range(0, len(wakes), at_once):
            for wake in wakes[start : start + at_once]:
                _call(wake)
            await asyncio.sleep(within_s * at_once / len(wakes))


def _call(wake: Callable[[], None]) -> None:
    try:
        wake()
    except Exception:
        # One listener's fault must not keep the others asleep.
        log.exception("a listener failed", extra={"action": "listener_failed"})


class MemoryNotifications:
    """`ledger.port.Notifications` of one process; none is ever lost."""

    def __init__(self) -> None:
        self._listeners: Listeners[CallerKey] = Listeners()

    def listen(self, caller: CallerKey, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` whenever the caller's ledger grew."""
        return self._listeners.add(caller, wake)

    def notify(self, caller: CallerKey) -> None:
        """Wake all who listen for the caller."""
        self._listeners.wake(caller)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nothing needs to run: appending notifies."""
        yield


class AlwaysAvailable:
    """`ledger.port.Availability` of memory."""

    away_since_s: float | None = None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Memory is never away, so it is never back."""
        return lambda: None


class CallerLedger:
    """One caller's ledger: its entries, what it forgets, and what is old news to it."""

    __slots__ = (
        "baseline",
        "entries",
        "epoch",
        "gone",
        "last",
        "late",
        "low",
        "places",
        "settled",
        "top_id",
        "touched_s",
        "verified_id",
    )

    def __init__(self, epoch: str, baseline: Baseline) -> None:
        self.epoch = epoch
        self.baseline = self.settled = baseline
        self.verified_id = self.top_id = 0
        self.late: deque[Late] = deque(maxlen=MAX_LATE)
        self.entries: deque[Arrival] = deque()
        self.places: dict[int, StreamId] = {}
        self.gone: dict[int, float] = {}
        self.last = self.low = START
        self.touched_s = 0.0

    def state(self, now_s: float) -> LedgerState:
        """The ledger at a moment of its clock."""
        return LedgerState(
            epoch=self.epoch,
            last=self.last,
            low=self.low,
            baseline=self.baseline,
            settled=self.settled,
            held=len(self.entries),
            now_s=now_s,
            verified_id=self.verified_id,
        )

    def stands(self, at: StreamId) -> bool:
        """Whether there is an entry with the id, or was one before it was trimmed."""
        if at <= self.low:
            return True
        index = self.index(at)
        return index < len(self.entries) and self.entries[index].at == at

    def continues(self, head: Head) -> bool:
        """Whether this is what became of a ledger that ended there."""
        return head.epoch == self.epoch and self.stands(head.last)

    def placed(self, message_id: int, head: Head) -> bool:
        """Whether a message stands where it was read, or was trimmed since."""
        return head.epoch == self.epoch and (self.places.get(message_id) == head.last or START < head.last <= self.low)

    def index(self, at: StreamId) -> int:
        """The index of the first entry that is not below an id."""
        return bisect.bisect_left(self.entries, at, key=lambda entry: entry.at)

    def knows(self, message_id: int) -> bool:
        """Whether the message is held, or was and is remembered."""
        return message_id in self.places or message_id in self.gone

    def add(self, entry: Arrival) -> None:
        """Add an entry, whose id is above all others."""
        self.entries.append(entry)
        self.places[entry.id] = self.last = entry.at

    def begin(self, snapshot: Iterable[Seen], now_ms: int) -> None:
        """Take over what was there already. Nothing up to the newest of it, or of the baseline, is missing."""
        for seen in snapshot:
            if seen.id not in self.places:
                at = self.last.following(min(max(int(seen.sent_at_s * 1000.0), 0), now_ms))
                self.add(Arrival.of(seen, at, "snapshot"))
        self.verified_id = max(self.baseline.newest_id, *self.places, 0)

    def append(self, seen: Iterable[Seen], source: Source, now_ms: int, *, only_news: bool) -> list[Arrival]:
        """Add what is not known; returns the new entries."""
        new: list[Arrival] = []
        for one in seen:
            if self.knows(one.id) or (only_news and self.settled.covers(one)):
                continue
            new.append(Arrival.of(one, self.last.following(now_ms), source))
            self.add(new[-1])
        return new

    def restore(self, image: Image, now_ms: int) -> bool:
        """Add what an image of this life has and the ledger lacks; whether there was anything."""
        whole = self.last >= image.state.low
        changed = False
        for entry in image.entries:
            if entry.at > self.low and not self.knows(entry.id):
                at = entry.at if entry.at > self.last else self.last.following(now_ms)
                self.add(msgspec.structs.replace(entry, at=at))
                changed = True
        if whole:
            self.verified_id = max(self.verified_id, image.state.verified_id)
        return changed

    def verify(self, message_id: int, max_gone: int) -> None:
        """Everything up to an id was compared with the host's list and added."""
        if message_id > self.verified_id:
            self.verified_id = message_id
            self._settle(max_gone)

    def trim(self, max_entries: int, max_gone: int) -> None:
        """Forget what is too old. The baseline moves past it at once, ``settled`` where that loses nothing."""
        while len(self.entries) > max_entries:
            entry = self.entries.popleft()
            del self.places[entry.id]
            self.low = entry.at
            if entry.source != "snapshot":
                self.top_id = max(self.top_id, self.baseline.newest_id)
            if entry.id < self.top_id:
                self.late.append(Late(entry.id, self.top_id, entry.at))
            self.top_id = max(self.top_id, entry.id)
            self.baseline = self.baseline.past(entry)
            if entry.id > self.verified_id or entry.sent_at_s > entry.arrived_at_s:
                self.gone[entry.id] = entry.sent_at_s
            else:
                self.settled = self.settled.past(entry)
        if len(self.gone) > max_gone:
            self._settle(max_gone)

    def _settle(self, max_gone: int) -> None:
        if not self.gone:
            return
        horizon_s = self.entries[0].arrived_at_s
        self._cover(horizon_s, up_to_id=self.verified_id)
        if len(self.gone) > max_gone:
            self._cover(horizon_s)
        while len(self.gone) > max_gone:
            self._cover(max(min(self.gone.values()), sum(self.gone.values()) / len(self.gone)))
        self.verified_id = max(self.verified_id, self.settled.newest_id)

    def _cover(self, until_s: float, *, up_to_id: int = MAX_ID) -> None:
        for id_, sent_at_s in tuple(self.gone.items()):
            if sent_at_s <= until_s and id_ <= up_to_id:
                self.settled = self.settled.joined(Baseline(newest_id=id_, time_s=sent_at_s))
                del self.gone[id_]


class MemoryLedger:
    """`ledger.port.Ledger` that lives and dies with the process."""

    def __init__(
        self,
        *,
        limits: LedgerLimits | None = None,
        clock: Callable[[], float] = time.time,
        notifications: MemoryNotifications | None = None,
        new_epoch: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._limits = limits or LedgerLimits()
        self._clock = clock
        self._notifications = notifications or MemoryNotifications()
        self._new_epoch = new_epoch
        self._ledgers: dict[CallerKey, CallerLedger] = {}
        self._marks: dict[CallerKey, dict[tuple[str, int], float]] = {}
        self._ahead_s = 0.0
        self._latest_s = 0.0

    async def state(self, caller: CallerKey) -> LedgerState | None:
        ledger = self._find(caller)
        return None if ledger is None else self._state(ledger)

    async def heads(self, callers: Sequence[CallerKey]) -> Sequence[Head | None]:
        ledgers = map(self._find, callers)
        return tuple(None if ledger is None else self._state(ledger).head for ledger in ledgers)

    async def begin(self, caller: CallerKey, snapshot: Sequence[Seen], baseline: Baseline) -> LedgerState:
        ledger = self._find(caller)
        if ledger is None:
            ledger = self._new(caller, self._new_epoch(), baseline)
            ledger.begin(snapshot, self._now_ms())
            ledger.trim(self._limits.max_entries, self._limits.max_gone)
        return self._state(ledger)

    async def restore(self, caller: CallerKey, image: Image) -> LedgerState:
        ledger, changed = self._find(caller), False
        if ledger is None:
            ledger, changed = self._new(caller, image.state.epoch, image.state.baseline), True
            ledger.low, ledger.last = image.state.low, max(image.state.low, START)
        if ledger.epoch != image.state.epoch:
            return self._state(ledger)
        changed = ledger.restore(image, self._now_ms()) or changed
        ledger.trim(self._limits.max_entries, self._limits.max_gone)
        ledger.touched_s = self._now()
        if changed:
            self._notifications.notify(caller)
        return self._state(ledger)

    async def compare(self, caller: CallerKey, listed: Sequence[Seen], *, since: Head | None = None) -> Compared:
        ledger = self._get(caller, since)
        news = frozenset(one.id for one in listed if not ledger.settled.covers(one) and not ledger.knows(one.id))
        return Compared(news=news, state=self._state(ledger))

    async def append(
        self,
        caller: CallerKey,
        seen: Sequence[Seen],
        source: Source,
        *,
        since: Head | None = None,
        verified_id: int = 0,
    ) -> Appended:
        ledger = self._get(caller, since)
        before = ledger.last
        new = ledger.append(seen, source, self._now_ms(), only_news=since is not None and source != "push")
        ledger.verify(verified_id, self._limits.max_gone)
        ledger.trim(self._limits.max_entries, self._limits.max_gone)
        ledger.touched_s = self._now()
        count_append(source, new=len(new), duplicates=len(seen) - len(new))
        if new:
            self._notifications.notify(caller)
        return Appended(new=tuple(new), duplicates=len(seen) - len(new), before=before, state=self._state(ledger))

    async def read(self, caller: CallerKey, after: StreamId, limit: int, *, since: Head | None = None) -> Slice:
        ledger = self._get(caller, since)
        start = ledger.index(after)
        if start < len(ledger.entries) and ledger.entries[start].at == after:
            start += 1
        return self._slice(caller, ledger, start, start + max(limit, 0))

    async def read_back(self, caller: CallerKey, limit: int, *, before: StreamId = END) -> Slice:
        ledger = self._get(caller)
        stop = ledger.index(before)
        return self._slice(caller, ledger, max(stop - max(limit, 0), 0), stop)

    async def find(self, caller: CallerKey, message_ids: Sequence[int]) -> Found:
        ledger = self._get(caller)
        held = {id_: ledger.entries[ledger.index(ledger.places[id_])] for id_ in message_ids if id_ in ledger.places}
        return Found(
            entries={id_: self._marked(caller, entry) for id_, entry in held.items()},
            handed_out=frozenset(id_ for id_ in message_ids if self._handed_out(caller, id_, held.get(id_))),
            returned=frozenset(id_ for id_ in message_ids if self._made_s(caller, "returned", id_) is not None),
            state=self._state(ledger),
        )

    async def late(self, caller: CallerKey) -> Sequence[Late]:
        ledger = self._find(caller)
        return () if ledger is None else tuple(ledger.late)

    async def set_roots(self, caller: CallerKey, roots: Mapping[int, int]) -> None:
        ledger = self._get(caller)
        ledger.touched_s = self._now()
        changed = False
        for message_id, root in roots.items():
            index = ledger.index(ledger.places.get(message_id, END))
            if root and index < len(ledger.entries) and not ledger.entries[index].root:
                ledger.entries[index] = msgspec.structs.replace(ledger.entries[index], root=root)
                changed = True
        if changed:
            self._notifications.notify(caller)

    async def note_returned(
        self, caller: CallerKey, *, above: Iterable[int] = (), position: int = 0, head: Head | None = None
    ) -> bool:
        now_s = self._now()
        ledger = self._find(caller)
        stands = ledger is not None and head is not None and ledger.placed(position, head)
        marks = self._marks.setdefault(caller, {})
        for mark in [*([("position", position)] if stands else []), *(("returned", id_) for id_ in above)]:
            marks.pop(mark, None)
            marks[mark] = now_s
        stale = [mark for mark, made_s in marks.items() if made_s + self._limits.returned_ttl_s <= now_s]
        for mark in [*stale, *itertools.islice(tuple(marks), max(len(marks) - self._limits.max_marks, 0))]:
            marks.pop(mark, None)
        if ledger is not None:
            ledger.touched_s = now_s
        return stands

    async def forget(self, caller: CallerKey) -> None:
        self._ledgers.pop(caller, None)
        self._marks.pop(caller, None)

    def _new(self, caller: CallerKey, epoch: str, baseline: Baseline) -> CallerLedger:
        ledger = self._ledgers[caller] = CallerLedger(epoch, baseline)
        ledger.touched_s = self._now()
        marks = self._marks.get(caller, {})
        for mark in [mark for mark in marks if mark[0] == "position"]:
            del marks[mark]
        return ledger

    def _find(self, caller: CallerKey) -> CallerLedger | None:
        ledger = self._ledgers.get(caller)
        if ledger is not None and ledger.touched_s + self._limits.ttl_s <= self._now():
            del self._ledgers[caller]
            return None
        return ledger

    def _get(self, caller: CallerKey, since: Head | None = None) -> CallerLedger:
        ledger = self._find(caller)
        if ledger is None:
            raise NoLedger(no_ledger_text(caller))
        if since is not None and not ledger.continues(since):
            raise StaleEpoch(stale_text(caller))
        return ledger

    def _slice(self, caller: CallerKey, ledger: CallerLedger, start: int, stop: int) -> Slice:
        entries = itertools.islice(ledger.entries, start, stop)
        return Slice(entries=tuple(self._marked(caller, entry) for entry in entries), state=self._state(ledger))

    def _marked(self, caller: CallerKey, entry: Arrival) -> Arrival:
        if self._made_s(caller, "returned", entry.id) is None:
            return entry
        return msgspec.structs.replace(entry, returned=True)

    def _made_s(self, caller: CallerKey, kind: str, message_id: int) -> float | None:
        """When the mark was made, if it was and still counts."""
        made_s = self._marks.get(caller, {}).get((kind, message_id))
        return made_s if made_s is not None and made_s + self._limits.returned_ttl_s > self._now() else None

    def _handed_out(self, caller: CallerKey, message_id: int, entry: Arrival | None) -> bool:
        """Whether the entry itself was a position, not one that the ledger had in its place before it lost its end."""
        made_s = self._made_s(caller, "position", message_id)
        return made_s is not None and (entry is None or made_s >= entry.arrived_at_s)

    def _state(self, ledger: CallerLedger) -> LedgerState:
        return ledger.state(self._now_ms() / 1000.0)

    def _now_ms(self) -> int:
        return int(self._now() * 1000.0)

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
    return f"ledger of caller {caller[:8]}…: not the one looked at before (begun anew, or its end lost). Look again."


class MemoryActivations:
    """`ledger.port.Activations` of one process. Not asked for ``ttl_s``, a caller is not active any more."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._active: dict[CallerKey, Activation] = {}
        self._reports: dict[CallerKey, FeedReport] = {}
        self._listeners: dict[int, Callable[[CallerKey], None]] = {}
        self._listener_ids = itertools.count()

    async def activate(
        self, caller: CallerKey, *, address: str, api_url: str, token: str | None, token_expires_at_s: float
    ) -> None:
        before = await self.get(caller)
        if before is not None and (token is None or token_expires_at_s <= self._clock()):
            token, token_expires_at_s = before.token, before.token_expires_at_s
        self._active[caller] = Activation(
            caller=caller,
            address=address,
            api_url=api_url,
            asked_at_s=self._clock(),
            token=token,
            token_expires_at_s=token_expires_at_s if token is not None else 0.0,
        )
        feed = self._reports.get(caller)
        if before is None or before.token != token or feed is None or not feed.live:
            for wake in tuple(self._listeners.values()):
                wake(caller)

    async def get(self, caller: CallerKey) -> Activation | None:
        found = self._active.get(caller)
        now_s = self._clock()
        if found is None or found.asked_at_s + self._ttl_s <= now_s:
            self._drop(caller)
            return None
        if found.token is not None and found.token_expires_at_s <= now_s:
            found = msgspec.structs.replace(found, token=None, token_expires_at_s=0.0)
            self._active[caller] = found
        return found

    async def active(self) -> Sequence[CallerKey]:
        oldest_s = self._clock() - self._ttl_s
        for caller in [key for key, found in self._active.items() if found.asked_at_s <= oldest_s]:
            self._drop(caller)
        return tuple(self._active)

    async def count(self) -> int:
        return len(await self.active())

    async def retire(self, caller: CallerKey, *, unless_asked_since_s: float | None = None) -> bool:
        found = self._active.get(caller)
        if found is not None and unless_asked_since_s is not None and found.asked_at_s > unless_asked_since_s:
            return False
        self._drop(caller)
        return True

    async def report(self, caller: CallerKey, report: FeedReport) -> None:
        self._reports[caller] = report

    async def feed(self, caller: CallerKey) -> FeedReport | None:
        return self._reports.get(caller)

    async def settled(self, callers: Sequence[CallerKey]) -> Sequence[bool]:
        reports = map(self._reports.get, callers)
        return tuple(report is not None and report.live and not report.needs_credential for report in reports)

    async def feeds(self, *, limit: int) -> Sequence[ActiveFeed]:
        found = [await self.get(caller) for caller in (await self.active())[:limit]]
        return tuple(
            ActiveFeed(
                caller=one.caller,
                asked_at_s=one.asked_at_s,
                has_token=one.token is not None,
                report=self._reports.get(one.caller),
            )
            for one in found
            if one is not None
        )

    def listen(
        self, wake: Callable[[CallerKey], None], *, again: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call ``wake`` for each caller that is activated, until the returned function is called.

        Nothing is ever lost here, so ``again`` is never called.
        """
        key = next(self._listener_ids)
        self._listeners[key] = wake

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def _drop(self, caller: CallerKey) -> None:
        self._active.pop(caller, None)
        self._reports.pop(caller, None)


class MemoryFleet:
    """`ledger.port.Fleet` of one process."""

    def __init__(self, *, heartbeat_ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = heartbeat_ttl_s
        self._clock = clock
        self._beats: dict[str, tuple[float, Member]] = {}
        self._leases: dict[CallerKey, Lease] = {}
        self._free_at_s = float("-inf")

    async def beat(self, member: Member) -> None:
        self._beats[member.id] = (self._clock() + self._ttl_s, member)

    async def leave(self, member_id: str) -> None:
        self._beats.pop(member_id, None)

    async def members(self) -> Sequence[Member]:
        now_s = self._clock()
        self._beats = {id_: beat for id_, beat in self._beats.items() if beat[0] > now_s}
        return tuple(self._beats[id_][1] for id_ in sorted(self._beats))

    async def take(
        self, callers: Sequence[CallerKey], daemon: str, *, over: Mapping[CallerKey, str]
    ) -> Mapping[CallerKey, Lease]:
        alive = {member.id for member in await self.members()}
        for caller in callers:
            held = self._leases.get(caller)
            if held is None or (
                held.daemon != daemon and (held.daemon not in alive or held.daemon == over.get(caller))
            ):
                self._leases[caller] = Lease(caller=caller, daemon=daemon, epoch=held.epoch + 1 if held else 1)
        return {caller: self._leases[caller] for caller in callers}

    async def holders(self, callers: Sequence[CallerKey]) -> Mapping[CallerKey, Lease]:
        found = {caller: self._leases[caller] for caller in callers if caller in self._leases}
        return {caller: lease for caller, lease in found.items() if lease.daemon}

    async def release(self, callers: Sequence[CallerKey], daemon: str) -> None:
        for caller in callers:
            held = self._leases.get(caller)
            if held is not None and held.daemon == daemon:
                self._leases[caller] = msgspec.structs.replace(held, daemon="")

    async def reserve_connects(self, count: int, *, per_s: float, within_s: float) -> ConnectSlots:
        slots, self._free_at_s = reserve_slots(
            self._free_at_s, self._clock(), count=count, every_s=1.0 / per_s, within_s=within_s
        )
        return slots

    async def sweep(self) -> int:
        alive = {member.id for member in await self.members()}
        dead = [lease for lease in self._leases.values() if lease.daemon and lease.daemon not in alive]
        for lease in dead:
            self._leases[lease.caller] = msgspec.structs.replace(lease, daemon="")
        return len(dead)


class MemoryDocuments:
    """`ledger.port.Documents` of one process."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[tuple[CallerKey, str, str], tuple[float, Versioned]] = {}
        self._versions = itertools.count(1)

    async def load(self, caller: CallerKey, kind: str, name: str) -> Versioned:
        return self._at((caller, kind, name)) or Versioned(data=b"", version=0)

    async def store(self, caller: CallerKey, kind: str, name: str, data: bytes, *, expected: int, ttl_s: float) -> int:
        key = (caller, kind, name)
        found = self._at(key)
        if (found.version if found else 0) != expected:
            return 0
        version = next(self._versions)
        self._kept[key] = (self._clock() + ttl_s, Versioned(data=data, version=version))
        return version

    async def delete(self, caller: CallerKey, kind: str, name: str) -> bool:
        key = (caller, kind, name)
        return self._at(key) is not None and self._kept.pop(key, None) is not None

    async def names(self, caller: CallerKey, kind: str) -> Sequence[str]:
        held = [key for key in self._kept if key[:2] == (caller, kind)]
        return tuple(sorted(name for *_, name in held if self._at((caller, kind, name)) is not None))

    def _at(self, key: tuple[CallerKey, str, str]) -> Versioned | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            del self._kept[key]
            return None
        return found[1]


class MemoryDeferredTasks:
    """`ledger.port.DeferredTasks` of one process."""

    def __init__(self, *, clock: Callable[[], float], ttl_s: float = LedgerLimits().deferred_ttl_s) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._tasks: dict[tuple[str, CallerKey, int], tuple[float, DeferredTask]] = {}

    async def add(self, task: DeferredTask) -> None:
        key = (task.kind, task.caller, task.message_id)
        since_s, _ = self._tasks.get(key, (self._clock(), task))
        self._tasks[key] = (since_s, task)

    async def due(self, limit: int) -> Sequence[DeferredTask]:
        now_s = self._clock()
        ready = sorted(
            (item for item in self._tasks.values() if item[1].due_s <= now_s), key=lambda item: item[1].due_s
        )[:limit]
        for since_s, task in ready:
            if since_s < now_s - self._ttl_s:
                await self.done(task)
        return tuple(task for since_s, task in ready if since_s >= now_s - self._ttl_s)

    async def done(self, task: DeferredTask) -> None:
        self._tasks.pop((task.kind, task.caller, task.message_id), None)

    async def depth(self) -> int:
        return len(self._tasks)


class MemoryProcesses:
    """`ledger.operators.Processes` of one process."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._known: dict[str, Process] = {}

    async def announce(self, process: Process) -> None:
        self._known[process.id] = msgspec.structs.replace(process, heard_at_s=self._clock())

    async def withdraw(self, process_id: str) -> None:
        self._known.pop(process_id, None)

    async def present(self) -> Sequence[Process]:
        since_s = self._clock() - self._ttl_s
        self._known = {id_: process for id_, process in self._known.items() if process.heard_at_s > since_s}
        return in_order(self._known.values())


class MemoryOrders:
    """`ledger.operators.Orders` of one process."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[Order], None]] = {}
        self._listener_ids = itertools.count()

    async def give(self, order: Order) -> None:
        self.heard(order)

    def heard(self, order: Order) -> None:
        for obey in tuple(self._listeners.values()):
            obey(order)

    def listen(self, obey: Callable[[Order], None]) -> Callable[[], None]:
        key = next(self._listener_ids)
        self._listeners[key] = obey

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop


class MemoryStore:
    """`ledger.port.Store` that lives and dies with the process."""

    def __init__(self, *, limits: LedgerLimits | None = None, clock: Callable[[], float] = time.time) -> None:
        limits = limits or LedgerLimits()
        self.limits = limits
        """What is kept for how long."""
        self.notifications = MemoryNotifications()
        self.ledger = MemoryLedger(limits=limits, clock=clock, notifications=self.notifications)
        self.activations = MemoryActivations(ttl_s=limits.activation_ttl_s, clock=clock)
        self.fleet = MemoryFleet(heartbeat_ttl_s=limits.heartbeat_ttl_s, clock=clock)
        self.documents = MemoryDocuments(clock=clock)
        self.deferred = MemoryDeferredTasks(clock=clock)
        self.processes = MemoryProcesses(ttl_s=limits.presence_ttl_s, clock=clock)
        self.orders = MemoryOrders()
        self.availability = AlwaysAvailable()

    async def ping(self) -> None:
        """Memory is always there."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
