"""Where a host's records survive a restart: nowhere, or in an SQLite file that every change is written through to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from sandbox.records import Account, ApiKey, Record

_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS accounts (addr TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS keys (key_id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

_encode = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(Record).decode
_decode_account = msgspec.msgpack.Decoder(Account).decode
_decode_key = msgspec.msgpack.Decoder(ApiKey).decode


class Journal(Protocol):
    """What the state tells whoever keeps it."""

    def save_message(self, record: Record) -> None:
        """Keep the message as it is now."""

    def drop_message(self, message_id: int) -> None:
        """Forget a deleted draft."""

    def save_account(self, account: Account) -> None:
        """Keep the account as it is now."""

    def save_key(self, key: ApiKey) -> None:
        """Keep the key as it is now."""

    def save_fact(self, name: str, value: str) -> None:
        """Keep a named value, such as the next id."""

    def close(self) -> None:
        """Nothing is saved after this."""


class NoJournal:
    """Keeps nothing: the host lives in memory."""

    def save_message(self, record: Record) -> None:
        """Nothing to do."""

    def drop_message(self, message_id: int) -> None:
        """Nothing to do."""

    def save_account(self, account: Account) -> None:
        """Nothing to do."""

    def save_key(self, key: ApiKey) -> None:
        """Nothing to do."""

    def save_fact(self, name: str, value: str) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class SqliteJournal:
    """Writes every change to an SQLite file at once.

    Without fsync: a sandbox has to survive the end of its process, not a power cut, and take hundreds of messages a
    second.
    """

    def __init__(self, path: str | Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.executescript(_SCHEMA)

    def save_message(self, record: Record) -> None:
        """Insert or replace the message."""
        self._db.execute("INSERT OR REPLACE INTO messages VALUES (?, ?)", (record.id, _encode(record)))

    def drop_message(self, message_id: int) -> None:
        """Delete a draft."""
        self._db.execute("DELETE FROM messages WHERE id = ?", (message_id,))

    def save_account(self, account: Account) -> None:
        """Insert or replace the account."""
        self._db.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?)", (account.addr, _encode(account)))

    def save_key(self, key: ApiKey) -> None:
        """Insert or replace the key."""
        self._db.execute("INSERT OR REPLACE INTO keys VALUES (?, ?)", (key.key_id, _encode(key)))

    def save_fact(self, name: str, value: str) -> None:
        """Insert or replace the value."""
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def messages(self) -> Iterator[Record]:
        """All messages in id order."""
        for (blob,) in self._db.execute("SELECT record FROM messages ORDER BY id"):
            yield _decode_message(blob)

    def accounts(self) -> Iterator[Account]:
        """All accounts."""
        for (blob,) in self._db.execute("SELECT record FROM accounts"):
            yield _decode_account(blob)

    def api_keys(self) -> Iterator[ApiKey]:
        """All keys."""
        for (blob,) in self._db.execute("SELECT record FROM keys"):
            yield _decode_key(blob)

    def facts(self) -> dict[str, str]:
        """All named values."""
        return dict(self._db.execute("SELECT name, value FROM facts"))

    def close(self) -> None:
        """Close the file."""
        self._db.close()
