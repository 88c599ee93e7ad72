"""The values a ledger keeps: references and headers, never content, never credentials."""

from __future__ import annotations

import hashlib
from typing import Literal, NewType

import msgspec

CallerKey = NewType("CallerKey", str)
"""A hash of (API URL, the address as the token gives it): the only form of a caller in Redis keys, metrics, logs."""

Source = Literal["seed", "push", "backfill", "reconcile", "poll"]
"""How an arrival was found. ``seed``: it was there when the ledger began, so its place in the order is an estimate."""


def caller_key(api_url: str, address: str) -> CallerKey:
    """The key of a caller at a host: 32 hexadecimal digits.

    ``address`` is the token's ``sub``. It is lower-cased as hosts do and never folded further: two addresses that a
    wider folding joins (``ß`` and ``ss``, two forms of sigma, a ligature) are two mailboxes, and share nothing.
    """
    digest = hashlib.sha256(f"{api_url.rstrip('/')}\0{address.lower()}".encode())
    return CallerKey(digest.hexdigest()[:32])


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A message seen as available to a caller, before the ledger gave it an offset.

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
    """One entry of a ledger: offset ``n`` (1, 2, 3 … without holes) and the ledger's own time of arrival."""

    n: int
    id: int
    pid: int | None
    root: int
    from_: str
    no_reply: bool = False
    reaction: bool = False
    terminal: bool = False
    sent_at_s: float = 0.0
    arrived_at_s: float = 0.0
    source: Source = "push"


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What was there before the ledger: ids up to ``newest_id`` and times up to ``time_s`` (host's clock) are old news.

    A listed message that the ledger does not hold is an arrival if its id is above ``newest_id`` or it became available
    after ``time_s``. What the ledger trims moves its baseline; what is missing `ledger.port.Ledger.compare` tells.
    """

    newest_id: int = 0
    time_s: float = 0.0


class Head(msgspec.Struct, frozen=True):
    """What changes with everything that is appended to a ledger, and with its life. Fields as of `LedgerState`."""

    epoch: str
    last_n: int
    tip: int


class LedgerState(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger at one moment.

    ``epoch`` names this life of the ledger; ``first_n`` … ``last_n`` are the offsets it still holds (``first_n ==
    last_n + 1`` when it holds none); offsets up to ``seed_n`` are seeds; ``now_s`` is the ledger's clock.

    ``complete_id``: when this mark passed an id, everything available with that id was in the ledger or old news; above
    it something may be missing. ``tip`` is when the newest entry arrived, in µs: a ledger that lost its tail, to a
    failover, and grew again has another entry at ``last_n`` (`ledger.port.Ledger.append`).
    """

    epoch: str
    first_n: int
    last_n: int
    seed_n: int
    baseline: Baseline
    now_s: float
    complete_id: int = 0
    tip: int = 0

    @property
    def head(self) -> Head:
        """Where the ledger ends."""
        return Head(self.epoch, self.last_n, self.tip)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a comparison: those of the listed ids that are news, and the ledger's state at that moment."""

    news: frozenset[int]
    state: LedgerState


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a read: entries in order after the asked offset, and the ledger's state at that moment."""

    entries: tuple[Arrival, ...]
    state: LedgerState


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message stands in a ledger. ``handed_out``: this epoch returned it as a position."""

    n: int
    handed_out: bool


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an append: the new ids with their offsets, in order, and how many were there already."""

    new: tuple[tuple[int, int], ...]
    duplicates: int
    state: LedgerState


class Latecomer(msgspec.Struct, frozen=True, kw_only=True):
    """A message recorded after one with a higher id: at offset ``n``, when ``top_id`` was the highest so far."""

    n: int
    id: int
    top_id: int


class OutOfOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How the order of a ledger differs from the order of ids, for readers behind what it still holds.

    ``began`` is the baseline the ledger began with. A recorded message that is no latecomer was recorded before all
    that have a higher id. What was trimmed is named, too; of very many latecomers only the newest are. ``handed_out``:
    those of the ids asked for that this epoch returned as a position, whether it still holds them or not.
    """

    began: Baseline
    latecomers: tuple[Latecomer, ...]
    handed_out: frozenset[int] = frozenset()
