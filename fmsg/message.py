"""Messages as the Web API gives them (FMSG-003, "Message object"), tolerant of what older hosts leave out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

Address = Annotated[str, msgspec.Meta(max_length=1024)]
"""Four times what the protocol allows. As with the other bounds, a message beyond it is left out as unreadable."""
MediaType = Annotated[str, msgspec.Meta(max_length=1024)]
Topic = Annotated[str, msgspec.Meta(max_length=4096)]
FileName = Annotated[str, msgspec.Meta(max_length=4096)]
Emoji = Annotated[str, msgspec.Meta(max_length=256)]
ShortText = Annotated[str, msgspec.Meta(max_length=64 * 1024)]
"""Hosts put 768 bytes there, or as many as their operator wants."""
Timestamp = Annotated[str, msgspec.Meta(max_length=64)]
PosixSeconds = Annotated[float, msgspec.Meta(ge=-62_135_400_000.0, le=253_402_100_000.0)]
"""Within the calendar of years 1 to 9999 by more than two days, so that no offset leads out of it."""
MessageId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
SizeBytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

MAX_TOPIC_BYTES = 255
MAX_RECIPIENTS = 255
"""Lengths and counts that take one byte on the wire between hosts."""

_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the delivery to one recipient; see `fmsg.delivery` for its meaning."""

    addr: Address
    time_delivered: Timestamp | None = None
    response_code: int | None = None


class AddToBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One act of adding recipients to a message."""

    batch_id: MessageId | None = None
    add_to_from: Address | None = None
    to: tuple[Address, ...] | None = ()
    to_delivery: tuple[Delivery, ...] | None = ()
    time: PosixSeconds | None = None
    sha256: str | None = None


class AttachmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Name and size of an attachment; ``position``, ``type`` and ``download`` only in thread answers."""

    filename: FileName
    size: SizeBytes = 0
    position: int | None = None
    type: MediaType | None = None
    download: str | None = None


class ReactionCount(msgspec.Struct, frozen=True, kw_only=True):
    """An emoji and who reacts with it now."""

    emoji: Emoji
    from_: tuple[Address, ...] | None = msgspec.field(name="from", default=())


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. ``time`` None marks a draft; ``id`` is 0 where the host leaves it out and nobody filled it in."""

    id: MessageId = 0
    version: int = 1
    has_pid: bool = False
    has_add_to: bool = False
    important: bool = False
    no_reply: bool = False
    deflate: bool = False
    terminal: bool = False
    pid: MessageId | None = None
    from_: Address = msgspec.field(name="from", default="")
    to: tuple[Address, ...] | None = ()
    to_delivery: tuple[Delivery, ...] | None = ()
    add_to: tuple[AddToBatch, ...] | None = ()
    time: PosixSeconds | None = None
    topic: Topic | None = ""
    type: MediaType = ""
    size: SizeBytes = 0
    short_text: ShortText | None = None
    read: bool | None = None
    time_read: PosixSeconds | None = None
    attachments: tuple[AttachmentInfo, ...] | None = ()
    reaction: Emoji | None = None
    reactions: tuple[ReactionCount, ...] | None = ()
    sha256: str | None = None

    @property
    def is_draft(self) -> bool:
        """A draft is not a message yet and is never an arrival."""
        return self.time is None

    @property
    def is_reaction(self) -> bool:
        """Whether the message is itself a reaction (FMSG-005); the empty string clears one."""
        return self.reaction is not None

    def whole_text(self) -> str | None:
        """The body where ``short_text`` is all of it, else None: then it takes a request for ``/data``.

        With ``deflate`` the size may be the compressed one, which says nothing of the text.
        """
        if self.short_text is not None and not self.deflate and len(self.short_text.encode()) >= self.size:
            return self.short_text
        return None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list route, newest id first. ``host_time_s`` is the host's ``Date`` in POSIX seconds, if given.

    ``skipped`` messages of the page could not be understood and are left out.
    """

    messages: tuple[Message, ...]
    host_time_s: float | None = None
    skipped: int = 0


class ThreadBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body in a thread answer: ``text`` for text-like types small enough, else only where to fetch it."""

    type: MediaType = ""
    size: SizeBytes = 0
    text: str | None = None
    download: str | None = None
    cacheable: bool = False


class ThreadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a lineage. An invisible ancestor has only ``id`` and ``visible`` False."""

    id: MessageId
    visible: bool = True
    pid: MessageId | None = None
    from_: Address = msgspec.field(name="from", default="")
    to: tuple[Address, ...] | None = ()
    add_to: tuple[AddToBatch, ...] | None = ()
    time: PosixSeconds | None = None
    topic: Topic | None = ""
    type: MediaType = ""
    size: SizeBytes = 0
    no_reply: bool = False
    important: bool = False
    terminal: bool = False
    message_sha256: str | None = None
    body: ThreadBody | None = None
    attachments: tuple[AttachmentInfo, ...] | None = ()


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """The lineage of ``trigger_id``, root first. ``complete`` is False when an ancestor is not visible."""

    root_id: MessageId
    trigger_id: MessageId
    complete: bool = True
    messages: tuple[ThreadMessage, ...] | None = ()


class Draft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to be created. ``pid`` is an id, or a batch's sha256 for someone only in that batch (FMSG-003)."""

    from_: Address = msgspec.field(name="from")
    to: tuple[Address, ...]
    type: str
    size: int
    data: str | None = None
    pid: int | str | None = None
    topic: str | None = None
    important: bool = False
    no_reply: bool = False
    terminal: bool = False

    def wire(self) -> dict[str, Any]:
        """The JSON object of ``POST /fmsg``."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {"version": 1, "size": self.size, **fields}

    def excess(self) -> str | None:
        """What of the draft goes beyond the protocol. Some hosts take it all the same, so nothing refuses it before."""
        topic = self.topic or ""
        size = len(topic.encode("utf-8", "replace"))
        if size > MAX_TOPIC_BYTES:
            return f"the topic has {size} bytes, and the protocol allows {MAX_TOPIC_BYTES}"
        if "\0" in topic:
            return "the topic contains a NUL character"
        if len(self.to) > MAX_RECIPIENTS:
            return f"the message has {len(self.to)} recipients, and the protocol allows {MAX_RECIPIENTS}"
        return None


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``POST /fmsg/{id}/send``."""

    id: MessageId
    time: PosixSeconds


class ReadMark(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``POST /fmsg/{id}/read``."""

    id: MessageId
    time_read: PosixSeconds | None = None


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``POST /fmsg/{id}/add-to``; ``sha256`` is the batch's, and None on a draft and on older hosts."""

    id: MessageId
    added: int
    batch_id: MessageId | None = None
    sha256: str | None = None


class Reacted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``POST /fmsg/{id}/react``; ``id`` is None where there was nothing to clear."""

    id: MessageId | None = None
    time: PosixSeconds | None = None
    sha256: str | None = None


def digest(text: str | None) -> str | None:
    """A SHA-256 as the host gives it, None where that is anything but 64 hexadecimal digits."""
    return text if text is not None and _DIGEST.fullmatch(text) else None


def participants(
    *, from_: Address, to: Iterable[Address] | None, add_to: Iterable[AddToBatch] | None
) -> tuple[Address, ...]:
    """Sender, recipients, adders and added, in that order, each once, lower case (FMSG-007).

    Addresses that only a wider folding joins are two, as for hosts: a reply to one would not reach the other.
    """
    everybody = [from_, *(to or ())]
    for batch in add_to or ():
        everybody += [batch.add_to_from or "", *(batch.to or ())]
    return tuple(dict.fromkeys([from_.lower(), *(address.lower() for address in everybody if address)]))


def available_at_s(message: Message, caller: Address) -> PosixSeconds | None:
    """When the message became available to the caller by the sender's or adder's clock; None for a draft.

    The send time for a primary recipient, else the time of the first add-to batch that names the caller.
    """
    if message.time is None:
        return None
    me = caller.lower()
    if any(address.lower() == me for address in message.to or ()):
        return message.time
    times = [
        batch.time
        for batch in message.add_to or ()
        if batch.time is not None and any(address.lower() == me for address in batch.to or ())
    ]
    return min(times) if times else message.time
