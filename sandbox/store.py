"""What a host keeps: messages in memory, indexed for the routes, and a file in which they survive a restart."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from sandbox.records import Batch, Record, batch_hash, compressed_bytes, lowered, message_hash
from sandbox.wire import RouteRefused

MAX_ID = 2**63 - 1
"""Ids are positive signed 64-bit integers (FMSG-003)."""

Kind = Literal["message", "account", "key", "fact"]
"""What a journal keeps."""

Kept = TypeVar("Kept")

_SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=OFF;
CREATE TABLE IF NOT EXISTS kept (kind TEXT NOT NULL, key NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key));
"""

_ID_BLOCK = 1000
"""Ids are reserved in the journal in blocks: one write per thousand messages, and a restart reuses none."""


class Mailbox(msgspec.Struct):
    """Ids of one address, ascending. ``shown`` is ``received`` plus the drafts that name the address."""

    received: list[int] = msgspec.field(default_factory=list)
    shown: list[int] = msgspec.field(default_factory=list)
    sent: list[int] = msgspec.field(default_factory=list)


class HostRecords:
    """Messages by id and by hash, and mailboxes by address in lower case."""

    def __init__(self, *, clock: Callable[[], float], journal: Journal | None = None) -> None:
        self.journal = journal or Journal()
        self.messages: dict[int, Record] = {}
        """Everything stored, by id."""
        self.by_hash: dict[str, int] = {}
        """Message id by the message's sha256."""
        self.by_batch_hash: dict[str, tuple[int, Batch]] = {}
        """Message id and batch by the batch's sha256."""
        self._mailboxes: dict[str, Mailbox] = {}
        self._clock = clock
        self._last_stamp_s = 0.0
        self._next_id = 1
        self._reserved_id = 0
        self._next_batch_id = 1

    @property
    def next_id(self) -> int:
        """The id the next draft or arrival gets."""
        return self._next_id

    def set_next_id(self, next_id: int) -> None:
        """Continue numbering at ``next_id`` (1 … 2^63-1)."""
        if not 1 <= next_id <= MAX_ID:
            raise ValueError(f"next id {next_id} is outside 1 … 2^63-1")
        self._next_id = next_id
        self._reserve()

    def set_next_batch_id(self, next_batch_id: int) -> None:
        """Continue numbering batches at ``next_batch_id``."""
        self._next_batch_id = next_batch_id

    def take_id(self) -> int:
        """A fresh id. A deleted draft's id does not come back."""
        if self._next_id > MAX_ID:
            raise RouteRefused(500, "failed to create message")
        taken = self._next_id
        self._next_id += 1
        if taken > self._reserved_id:
            self._reserve()
        return taken

    def take_batch_id(self) -> int:
        """A fresh batch id."""
        taken = self._next_batch_id
        self._next_batch_id += 1
        return taken

    def _reserve(self) -> None:
        self._reserved_id = min(self._next_id + _ID_BLOCK, MAX_ID)
        self.journal.save("fact", "next_id", str(self._reserved_id + 1))

    def stamp(self, *, after: Record | None = None) -> float:
        """The time now, POSIX seconds with microseconds, later than every stamp before and than the message ``after``.

        A message is never dated before what it is built on, whatever the clocks of two hosts say.
        """
        past_s = max(self._last_stamp_s, (after.time_s or 0.0) if after is not None else 0.0)
        self._last_stamp_s = max(round(self._clock(), 6), round(past_s + 1e-6, 6))
        return self._last_stamp_s

    def mailbox(self, address: str) -> Mailbox:
        """The mailbox of an address, empty where nothing came yet."""
        lower = lowered(address)
        found = self._mailboxes.get(lower)
        if found is None:
            found = self._mailboxes[lower] = Mailbox()
        return found

    def add_draft(self, record: Record) -> None:
        """Store a new draft."""
        self.messages[record.id] = record
        _insert(self.mailbox(record.from_).sent, record.id)
        for recipient in record.recipients():
            _insert(self.mailbox(recipient.addr).shown, record.id)
        self.journal.save("message", record.id, record)

    def drop_draft(self, record: Record) -> None:
        """Drop a draft."""
        del self.messages[record.id]
        _remove(self.mailbox(record.from_).sent, record.id)
        for recipient in record.recipients():
            _remove(self.mailbox(recipient.addr).shown, record.id)
        self.journal.drop("message", record.id)

    def publish(self, record: Record, time_s: float) -> None:
        """Turn a draft into a message: give it its time and hashes and list it for its recipients."""
        record.time_s = time_s
        record.wire_bytes = compressed_bytes(record.type, record.data)
        record.sha256 = message_hash(record)
        for batch in record.add_to:
            batch.time_s = time_s
            batch.sha256 = batch_hash(record.sha256, batch)
        self.index(record)
        self.journal.save("message", record.id, record)

    def index(self, record: Record) -> None:
        """Make a message findable by id, hash, sender and the recipients it was not refused for; may be repeated."""
        self.messages[record.id] = record
        _insert(self.mailbox(record.from_).sent, record.id)
        for recipient in record.recipients():
            mailbox = self.mailbox(recipient.addr)
            if not record.reaches(recipient):
                _remove(mailbox.shown, record.id)
                continue
            _insert(mailbox.shown, record.id)
            if not record.is_draft:
                _insert(mailbox.received, record.id)
        if record.sha256 is not None:
            self.by_hash[record.sha256] = record.id
        for batch in record.add_to:
            if batch.sha256 is not None:
                self.by_batch_hash[batch.sha256] = (record.id, batch)

    def load(self, records: Iterable[Record], facts: dict[str, str]) -> None:
        """Take over what a journal kept."""
        for record in records:
            self.index(record)
            self._next_id = max(self._next_id, record.id + 1)
            self._last_stamp_s = max(self._last_stamp_s, record.time_s or 0.0)
            for batch in record.add_to:
                self._next_batch_id = max(self._next_batch_id, batch.batch_id + 1)
        self._next_id = int(facts.get("next_id", self._next_id))

    def save(self, record: Record) -> None:
        """Keep what changed in a message."""
        self.journal.save("message", record.id, record)


def page(ids: list[int], *, limit: int, offset: int) -> list[int]:
    """A page of ascending ids, newest first; costs the page."""
    end = len(ids) - offset
    if end <= 0:
        return []
    return ids[max(0, end - limit) : end][::-1]


def _insert(ids: list[int], new: int) -> None:
    if not ids or new > ids[-1]:
        ids.append(new)
    elif ids[bisect_left(ids, new)] != new:
        insort(ids, new)


def _remove(ids: list[int], old: int) -> None:
    at = bisect_left(ids, old)
    if at < len(ids) and ids[at] == old:
        del ids[at]


class Journal:
    """Where a host's records survive a restart: in an SQLite file that every change is written to, or nowhere.

    Without fsync: a sandbox has to survive the end of its process, not a power cut, and take hundreds of messages a
    second.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._db = None if path is None else sqlite3.connect(path, isolation_level=None)
        if self._db is not None:
            self._db.executescript(_SCHEMA)

    def save(self, kind: Kind, key: int | str, value: object) -> None:
        """Insert or replace a record of a kind."""
        if self._db is not None:
            row = (kind, key, msgspec.msgpack.encode(value))
            self._db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", row)

    def drop(self, kind: Kind, key: int | str) -> None:
        """Drop a record."""
        if self._db is not None:
            self._db.execute("DELETE FROM kept WHERE kind = ? AND key = ?", (kind, key))

    def load(self, kind: Kind, type_: type[Kept]) -> dict[Any, Kept]:
        """All records of a kind by key, in the order of the keys."""
        if self._db is None:
            return {}
        decode = msgspec.msgpack.Decoder(type_).decode
        rows = self._db.execute("SELECT key, value FROM kept WHERE kind = ? ORDER BY key", (kind,))
        return {key: decode(value) for key, value in rows}

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
