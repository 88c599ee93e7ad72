"""Messages as results show them: fields of the structured content, lines of the text block (FMSG-007, References)."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from fmsg.address import is_address
from fmsg.message import AddToBatch, AttachmentInfo, Message, ReactionCount
from fmsg.reference import format_reference
from mcp_front.framing import one_line, quoted, visible

Fields = dict[str, Any]

PREVIEW_CHARS = 200
"""Of a body in a list: enough to tell messages apart, little enough that a page of a hundred stays cheap."""

SHOWN_ADDRESSES = 8
"""Named on one line of text; the structured content has them all."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S = (datetime.max.replace(tzinfo=UTC) - _EPOCH).total_seconds() - 1
"""No calendar goes further; a host's nonsense beyond it is shown as that."""

REMEMBERED = 4096
"""Times whose text is remembered: each is shown twice in a result, and pages are listed again and again."""

_TEXT_LIKE = re.compile(r"text/|application/json\s*(?:;|$)|[^;]*\+json\s*(?:;|$)", re.IGNORECASE)

_ESSENCE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.ASCII | re.IGNORECASE)
"""RFC 6838, 4.2, without the room for a sentence."""
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
UNKNOWN_TYPE = "application/octet-stream"
"""The media type that says nothing."""
_CHARSET = re.compile(r'charset="?[a-z0-9][a-z0-9_.:-]{0,39}"?', re.ASCII | re.IGNORECASE)
"""The one parameter of a text that is shown as it is."""


@lru_cache(maxsize=REMEMBERED)
def rfc3339(posix_s: float | None) -> str | None:
    """A host's time in UTC to the microsecond the host gave; None for a draft."""
    if posix_s is None:
        return None
    moment = _EPOCH + timedelta(seconds=max(0.0, min(posix_s, _LAST_S)))
    return _written(moment)


def utc(host_text: str | None) -> str | None:
    """A host's RFC 3339 string in our form; None where there is none or it cannot be read."""
    if host_text is None:
        return None
    try:
        moment = datetime.fromisoformat(host_text)
        return _written(moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC))
    except (ValueError, OverflowError):  # No time, or one whose offset leads out of the calendar.
        return None


def _written(moment: datetime) -> str:
    precision = "milliseconds" if moment.microsecond % 1000 == 0 else "microseconds"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def text_like(media_type: str) -> bool:
    """Whether bodies of this type are text: ``text/*``, ``application/json``, ``*/*+json`` (FMSG-003)."""
    return _TEXT_LIKE.match(media_type.strip()) is not None


def media_type(text: str) -> bool:
    """Whether the text is a type and a subtype and nothing else."""
    return _ESSENCE.fullmatch(text) is not None


def shown_type(text: str) -> str:
    """A media type in a line of text: bare where it is well-formed, else quoted. Its parameters may say anything."""
    essence, semicolon, parameters = (part.strip() for part in text.partition(";"))
    plain = media_type(essence) and (not semicolon or _CHARSET.fullmatch(parameters) is not None)
    return text if plain else quoted(text)


def reference(message_id: int | None) -> str | None:
    """The reference of an id, None where there is none."""
    return None if message_id is None else format_reference(message_id)


def addresses(found: Iterable[str] | None) -> list[str]:
    """Addresses as results give them: lower case, on one line."""
    return [visible(address.lower()) for address in found or ()]


def attachment_items(found: Iterable[AttachmentInfo] | None) -> list[Fields]:
    """``{filename, size, type}`` of each attachment."""
    return [
        {"filename": visible(info.filename), "size": info.size, "type": file_type(info.filename, info.type or "")}
        for info in found or ()
    ]


def file_type(filename: str, stated: str) -> str:
    """The media type of a file. Hosts store every file as `UNKNOWN_TYPE`: then the name tells."""
    essence = stated.partition(";")[0].strip().lower()
    if essence != UNKNOWN_TYPE and media_type(essence):
        return essence
    return _type_by_name(filename)


@lru_cache(maxsize=REMEMBERED)
def _type_by_name(filename: str) -> str:
    return mimetypes.guess_type(filename)[0] or UNKNOWN_TYPE


def digest(found: str | None) -> Fields:
    """``sha256`` of a message, where it is one and no sentence."""
    return {"sha256": found.lower()} if found and _SHA256.fullmatch(found) else {}


def reaction_items(found: Iterable[ReactionCount] | None) -> list[Fields]:
    """``{emoji, from[]}`` of each emoji."""
    return [{"emoji": visible(count.emoji), "from": addresses(count.from_)} for count in found or ()]


def batch_items(found: Iterable[AddToBatch] | None) -> list[Fields]:
    """``{from, to[], time}`` of each act of adding recipients."""
    return [
        {"from": visible((batch.add_to_from or "").lower()), "to": addresses(batch.to), "time": rfc3339(batch.time)}
        for batch in found or ()
    ]


def preview(message: Message) -> str:
    """The beginning of a text body on one line, empty where the host gives none."""
    if message.short_text is None or not text_like(message.type):
        return ""
    line = one_line(message.short_text, max_chars=PREVIEW_CHARS)
    return line if message.whole_text() is not None or line.endswith("…") else line + "…"


def message_item(message: Message, *, with_preview: bool = True, caller: str | None = None) -> Fields:
    """A message item of FMSG-007. ``added``, ``reaction`` and ``sha256`` come only where there is something in them.

    Whether ``caller`` has read its own message is nothing to tell.
    """
    item: Fields = {
        "id": format_reference(message.id),
        "pid": reference(message.pid),
        "from": visible(message.from_.lower()),
        "to": addresses(message.to),
        "topic": visible(message.topic or ""),
        "time": rfc3339(message.time),
        "read": None if message.from_.lower() == caller else message.read,
        "important": message.important,
        "no_reply": message.no_reply,
        "terminal": message.terminal,
        "type": visible(message.type),
        "size": message.size,
        "preview": preview(message) if with_preview else "",
        "attachments": attachment_items(message.attachments),
        "reactions": reaction_items(message.reactions),
    }
    if message.add_to:
        item["added"] = batch_items(message.add_to)
    if message.is_reaction:
        item["reaction"] = visible(message.reaction or "")
    return item | digest(message.sha256)


def shown_address(address: str) -> str:
    """An address in a line of text: bare where it is well-formed, else quoted."""
    plain = address.lower()
    return plain if is_address(address) and visible(plain) == plain else quoted(address)


def shown_addresses(found: Iterable[str] | None, *, most: int = SHOWN_ADDRESSES) -> str:
    """Addresses in a line of text, the first few of many."""
    every = list(found or ())
    if not every:
        return "nobody"
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(shown_address(address) for address in every[:most]) + more


def shown_size(size_bytes: int) -> str:
    """A size for a reader: ``12 B``, ``3.4 kB``, ``1.2 MB``."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    if size_bytes < 1_000_000:
        return f"{size_bytes / 1000:.1f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"


def headline(message: Message) -> str:
    """A message's headers on one line of text; foreign parts are quoted."""
    parts = [
        f"{message.id}",
        rfc3339(message.time) or "draft",
        f"from {shown_address(message.from_)} to {shown_addresses(message.to)}",
    ]
    parts += [
        f"{shown_address(batch.add_to_from or '')} added {shown_addresses(batch.to)}" for batch in message.add_to or ()
    ]
    if message.pid is not None:
        parts.append(f"reply to {message.pid}")
    if message.topic:
        parts.append(f"topic {quoted(message.topic)}")
    if message.is_reaction:
        parts.append(f"reaction {quoted(message.reaction or '')}")
    parts += _marks(message)
    return "; ".join(parts)


def _marks(message: Message) -> list[str]:
    marks = [
        name
        for name, holds in (
            ("unread", message.read is False),
            ("important", message.important),
            ("no reply wanted", message.no_reply and not message.is_reaction),
            ("terminal", message.terminal and not message.is_reaction),
        )
        if holds
    ]
    marks += [f"{quoted(count.emoji)} by {shown_addresses(count.from_)}" for count in message.reactions or ()]
    return marks + attachment_marks(message.attachments)


def attachment_marks(found: Iterable[AttachmentInfo] | None) -> list[str]:
    """Each attachment as a part of a headline."""
    return [f"attachment {quoted(info.filename)} ({shown_size(info.size)})" for info in found or ()]
