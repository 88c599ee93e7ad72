"""What the other packages need of a ledger. `ledger.memory` and `ledger.redis.ledger` keep the same contract.

Every method may raise `LedgerUnavailable`; those that need a begun ledger raise `NoLedger`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

import msgspec

from ledger.connect_slots import ConnectSlots
from ledger.values import (
    END,
    Appended,
    Baseline,
    CallerKey,
    Compared,
    Found,
    Head,
    Image,
    Late,
    LedgerState,
    Seen,
    Slice,
    Source,
    StreamId,
)


class LedgerError(Exception):
    """Base of the errors of this package."""


class LedgerUnavailable(LedgerError):
    """The store does not answer, or refuses what is asked of it. Nothing is lost: work goes on when it is back."""


class NoLedger(LedgerError):
    """This caller has no ledger: never begun, expired, flushed or unreadable. Begin one, then go on."""


class StaleEpoch(LedgerError):
    """The ledger is not the one last looked at: it began anew or lost its tail. Read its state and look again."""


class Ledger(Protocol):
    """Arrivals of every caller, in the order of their stream ids."""

    async def state(self, caller: CallerKey) -> LedgerState | None:
        """The ledger now, or None where there is none."""
        ...

    async def heads(self, callers: Sequence[CallerKey]) -> Sequence[Head | None]:
        """Where each caller's ledger ends now, None where there is none; cheap for many callers at once."""
        ...

    async def begin(self, caller: CallerKey, snapshot: Sequence[Seen], baseline: Baseline) -> LedgerState:
        """Begin a ledger with the messages that are there already, oldest first; does nothing where one exists.

        A snapshot entry's stream id is made of its ``sent_at_s``, never later than now. The baseline and the snapshot
        are stored together or not at all.
        """
        ...

    async def restore(self, caller: CallerKey, image: Image) -> LedgerState:
        """Write back what the store lost since an image was taken, in one atomic step; returns the state afterwards.

        Where there is no ledger, it goes on under the image's epoch with the same entries under the same ids. Where its
        end is missing, those entries are added under their ids; where something else was appended meanwhile, they are
        appended as new. A ledger in another life, or one that lacks nothing, stays as it is.
        """
        ...

    async def compare(self, caller: CallerKey, listed: Sequence[Seen], *, since: Head | None = None) -> Compared:
        """Which of the listed messages have arrived and are not recorded. ``since``: see `append`.

        What was trimmed or there before the ledger is not.
        """
        ...

    async def append(
        self,
        caller: CallerKey,
        seen: Sequence[Seen],
        source: Source,
        *,
        since: Head | None = None,
        verified_id: int = 0,
    ) -> Appended:
        """Append what is not there yet, in the given order, in one atomic step; notify if anything was new.

        Appending twice is harmless. Trims to the configured length exactly and moves the baseline past what it trims.

        ``since``: append only to the ledger that ended there, however much it has grown, and of what was found by
        comparing (not pushed) only what is still news. Raises `StaleEpoch` where it began anew or lost that end.
        ``verified_id``:
        with this everything up to the message id is recorded, as a comparison with the list found; moves the verified
        watermark, never back.
        """
        ...

    async def read(self, caller: CallerKey, after: StreamId, limit: int, *, since: Head | None = None) -> Slice:
        """At most ``limit`` entries with ids above ``after``, with their marks (`Arrival.returned`).

        Where ``after`` lies below the state's low watermark, what was trimmed in between is missing: a trim gap.
        ``since``: up to there the reader has read. Raises `StaleEpoch` where the ledger does not go on from there,
        because it began anew or lost that entry. What was trimmed counts as still there.
        """
        ...

    async def read_back(self, caller: CallerKey, limit: int, *, before: StreamId = END) -> Slice:
        """At most ``limit`` entries with ids below ``before``: those nearest to it, in ascending order, with marks."""
        ...

    async def find(self, caller: CallerKey, message_ids: Sequence[int]) -> Found:
        """Those of the messages that the ledger holds, with marks; and which of the ids it handed out as positions."""
        ...

    async def late(self, caller: CallerKey) -> Sequence[Late]:
        """The trimmed entries that were recorded after one with a higher id, in their order; at most `MAX_LATE`.

        All other trimmed entries were recorded in the order of their ids. Empty where there is no ledger.
        """
        ...

    async def set_roots(self, caller: CallerKey, roots: Mapping[int, int]) -> None:
        """Late roots: message id → thread root. Fills in what was unknown, and changes nothing that was known.

        Notifies where anything changed, since a held-back entry may qualify now.
        """
        ...

    async def note_returned(
        self, caller: CallerKey, *, above: Iterable[int] = (), position: int = 0, head: Head | None = None
    ) -> bool:
        """Remember for a day the ids returned above a position, and that the position (an id) was handed out.

        ``head`` is where the position stood when it was read. The position is remembered only where it still stands
        there (or was trimmed): after a flush or a failover the order may be another. Returns whether it is remembered.
        Without a ledger only ``above`` is.
        """
        ...

    async def forget(self, caller: CallerKey) -> None:
        """Drop the caller's ledger and its marks."""
        ...


class Notifications(Protocol):
    """Hints that a caller's ledger grew. They may be lost, so readers re-read now and then all the same."""

    def listen(self, caller: CallerKey, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` (must not block) at each hint and after each reconnect; returns the function that ends it."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run the one reader of this process while the context is open."""
        ...


class Availability(Protocol):
    """Whether the store takes writes, as this process last saw it.

    Each `LedgerUnavailable` makes it away, also where a write was refused and reads still work. It is back when a probe
    was written; until then the probe is tried about every second.
    """

    @property
    def away_since_s(self) -> float | None:
        """When it was found away, in the event loop's time; None while it takes writes."""
        ...

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` (must not block) each time the store is back; returns the function that ends it.

        The calls are spread over a second and a half, so that thousands of waits do not go on at once.
        """
        ...


class FeedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon says of one caller's feed; written at transitions only.

    ``live`` is to be believed only while ``daemon``'s heartbeat is there (`Fleet.alive`).
    """

    state: str
    daemon: str
    since_s: float
    error: str | None = None
    needs_credential: bool = False

    @property
    def live(self) -> bool:
        """Whether the socket was open and the backfill complete."""
        return self.state == "live"


class ActiveFeed(msgspec.Struct, frozen=True, kw_only=True):
    """An active caller as operators see it: when somebody asked last, whether a token is left, how its feed does."""

    caller: CallerKey
    asked_at_s: float
    has_token: bool
    report: FeedReport | None


class Activation(msgspec.Struct, frozen=True, kw_only=True):
    """A caller somebody waits for. The token is there only when it can be unsealed and has not expired."""

    caller: CallerKey
    address: str
    api_url: str
    asked_at_s: float
    token: str | None = None
    token_expires_at_s: float = 0.0


class Activations(Protocol):
    """Which callers are active, with what credential, and how their feeds do."""

    async def activate(
        self, caller: CallerKey, *, address: str, api_url: str, token: str | None, token_expires_at_s: float
    ) -> None:
        """Mark the caller active now, leave the token for its feed (sealed at rest), wake the daemons.

        Without a token the one left before stays. Wakes only where there is something to do: the caller was not active,
        the token is another one, or no feed reported itself live.
        """
        ...

    async def get(self, caller: CallerKey) -> Activation | None:
        """The caller's activation, or None where it is not active (any more)."""
        ...

    async def active(self) -> Sequence[CallerKey]:
        """All active callers."""
        ...

    async def count(self) -> int:
        """How many callers are active."""
        ...

    async def retire(self, caller: CallerKey, *, unless_asked_since_s: float | None = None) -> bool:
        """End the activation (idle or forgotten); the ledger stays. Drops what its feed reported, too.

        Does nothing, and returns False, where somebody asked after ``unless_asked_since_s`` (an ``asked_at_s``).
        """
        ...

    async def report(self, caller: CallerKey, report: FeedReport) -> None:
        """A feed's daemon says how it does."""
        ...

    async def feed(self, caller: CallerKey) -> FeedReport | None:
        """The last report of the caller's feed."""
        ...

    async def settled(self, callers: Sequence[CallerKey]) -> Sequence[bool]:
        """Whether each caller's feed reported itself live and asks for nothing; cheap for many callers at once."""
        ...

    async def feeds(self, *, limit: int) -> Sequence[ActiveFeed]:
        """At most ``limit`` active callers, for operators; a picture, not a transaction."""
        ...

    def listen(
        self, wake: Callable[[CallerKey], None], *, again: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call ``wake`` for each caller that is activated; a hint that may be lost.

        ``again`` is called when the connection to the store came back: hints were lost meanwhile, and a store that
        failed over may have lost the last word on a feed, or hold an old one.
        """
        ...


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A live daemon: ``id`` is unique per process start; ``load`` is how many feeds it runs.

    ``host_lost_at_s`` is since when the host has not answered it (POSIX seconds), ``host_error`` the reason in words.
    """

    id: str
    name: str
    since_s: float
    load: int = 0
    draining: bool = False
    host_lost_at_s: float | None = None
    host_error: str | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a caller's socket. ``epoch`` grows with each change of hands."""

    caller: CallerKey
    daemon: str
    epoch: int


class Fleet(Protocol):
    """Which daemons live and who holds which caller. A lease is good while its holder's heartbeat is."""

    async def beat(self, member: Member) -> None:
        """Renew the heartbeat; it expires after the configured TTL."""
        ...

    async def leave(self, member_id: str) -> None:
        """Drop the heartbeat at once."""
        ...

    async def members(self) -> Sequence[Member]:
        """The live daemons, ordered by id."""
        ...

    async def take(
        self, callers: Sequence[CallerKey], daemon: str, *, over: Mapping[CallerKey, str]
    ) -> Mapping[CallerKey, Lease]:
        """Take leases that are free or ours, whose holder is dead, or whose holder is the one ``over`` names.

        Returns, for every caller, the lease as it stands afterwards.
        """
        ...

    async def holders(self, callers: Sequence[CallerKey]) -> Mapping[CallerKey, Lease]:
        """The leases of those of the callers that are held, be the holder alive or dead. Changes nothing."""
        ...

    async def release(self, callers: Sequence[CallerKey], daemon: str) -> None:
        """Give up leases; those of others are untouched."""
        ...

    async def reserve_connects(self, count: int, *, per_s: float, within_s: float) -> ConnectSlots:
        """Reserve up to ``count`` moments to open a socket, all within ``within_s``; daemons share ``per_s``."""
        ...

    async def sweep(self) -> int:
        """Forget the leases of dead daemons, which are free anyway; how many there were."""
        ...


class Versioned(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value and its version (0: nothing stored)."""

    data: bytes
    version: int


class Documents(Protocol):
    """Small per-caller values changed by compare-and-set: subscriptions, idempotency records."""

    async def load(self, caller: CallerKey, kind: str, name: str) -> Versioned:
        """The value, or empty data with version 0."""
        ...

    async def store(self, caller: CallerKey, kind: str, name: str, data: bytes, *, expected: int, ttl_s: float) -> int:
        """Store if the version is still ``expected``. The version it has then; 0 where somebody was faster."""
        ...

    async def delete(self, caller: CallerKey, kind: str, name: str) -> bool:
        """Delete; whether there was one."""
        ...

    async def names(self, caller: CallerKey, kind: str) -> Sequence[str]:
        """The names stored for a caller, sorted."""
        ...


class DeferredTask(msgspec.Struct, frozen=True, kw_only=True):
    """Work left for a worker: ``kind`` (``delete_draft``, ``settle_send``), the message it is about, when it is due."""

    kind: str
    caller: CallerKey
    message_id: int
    due_s: float
    attempts: int = 0


class DeferredTasks(Protocol):
    """Work that outlives a request, done by the workers (on stdio by the process itself)."""

    async def add(self, task: DeferredTask) -> None:
        """Leave a task; adding it again changes nothing but its due time and attempts."""
        ...

    async def due(self, limit: int) -> Sequence[DeferredTask]:
        """Tasks whose time has come, the oldest first."""
        ...

    async def done(self, task: DeferredTask) -> None:
        """Forget a task."""
        ...

    async def depth(self) -> int:
        """How many tasks there are, due or not."""
        ...


class Store(Protocol):
    """Everything that outlives a request, from one place: `ledger.memory.MemoryStore` or `ledger.store.RedisStore`.

    An async context manager; while it is open, notifications are read.
    """

    @property
    def ledger(self) -> Ledger:
        """Arrivals of every caller."""
        ...

    @property
    def notifications(self) -> Notifications:
        """Hints that a ledger grew."""
        ...

    @property
    def activations(self) -> Activations:
        """Which callers are active."""
        ...

    @property
    def fleet(self) -> Fleet:
        """Which daemons live and who holds which caller."""
        ...

    @property
    def documents(self) -> Documents:
        """Small values changed by compare-and-set."""
        ...

    @property
    def deferred(self) -> DeferredTasks:
        """Work left for workers."""
        ...

    @property
    def availability(self) -> Availability:
        """Whether the store takes writes."""
        ...

    async def ping(self) -> None:
        """Write and read something. Raises `LedgerUnavailable`; then it is away, and back when this succeeds."""
        ...

    async def __aenter__(self) -> Self:
        """Open the store; does not fail where Redis is away, it may come later."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        ...
