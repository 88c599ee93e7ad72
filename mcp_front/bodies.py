"""Bodies as text, bounded: whole from the message where the host put it there, else fetched."""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fmsg.message import Message
from fmsg.pieces import at_once, in_pieces
from fmsg.redact import scrub_long
from mcp_front.framing import Clean
from mcp_front.limits import UNBOUNDED_ROOM, AnswerRoom
from mcp_front.render import text_like

if TYPE_CHECKING:
    from fmsg.webapi import WebApi

PIECE_BYTES = 128 * 1024
"""Decoded in one step: 5 ms in the slowest character set."""

_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9._:-]{1,40})""", re.IGNORECASE)
_CHARSETS = re.compile(
    r"ascii|latin|iso8859-\d+|cp\d+|koi8-[rtu]|kz1048|ptcp154|tis-620|mac-\w+|gb2312|gbk|gb18030|hz|big5|big5hkscs"
    r"|euc_\w+|shift_jis\w*|johab|iso2022_\w+|utf-(?:16|32)(?:-[bl]e)?"
)
"""Codecs of the standard library that are character sets. Others decompress, or take time out of all proportion."""
_TELLTALES = (("utf-16", b"\0"), ("utf-32", b"\0"), ("iso2022_", b"\x1b"), ("hz", b"~{"))
"""Text in these can be valid UTF-8 and mean something else. With such a byte in it, the declaration comes first."""


class BodyText(msgspec.Struct, frozen=True):
    """``text`` is None for a type that is not text-like; ``truncated`` says whether there is more of it.

    ``unread``: some bytes are no text in the declared character set nor in UTF-8 and stand as U+FFFD.
    """

    text: str | None
    truncated: bool = False
    unread: bool = False


NO_TEXT = BodyText(None)
"""The body of an image, an archive and the like: its bytes are no text to show."""


async def read_text(data: bytes, media_type: str, *, more: bool = False) -> BodyText:
    """Bytes as text in UTF-8, or in the character set that the type declares where they are not that.

    A character cut off at the end is left out if there is ``more``. Long data is read in steps.
    """
    work = _reading(data, media_type, more)
    return at_once(work) if len(data) <= PIECE_BYTES else await in_pieces(work)


def _reading(data: bytes, media_type: str, more: bool) -> Generator[None, None, BodyText]:
    for charset in _candidates(data, media_type):
        text = yield from _decoded(data, charset, more, "strict")
        if text is not None:
            return BodyText(text, truncated=more)
    text = yield from _decoded(data, "utf-8", more, "replace")
    return BodyText(text, truncated=more, unread=True)


def _candidates(data: bytes, media_type: str) -> tuple[str, ...]:
    declared = _CHARSET.search(media_type)
    try:
        name = codecs.lookup(declared[1]).name if declared else "utf-8"
    except LookupError:
        name = "utf-8"
    if _CHARSETS.fullmatch(name) is None:
        return ("utf-8",)
    told = any(name.startswith(kind) and byte in data for kind, byte in _TELLTALES)
    return (name, "utf-8") if told else ("utf-8", name)


def _decoded(data: bytes, charset: str, more: bool, errors: str) -> Generator[None, None, str | None]:
    """The text, or None where the bytes are not in this character set."""
    decoder = codecs.getincrementaldecoder(charset)(errors)
    parts: list[str] = []
    for start in range(0, max(len(data), 1), PIECE_BYTES):
        piece = data[start : start + PIECE_BYTES]
        try:
            parts.append(decoder.decode(piece, final=not more and start + PIECE_BYTES >= len(data)))
        except UnicodeError:
            return None
        yield
    return "".join(parts)


def clipped(text: str, max_bytes: int) -> BodyText:
    """The text's first ``max_bytes`` bytes of UTF-8, cut between characters."""
    data = text[: max_bytes + 1].encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return BodyText(text)
    return BodyText(data[:max_bytes].decode("utf-8", "ignore"), truncated=True)


async def body_text(api: WebApi, message: Message, *, max_bytes: int, room: AnswerRoom = UNBOUNDED_ROOM) -> BodyText:
    """The body of a message without credentials, at most ``max_bytes`` of it.

    One request, or none where ``short_text`` is all of it. Its memory is reserved in ``room`` first. Raises
    `OverBudget`.
    """
    if not text_like(message.type):
        return NO_TEXT
    whole = message.whole_text()
    if whole is not None:
        found = clipped(whole, max_bytes)
    elif max_bytes == 0:
        return BodyText("", truncated=message.size > 0)
    else:
        # Of a compressed message the size says nothing.
        expected = max_bytes if message.deflate else min(max_bytes, message.size)
        await room.reserve(expected)
        body = await api.body(message.id, max_bytes=max_bytes)
        room.return_unused(max(0, expected - len(body.data)))
        found = await read_text(body.data, message.type, more=body.truncated)
    return replace(found, text=Clean(await scrub_long(found.text or "")))
