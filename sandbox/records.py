"""What a host stores: messages, add-to batches, attachments, accounts, API keys. Mutable, owned by `sandbox.store`."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator

import msgspec

UNKNOWN_USER = 100
"""Delivery code for an address the domain does not have."""

PARENT_NOT_FOUND = 6
"""Delivery code for a reply whose parent the receiving host does not have."""

DUPLICATE = 10
"""Delivery code for a message the receiving host has already."""

UNREACHABLE = -1
"""Delivery code for a domain that did not answer yet."""

ELSEWHERE = -2
"""Delivery code, on a receiving host, for a recipient at another host."""

DELIVERED = 200
"""Delivery code, on the sender's host, of a confirmed delivery."""


_COMPRESSED_FROM_BYTES = 512
"""Hosts do not try to compress less."""

_SAMPLE_BYTES = 8192
"""What hosts look at first."""

_COMPRESSED_MEDIA = ("audio/", "video/")
"""Media that are compressed already."""

_COMPRESSED_TYPES = frozenset(
    {
        "application/epub+zip",
        "application/gzip",
        "application/octet-stream",
        "application/pdf",
        "application/zip",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
    }
)
"""Common types that hosts do not try to compress."""


class Recipient(msgspec.Struct, kw_only=True):
    """One recipient of a message or batch and what is known of the delivery."""

    addr: str
    delivered_at_s: float | None = None
    code: int | None = None


class Batch(msgspec.Struct, kw_only=True):
    """Recipients that were added together. ``sha256`` is None while the message is a draft."""

    batch_id: int
    adder: str
    to: list[Recipient]
    time_s: float | None = None
    sha256: str | None = None

    def names(self, lower: str) -> bool:
        """Whether the batch adds this address."""
        return any(lowered(recipient.addr) == lower for recipient in self.to)


class Attachment(msgspec.Struct, kw_only=True):
    """A stored file. The type is always ``application/octet-stream`` on current hosts."""

    filename: str
    data: bytes


class Reacted(msgspec.Struct, kw_only=True):
    """The latest reaction message of one participant to a subject; an empty emoji cleared it."""

    addr: str
    emoji: str
    time_s: float
    message_id: int


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One message as this host stores it. ``time_s`` None marks a draft.

    ``pid_hash`` is the hash the parent was named by: the message's own, or that of one of its batches. ``wire_bytes``
    is the length of the compressed body, None where it travels as it is. ``is_utf8`` is None until somebody asked.
    ``reads`` and ``reactions`` are keyed by address in lower case.
    """

    id: int
    from_: str
    to: list[Recipient]
    type: str
    version: int = 1
    data: bytes = b""
    wire_bytes: int | None = None
    pid: int | None = None
    pid_hash: str | None = None
    topic: str = ""
    important: bool = False
    no_reply: bool = False
    terminal: bool = False
    reaction: str | None = None
    time_s: float | None = None
    sha256: str | None = None
    add_to: list[Batch] = msgspec.field(default_factory=list)
    attachments: list[Attachment] = msgspec.field(default_factory=list)
    is_utf8: bool | None = None
    reads: dict[str, float] = msgspec.field(default_factory=dict)
    reactions: dict[str, Reacted] = msgspec.field(default_factory=dict)

    def text(self, longest_bytes: int | None = None) -> str | None:
        """The body as text, cut at a code point where it is longer; None where it is not UTF-8."""
        if self.is_utf8 is None:
            try:
                self.data.decode()
                self.is_utf8 = True
            except UnicodeDecodeError:
                self.is_utf8 = False
        return self.data[:longest_bytes].decode(errors="ignore") if self.is_utf8 else None

    @property
    def is_draft(self) -> bool:
        """Not sent yet."""
        return self.time_s is None

    def reaches(self, recipient: Recipient) -> bool:
        """Whether the recipient was not refused."""
        return recipient.code is None or recipient.code < 0

    def refused(self) -> set[str]:
        """The addresses, in lower case, that were refused and take part in no other way."""
        refused: set[str] = set()
        others = {lowered(self.from_)}
        for recipient in self.recipients():
            (others if self.reaches(recipient) else refused).add(lowered(recipient.addr))
        return refused - others

    def is_primary(self, lower: str) -> bool:
        """Whether the address is the sender or in ``to``."""
        return lowered(self.from_) == lower or any(lowered(recipient.addr) == lower for recipient in self.to)

    def is_recipient(self, lower: str) -> bool:
        """Whether the address is in ``to`` or was added."""
        return any(lowered(recipient.addr) == lower for recipient in self.recipients())

    def is_participant(self, lower: str) -> bool:
        """Sender, recipient, adder or added."""
        return self.is_primary(lower) or any(
            lowered(batch.adder) == lower or batch.names(lower) for batch in self.add_to
        )

    def recipients(self) -> Iterator[Recipient]:
        """All delivery objects, added recipients last; an address may come twice."""
        yield from self.to
        for batch in self.add_to:
            yield from batch.to

    def participants(self) -> dict[str, str]:
        """Every participant once: the address as written by the address in lower case."""
        seen = {lowered(self.from_): self.from_}
        for recipient in self.recipients():
            seen.setdefault(lowered(recipient.addr), recipient.addr)
        for batch in self.add_to:
            seen.setdefault(lowered(batch.adder), batch.adder)
        return seen


class Account(msgspec.Struct, kw_only=True):
    """An address of this host's domain.

    ``known`` False imitates an address that was deleted, ``may_send`` False one that lost its right to send;
    ``delivery_code`` refuses what is sent to it.
    """

    addr: str
    owner: str
    known: bool = True
    may_send: bool = True
    delivery_code: int | None = None


class ApiKey(msgspec.Struct, kw_only=True):
    """An API key; only a hash of the secret is kept. ``cidrs`` None lets every source address in."""

    key_id: str
    addr: str
    secret_sha256: bytes
    expires_at_s: float | None = None
    revoked: bool = False
    cidrs: tuple[str, ...] | None = None


def lowered(address: str) -> str:
    """The form a host compares and keys addresses by: lower case, character by character and no wider.

    ``@STRASSE@a.test`` and ``@straße@a.test`` are two accounts.
    """
    if address.isascii():
        return address.lower()
    return "".join(low if len(low := char.lower()) == 1 else char for char in address)


def domain_of(address: str) -> str:
    """The domain part in lower case."""
    return lowered(address.rpartition("@")[2])


def message_hash(record: Record) -> str:
    """The sha256 a message is known by on every host: over all that its sender wrote, nothing a host adds."""
    digest = hashlib.sha256()
    digest.update(
        msgspec.json.encode(
            [
                lowered(record.from_),
                [lowered(recipient.addr) for recipient in record.to],
                record.pid_hash,
                repr(record.time_s),
                record.topic,
                record.type,
                [record.important, record.no_reply, record.terminal, record.reaction],
                [[item.filename, hashlib.sha256(item.data).hexdigest()] for item in record.attachments],
            ]
        )
    )
    digest.update(record.data)
    return digest.hexdigest()


def batch_hash(message_sha256: str, batch: Batch) -> str:
    """The sha256 a batch is known by on every host."""
    fields = [message_sha256, lowered(batch.adder), [lowered(item.addr) for item in batch.to], repr(batch.time_s)]
    return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()


def compressed_bytes(media_type: str, data: bytes) -> int | None:
    """The length of the body as it travels compressed. None where hosts leave it as it is.

    Hosts compress from 512 bytes on, and only where that saves a fifth: of the first 8 KiB, and of the whole.
    """
    essence = media_type.partition(";")[0].strip().lower()
    if len(data) < _COMPRESSED_FROM_BYTES or essence.startswith(_COMPRESSED_MEDIA) or essence in _COMPRESSED_TYPES:
        return None
    sample = data[:_SAMPLE_BYTES]
    if len(zlib.compress(sample)) * 10 >= len(sample) * 8:
        return None
    size = len(zlib.compress(data)) if len(data) > len(sample) else len(zlib.compress(sample))
    return size if size * 10 < len(data) * 8 else None
