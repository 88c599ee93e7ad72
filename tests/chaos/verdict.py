"""What every reader should have been given, what it was given, and where the two differ. Plain values, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

Kind = Literal["plain", "acknowledging", "shared", "forgetful"]
"""``plain``: passes ``after_id``. The others use a subscription: one consumer that acknowledges every result; two that
share it; one that forgets its ``after_id`` now and then, as an agent does that was restarted."""

FLUSH = "redis_flush"
"""The fault after which the store has forgotten what was returned."""
FORGETTING = frozenset({FLUSH, "redis_failover"})
"""The faults with which the store forgets what was returned, all of it or the last. A store that was only away excuses
no duplicate."""
AFTERMATH_S = 5.0
"""A message sent so soon after a fault is put down to it, and a front leaves a failed store alone for about so long."""

USUAL_S = 4.0
"""What a settle window and a busy machine take; a fault that strikes later finds the message late already."""
OUTSTANDING_S = 120.0
"""A result whose answer was lost is given to the next consumer that shares the subscription within about a minute."""
SLOWEST = 8
"""Messages named in the end."""


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to get each message once: a consumer, or several that share a subscription."""

    name: str
    address: str
    kind: Kind
    from_: str | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the host lists it for an address in the end. Times in POSIX seconds."""

    id: int
    root: int
    from_: str
    available_at_s: float
    no_reply: bool = False
    reaction: bool = False


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a result. ``marked``: told as returned before. ``since_s``: calling without a pause since then."""

    reader: str
    id: int
    batch: int
    marked: bool
    since_s: float
    began_s: float
    at_s: float


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A fault from when to when."""

    kind: str
    start_s: float
    end_s: float

    def touches(self, start_s: float, end_s: float) -> bool:
        """Whether the two overlap, the fault's aftermath included."""
        return self.start_s <= end_s and start_s <= self.end_s + AFTERMATH_S


class Verdict(msgspec.Struct, kw_only=True):
    """The outcome. Lists hold (reader, message) or batches; what may be is counted, what must not be is listed."""

    expected: int = 0
    received: int = 0
    lost: list[tuple[str, int]] = []
    unmarked: list[tuple[str, int]] = []
    again: list[tuple[str, int]] = []
    """Given twice, marked, to one who acknowledges all it gets."""
    mixed: list[tuple[str, tuple[int, ...]]] = []
    foreign: list[tuple[str, int]] = []
    """Nothing the reader should get: its own, a reaction, ``no_reply``, another's."""
    marked: int = 0
    forgotten: int = 0
    """Never came, of a shared subscription, because Redis forgot that a lost answer was outstanding: its other consumer
    knows only where it stands itself."""
    after_flush: int = 0
    delays_s: list[float] = []
    """Of messages that no fault touched."""
    slowest: list[tuple[float, str, int, float]] = []
    """The longest delays: seconds, reader, message, when it became available."""
    worst_s: dict[str, float] = {}
    touched: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Whether nothing happened that must not."""
        return not (self.lost or self.unmarked or self.again or self.mixed or self.foreign)


def roots_of(pids: Mapping[int, int | None]) -> dict[int, int]:
    """The thread of every message, from what each replies to."""
    roots: dict[int, int] = {}
    for id_ in sorted(pids):
        at, path = id_, []
        while at not in roots and (pid := pids.get(at)) is not None:
            path.append(at)
            at = pid
        root = roots.get(at, at)
        roots.update(dict.fromkeys([*path, at], root))
    return roots


def expected(reader: Reader, listed: Mapping[int, Known]) -> set[int]:
    """What the reader should get of the messages listed for its address."""
    return {
        one.id
        for one in listed.values()
        if not one.no_reply
        and not one.reaction
        and one.from_ != reader.address
        and (reader.from_ is None or one.from_ == reader.from_)
    }


def missing(
    readers: Iterable[Reader], listed: Mapping[str, Mapping[int, Known]], receipts: Iterable[Receipt]
) -> list[tuple[str, int]]:
    """What is still to come."""
    got: dict[str, set[int]] = {}
    for receipt in receipts:
        got.setdefault(receipt.reader, set()).add(receipt.id)
    return [
        (reader.name, id_)
        for reader in readers
        for id_ in sorted(expected(reader, listed.get(reader.address, {})) - got.get(reader.name, set()))
    ]


def audit(
    readers: Sequence[Reader],
    listed: Mapping[str, Mapping[int, Known]],
    receipts: Sequence[Receipt],
    faults: Sequence[Interval] = (),
) -> Verdict:
    """Compare. ``receipts`` in the order in which they came."""
    by_name = {reader.name: reader for reader in readers}
    never = missing(readers, listed, receipts)
    forgotten = [(name, id_) for name, id_ in never if _forgotten(by_name[name], listed, id_, faults)]
    verdict = Verdict(lost=[one for one in never if one not in forgotten], forgotten=len(forgotten))
    wanted = {reader.name: expected(reader, listed.get(reader.address, {})) for reader in readers}
    verdict.expected = sum(len(ids) for ids in wanted.values())
    first: dict[tuple[str, int], Receipt] = {}
    batches: dict[tuple[str, int], list[int]] = {}
    for receipt in receipts:
        reader = by_name[receipt.reader]
        batches.setdefault((receipt.reader, receipt.batch), []).append(receipt.id)
        if receipt.id not in wanted[receipt.reader]:
            verdict.foreign.append((receipt.reader, receipt.id))
            continue
        before = first.setdefault((receipt.reader, receipt.id), receipt)
        if before is receipt:
            verdict.received += 1
            known = listed[reader.address][receipt.id]
            _time(verdict, known, receipt, faults)
        else:
            _repeated(verdict, reader, before, receipt, faults)
    for (name, _), ids in batches.items():
        known_here = listed[by_name[name].address]
        if len({known_here[id_].root for id_ in ids if id_ in known_here}) > 1:
            verdict.mixed.append((name, tuple(ids)))
    return verdict


def _forgotten(
    reader: Reader, listed: Mapping[str, Mapping[int, Known]], message_id: int, faults: Sequence[Interval]
) -> bool:
    at_s = listed[reader.address][message_id].available_at_s
    flushes = (one for one in faults if one.kind == FLUSH)
    return reader.kind == "shared" and any(at_s <= one.end_s and one.start_s <= at_s + OUTSTANDING_S for one in flushes)


def _repeated(verdict: Verdict, reader: Reader, before: Receipt, receipt: Receipt, faults: Sequence[Interval]) -> None:
    if receipt.marked and reader.kind != "acknowledging":
        verdict.marked += 1
    elif any(one.kind in FORGETTING and one.touches(before.began_s, receipt.at_s) for one in faults):
        verdict.after_flush += 1
    elif receipt.marked:
        verdict.again.append((receipt.reader, receipt.id))
    else:
        verdict.unmarked.append((receipt.reader, receipt.id))


def _time(verdict: Verdict, known: Known, receipt: Receipt, faults: Sequence[Interval]) -> None:
    delay_s = receipt.at_s - max(known.available_at_s, receipt.since_s)
    # What struck later struck a message that was late already.
    due_s = min(receipt.at_s, known.available_at_s + USUAL_S)
    kinds = {one.kind for one in faults if one.touches(known.available_at_s, due_s)}
    verdict.slowest = sorted(
        [*verdict.slowest, (delay_s, receipt.reader, receipt.id, known.available_at_s)], reverse=True
    )[:SLOWEST]
    for kind in kinds:
        verdict.touched[kind] += 1
        verdict.worst_s[kind] = max(verdict.worst_s.get(kind, 0.0), delay_s)
    if not kinds:
        verdict.delays_s.append(delay_s)
