"""Ledgers in Redis. Each operation is one Lua script over the keys of one caller, so it happens whole or not at all.

Keys, all with the caller's hash tag and a TTL::

    <prefix>:{caller}:meta   hash: epoch, last offset, last seed's offset, baselines, clock, what came out of order, and
                             up to which id nothing is missing
    <prefix>:{caller}:log    list of entries, oldest first (`ledger.redis.entry`)
    <prefix>:{caller}:ids    list of their ids, in step with it
    <prefix>:{caller}:gone   hash: trimmed id → when it was sent, until that is proven old news (`ledger.book`)
    <prefix>:{caller}:ret    sorted set of marks by expiry: p<id> handed out as a position, r<id> returned above one

An offset is not stored: the entry at index i of a log of k entries that ends at offset n has offset n - k + 1 + i.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ledger.limits import MAX_LATECOMERS, LedgerLimits
from ledger.memory import count_append, no_ledger_text, stale_text
from ledger.port import NoLedger, StaleEpoch
from ledger.redis import entry
from ledger.redis.lua_ledger import (
    append,
    begin,
    compare,
    forget,
    heads,
    locate,
    note_returned,
    out_of_order,
    read,
    read_back,
    returned,
    set_roots,
    state,
)
from ledger.redis.notifications import BELL
from ledger.redis.scripts import Key, Scripts
from ledger.redis.topology import Topology
from ledger.values import (
    Appended,
    Arrival,
    Baseline,
    CallerKey,
    Compared,
    Head,
    Latecomer,
    LedgerState,
    OutOfOrder,
    Place,
    Seen,
    Slice,
    Source,
)

HEADS_AT_ONCE = 250
"""Ledgers whose heads are read by one script: half a millisecond during which Redis does nothing else."""


class RedisLedger:
    """See `ledger.port.Ledger`."""

    def __init__(
        self,
        scripts: Scripts,
        topology: Topology,
        *,
        limits: LedgerLimits | None = None,
        new_epoch: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._scripts = scripts
        self._topology = topology
        self._limits = limits or LedgerLimits()
        self._new_epoch = new_epoch
        self._bell = topology.channel(BELL)
        self._ttl_ms = _millis(self._limits.ttl_s)
        self._marks_ttl_ms = _millis(self._limits.returned_ttl_s)

    async def state(self, caller: CallerKey) -> LedgerState | None:
        """See `ledger.port.Ledger`."""
        reply = await state(self._scripts, **self._book(caller))
        return None if reply is None else _state(reply)

    async def heads(self, callers: Sequence[CallerKey]) -> Sequence[Head | None]:
        """See `ledger.port.Ledger`."""
        at_once = HEADS_AT_ONCE if self._topology.keys_mix else 1
        parts = [callers[start : start + at_once] for start in range(0, len(callers), at_once)]
        return [head for part in await asyncio.gather(*map(self._heads, parts)) for head in part]

    async def _heads(self, callers: Sequence[CallerKey]) -> list[Head | None]:
        keys = [self._key(caller, part) for caller in callers for part in ("meta", "log")]
        reply = await heads(self._scripts, meta=keys[0], keys=keys)
        return [
            None if epoch is None or last is None else Head(epoch.decode(), int(last), entry.unpack_tip(tip or b""))
            for epoch, last, tip in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        ]

    async def begin(self, caller: CallerKey, seeds: Sequence[Seen], baseline: Baseline) -> LedgerState:
        """See `ledger.port.Ledger`."""
        words: list[str | bytes] = []
        for seed in seeds:
            words += [str(seed.id), str(entry.micros(seed.sent_at_s)), entry.pack(seed, "seed")]
        reply = await begin(
            self._scripts,
            **self._book(caller),
            marks=self._key(caller, "ret"),
            ttl_ms=self._ttl_ms,
            max_entries=self._limits.max_entries,
            max_late=MAX_LATECOMERS,
            max_gone=self._limits.max_gone,
            epoch=self._new_epoch(),
            base_id=str(baseline.newest_id),
            base_time=entry.pack_time(baseline.time_s),
            seeds=words,
        )
        return _state(_there(reply, caller))

    async def compare(self, caller: CallerKey, listed: Sequence[Seen], *, since: LedgerState | None = None) -> Compared:
        """See `ledger.port.Ledger`."""
        words: list[str | bytes] = []
        for one in listed:
            words += [str(one.id), entry.pack_time(one.sent_at_s)]
        epoch, n, tip = _witness(since)
        reply = await compare(self._scripts, **self._book(caller), epoch=epoch, n=n, tip=tip, listed=words)
        status, news = _there(reply, caller)
        return Compared(news=frozenset(map(int, news)), state=_state(status))

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
        words: list[str | bytes] = []
        for one in seen:
            words += [str(one.id), entry.pack(one, source)]
        epoch, n, tip = _witness(since)
        reply = await append(
            self._scripts,
            **self._book(caller),
            ttl_ms=self._ttl_ms,
            max_entries=self._limits.max_entries,
            max_late=MAX_LATECOMERS,
            max_gone=self._limits.max_gone,
            channel=self._bell,
            caller=caller,
            complete_id=str(complete_id),
            epoch=epoch,
            n=n,
            tip=tip,
            entries=words,
        )
        status, new = _there(reply, caller)
        ids = [int(id_) for id_ in new]
        ledger = _state(status)
        first = ledger.last_n - len(ids) + 1
        count_append(source, new=len(ids), duplicates=len(seen) - len(ids))
        return Appended(
            new=tuple((id_, first + at) for at, id_ in enumerate(ids)), duplicates=len(seen) - len(ids), state=ledger
        )

    async def read(self, caller: CallerKey, after_n: int, limit: int, *, since: LedgerState | None = None) -> Slice:
        """See `ledger.port.Ledger`."""
        epoch, n, tip = _witness(since)
        reply = await read(
            self._scripts,
            **self._book(caller),
            after_n=max(after_n, 0),
            limit=max(limit, 0),
            epoch=epoch,
            n=n,
            tip=tip,
        )
        return _slice(_there(reply, caller))

    async def read_back(self, caller: CallerKey, before_n: int, limit: int) -> Slice:
        """See `ledger.port.Ledger`."""
        reply = await read_back(self._scripts, **self._book(caller), before_n=max(before_n, 0), limit=max(limit, 0))
        return _slice(_there(reply, caller))

    async def locate(self, caller: CallerKey, message_ids: Sequence[int]) -> Mapping[int, Place]:
        """See `ledger.port.Ledger`."""
        words = [str(id_) for id_ in message_ids]
        reply = await locate(
            self._scripts,
            **self._book(caller),
            marks=self._key(caller, "ret"),
            marks_ttl_ms=self._marks_ttl_ms,
            wanted=words,
        )
        found: list[Any] = _there(reply, caller)
        return {
            id_: Place(n=n, handed_out=bool(handed_out))
            for id_, n, handed_out in zip(message_ids, found[::2], found[1::2], strict=True)
            if n
        }

    async def set_roots(self, caller: CallerKey, roots: Mapping[int, int]) -> None:
        """See `ledger.port.Ledger`."""
        words: list[str | bytes] = []
        for message_id, root in roots.items():
            words += [str(message_id), entry.pack_root(root)]
        reply = await set_roots(
            self._scripts,
            **self._book(caller),
            ttl_ms=self._ttl_ms,
            channel=self._bell,
            caller=caller,
            roots=words,
        )
        _there(reply, caller)

    async def note_returned(
        self, caller: CallerKey, *, above: Iterable[int], position: int, epoch: str = "", n: int = 0
    ) -> None:
        """See `ledger.port.Ledger`."""
        await note_returned(
            self._scripts,
            **self._book(caller),
            marks=self._key(caller, "ret"),
            ttl_ms=self._ttl_ms,
            marks_ttl_ms=self._marks_ttl_ms,
            max_marks=self._limits.max_marks,
            position=str(position),
            epoch=epoch,
            n=n,
            above_ids=[str(id_) for id_ in above],
        )

    async def returned(self, caller: CallerKey, message_ids: Sequence[int]) -> frozenset[int]:
        """See `ledger.port.Ledger`."""
        if not message_ids:
            return frozenset()
        reply = await returned(
            self._scripts, marks=self._key(caller, "ret"), members=[f"r{id_}" for id_ in message_ids]
        )
        return frozenset(id_ for id_, marked in zip(message_ids, reply or (), strict=False) if marked)

    async def out_of_order(self, caller: CallerKey, positions: Sequence[int] = ()) -> OutOfOrder:
        """See `ledger.port.Ledger`."""
        reply = await out_of_order(
            self._scripts,
            **self._book(caller),
            marks=self._key(caller, "ret"),
            members=[f"p{id_}" for id_ in positions],
        )
        began_id, began_time, late, marked = _there(reply, caller)
        latecomers = [record.split(b":") for record in (late or b"").split()]
        return OutOfOrder(
            began=Baseline(newest_id=int(began_id), time_s=entry.unpack_time(began_time)),
            latecomers=tuple(Latecomer(n=int(n), id=int(id_), top_id=int(top)) for n, id_, top in latecomers),
            handed_out=frozenset(id_ for id_, there in zip(positions, marked, strict=True) if there),
        )

    async def forget(self, caller: CallerKey) -> None:
        """See `ledger.port.Ledger`."""
        await forget(self._scripts, **self._book(caller), marks=self._key(caller, "ret"))

    def _book(self, caller: CallerKey) -> dict[str, Key]:
        return {part: self._key(caller, part) for part in ("meta", "log", "ids", "gone")}

    def _key(self, caller: CallerKey, part: str) -> Key:
        return self._topology.key(caller, part)


def _there(reply: list[Any] | int | None, caller: CallerKey) -> list[Any]:
    if reply is None:
        raise NoLedger(no_ledger_text(caller))
    if isinstance(reply, int):
        raise StaleEpoch(stale_text(caller))
    return reply


def _witness(since: LedgerState | None) -> tuple[str, int, bytes]:
    """What a script tells by whether the ledger is still the one that stood so."""
    return ("", 0, b"") if since is None else (since.epoch, since.last_n, entry.pack_tip(since.tip))


def _state(reply: list[Any]) -> LedgerState:
    epoch, first_n, last_n, seed_n, base_id, base_time, now_us, complete_id, tip = reply
    return LedgerState(
        epoch=epoch.decode(),
        first_n=first_n,
        last_n=last_n,
        seed_n=seed_n,
        baseline=Baseline(newest_id=int(base_id), time_s=entry.unpack_time(base_time)),
        now_s=int(now_us) / 1e6,
        complete_id=int(complete_id),
        tip=entry.unpack_tip(tip),
    )


def _slice(reply: list[Any]) -> Slice:
    status, first_n, ids, entries = reply
    arrivals: list[Arrival] = [
        entry.unpack(data, n=n, message_id=int(id_))
        for n, (id_, data) in enumerate(zip(ids, entries, strict=True), first_n)
    ]
    return Slice(entries=tuple(arrivals), state=_state(status))


def _millis(seconds: float) -> int:
    return max(1, round(seconds * 1000))
