"""The values a ledger keeps: references and headers, never content, never credentials."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal, NewType

import msgspec

CallerKey = NewType("CallerKey", str)
"""A hash of (API URL, the address as the token gives it): the only form of a caller in Redis keys, metrics, logs."""

Source = Literal["snapshot", "push", "backfill", "reconcile", "poll"]
"""How an arrival was found. ``snapshot``: it was there when the ledger began; its place in the order is an estimate."""

IMAGE_ENTRIES = 32
"""Arrivals an `Image` keeps, some 100 bytes each. Held waits need the newest only. An agent that comes back with a
position needs its message in the ledger; those further back are found through the host's list."""
IMAGE_UNVERIFIED = 256
"""It keeps so many where they are not verified yet: without them, a comparison would take them for news again."""

MAX_LATE = 100
"""Trimmed entries of which a ledger remembers that they were late, some 40 bytes each; the oldest are forgotten."""

_DAY_S = 86_400.0
_MAX_PART = 2**64 - 1
_STREAM_ID = re.compile(r"(\d{1,20})-(\d{1,20})")


def caller_key(api_url: str, address: str) -> CallerKey:
    """The key of a caller at a host: 32 hexadecimal digits.

    ``address`` is the token's ``sub``. It is lower-cased as hosts do and never folded further: two addresses that a
    wider folding joins (``ß`` and ``ss``, two forms of sigma, a ligature) are two mailboxes, and share nothing.
    """
    digest = hashlib.sha256(f"{api_url.rstrip('/')}\0{address.lower()}".encode())
    return CallerKey(digest.hexdigest()[:32])


class StreamId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The id of an entry of a ledger, and so a position in it.

    ``ms`` is when the entry arrived by the ledger's clock, in milliseconds since 1970; ``seq`` tells apart what arrived
    within one. Ids grow with each entry. As text: ``ms-seq``, as Redis writes it.
    """

    ms: int = 0
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """The id in its text. Raises `ValueError`."""
        found = _STREAM_ID.fullmatch(text)
        if found is None:
            raise ValueError("a stream id is two numbers with a hyphen between them")
        ms, seq = int(found[1]), int(found[2])
        if max(ms, seq) > _MAX_PART:
            raise ValueError("a part of a stream id is above 2^64-1")
        return cls(ms, seq)

    @property
    def time_s(self) -> float:
        """When the entry arrived, in seconds, cut to the millisecond."""
        return self.ms / 1000.0

    def before(self) -> StreamId:
        """The id right below: reading after it begins with the entry that has this id."""
        if self.seq:
            return StreamId(self.ms, self.seq - 1)
        return StreamId(self.ms - 1, _MAX_PART) if self.ms else self

    def following(self, now_ms: int) -> StreamId:
        """The id of the next entry, where this is the last one."""
        return StreamId(now_ms, 0) if now_ms > self.ms else StreamId(self.ms, self.seq + 1)


START = StreamId()
"""Before every entry."""
END = StreamId(_MAX_PART, _MAX_PART)
"""Behind every entry."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A message seen as available to a caller, before the ledger gave it a place.

    ``root`` is 0 while unknown. ``sent_at_s`` is when it became available by the host's clock
    (`fmsg.message.available_at_s`).
    """

    id: int
    pid: int | None
    root: int
    from_: str
    no_reply: bool = False
    reaction: bool = False
    terminal: bool = False
    sent_at_s: float = 0.0


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a ledger. ``at`` is its id there: its place in the order, and when it arrived.

    ``returned``: an earlier call returned it above its position, as the ledger remembered when this was read.
    """

    at: StreamId
    id: int
    pid: int | None
    root: int
    from_: str
    no_reply: bool = False
    reaction: bool = False
    terminal: bool = False
    sent_at_s: float = 0.0
    source: Source = "push"
    returned: bool = False

    @property
    def arrived_at_s(self) -> float:
        """When it arrived by the ledger's clock, in seconds, cut to the millisecond."""
        return self.at.ms / 1000.0

    @classmethod
    def of(cls, seen: Seen, at: StreamId, source: Source) -> Arrival:
        """A message as the entry it becomes."""
        fields = {name: getattr(seen, name) for name in Seen.__struct_fields__}
        return cls(at=at, source=source, **fields)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What was there before the ledger: ids up to ``newest_id``, times up to ``time_s`` (host's clock) are old news."""

    newest_id: int = 0
    time_s: float = 0.0

    def covers(self, seen: Seen) -> bool:
        """Whether a message that the ledger does not know was there before, or was forgotten."""
        return seen.id <= self.newest_id and seen.sent_at_s <= self.time_s

    def past(self, entry: Seen | Arrival) -> Baseline:
        """The baseline moved past a message."""
        return Baseline(newest_id=max(self.newest_id, entry.id), time_s=max(self.time_s, entry.sent_at_s))

    def joined(self, other: Baseline) -> Baseline:
        """What both cover, and what lies between."""
        return Baseline(newest_id=max(self.newest_id, other.newest_id), time_s=max(self.time_s, other.time_s))


class Head(msgspec.Struct, frozen=True):
    """A place in one life of a ledger: behind the entry with the id ``last``, or before all."""

    epoch: str = ""
    last: StreamId = START


class LedgerState(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger at one moment.

    ``epoch`` names this life of the ledger. ``last`` is the id of its newest entry, `START` where it never had one.
    ``low`` is the low watermark: entries up to this id were trimmed, and a reader before it has missed some.
    ``held`` is how many entries it holds. ``now_s`` is its clock, cut to the millisecond as arrival times are.

    ``baseline`` covers what was there before the ledger and what it trimmed. ``settled`` is the part of it that is
    certainly old news; both differ only while trimmed messages are remembered by their ids (`ledger.memory`).
    ``verified_id`` is the verified watermark: everything available up to this message id is in the ledger or old news.
    """

    epoch: str
    last: StreamId
    low: StreamId
    baseline: Baseline
    settled: Baseline
    held: int
    now_s: float
    verified_id: int = 0

    @property
    def head(self) -> Head:
        """Where the ledger ends."""
        return Head(self.epoch, self.last)

    def verifies(self, entry: Arrival) -> bool:
        """Whether a baseline may move past an entry without hiding what is missing or becomes available later."""
        return entry.id <= self.verified_id and entry.sent_at_s <= entry.arrived_at_s


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a comparison: those of the listed ids that are news, and the ledger's state at that moment."""

    news: frozenset[int]
    state: LedgerState


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a read: entries in order, and the ledger's state at that moment."""

    entries: tuple[Arrival, ...]
    state: LedgerState


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a search by message id, and the ledger's state at that moment.

    ``entries``: those that the ledger holds. ``handed_out``: those of the ids that this life of the ledger returned as
    a position. ``returned``: those that an earlier call returned above its position. Both whether the ledger holds the
    message or has trimmed it.
    """

    entries: Mapping[int, Arrival]
    handed_out: frozenset[int]
    returned: frozenset[int]
    state: LedgerState


class Late(msgspec.Struct, frozen=True):
    """A trimmed entry that was recorded after one with a higher id: where it stood among the others.

    ``top_id`` is the highest id recorded before it.
    """

    id: int
    top_id: int
    at: StreamId


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an append: the new entries in order, how many were there already, and the state afterwards.

    ``before`` is the id of the entry in front of the new ones.
    """

    new: tuple[Arrival, ...]
    duplicates: int
    before: StreamId
    state: LedgerState


class Image(msgspec.Struct, frozen=True):
    """The end of a ledger, kept outside the store by the daemon that holds the feed (`ledger.port.Ledger.restore`).

    Begin with `ledger.catch_up.read_image`, go on with `grown` after each append. It holds the newest `IMAGE_ENTRIES`
    arrivals, packed; what it lets go moves its baseline and its low watermark, as trimming does.
    """

    state: LedgerState
    packed: tuple[bytes, ...]

    @classmethod
    def of(cls, tail: Slice, *, whole: bool) -> Image:
        """The image of a ledger whose newest entries were read; ``whole``: there were no others."""
        low = tail.state.low if whole or not tail.entries else tail.entries[0].at.before()
        return cls(msgspec.structs.replace(tail.state, low=low), ()).joined(tail.entries, tail.state)

    def grown(self, appended: Appended) -> Image | None:
        """After an append. None where others appended in between: then read on after ``image.state.last``."""
        if appended.before != self.state.last or appended.state.epoch != self.state.epoch:
            return None
        return self.joined(appended.new, appended.state)

    def joined(self, entries: Iterable[Arrival], state: LedgerState) -> Image:
        """With the entries that follow, up to the last of that state."""
        packed = deque((*self.packed, *map(_pack, entries)))
        low, settled = max(self.state.low, state.low), self.state.settled.joined(state.settled)
        while len(packed) > IMAGE_ENTRIES:
            oldest = _unpack(packed[0])
            if state.verifies(oldest):
                settled = settled.past(oldest)
            elif len(packed) <= IMAGE_UNVERIFIED:
                break
            low = max(low, oldest.at)
            packed.popleft()
        return Image(msgspec.structs.replace(state, low=low, settled=settled, baseline=settled), tuple(packed))

    @property
    def entries(self) -> tuple[Arrival, ...]:
        """The arrivals, oldest first; the last one is the ledger's."""
        return tuple(map(_unpack, self.packed))


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    at: StreamId
    id: int
    pid: int | None
    root: int
    from_: str
    no_reply: bool
    reaction: bool
    terminal: bool
    sent_at_s: float
    source: Source


def _pack(entry: Arrival) -> bytes:
    return msgspec.msgpack.encode(_Packed(*(getattr(entry, name) for name in _Packed.__struct_fields__)))


def _unpack(data: bytes) -> Arrival:
    packed = msgspec.msgpack.decode(data, type=_Packed)
    return Arrival(**{name: getattr(packed, name) for name in _Packed.__struct_fields__})


class LedgerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and lifetimes of everything a store keeps. Times are in seconds."""

    max_entries: int = 1000
    """Entries a ledger holds before it trims, some 170 bytes each. Readers further behind go to the host."""

    max_gone: int = 2000
    """Trimmed messages remembered by id, some 100 bytes each, until the list was compared below them (`ledger.memory`).
    There are some only where more than ``max_entries`` arrive between two comparisons, or a sender's clock is ahead.
    Beyond so many, messages that were missed before them are given up."""

    ttl_s: float = 30 * _DAY_S
    """A ledger that nothing was appended to and nothing returned from for so long is dropped; the next request begins
    anew."""

    returned_ttl_s: float = _DAY_S
    """How long it is remembered which ids were returned above a position, and which positions were handed out."""

    max_marks: int = 1000
    """Such marks kept per caller, 100 bytes each; the oldest go first. As many as a ledger has entries is enough."""

    activation_ttl_s: float = 2 * _DAY_S
    """How long an activation may outlive the last request. Longer than any idle time after which feeds stop, since a
    feed that is forgotten here stops without being told."""

    heartbeat_ttl_s: float = 10.0
    """A daemon silent for so long is dead and its callers go to others. Three missed beats at one every 3 s."""

    presence_ttl_s: float = 3600.0
    """How long operators are reminded of a process that fell silent without saying that it ends."""

    feed_ttl_s: float = 2 * _DAY_S
    """How long the last word about a feed is kept; as long as the activation it is about."""

    lease_ttl_s: float = 2 * _DAY_S
    """Only for cleaning up: a lease is good while its holder's heartbeat is, whatever its own age."""

    deferred_ttl_s: float = 7 * _DAY_S
    """Deferred tasks left undone for a week are dropped: the host has cleaned up its drafts by then."""

    def __post_init__(self) -> None:
        if self.max_entries < 1:
            raise ValueError(f"max_entries: {self.max_entries} is less than 1. A ledger must hold at least one entry.")
        if self.max_gone < 0:
            raise ValueError(f"max_gone: {self.max_gone} is negative. Say 0 to remember nothing that was trimmed.")
