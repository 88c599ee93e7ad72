"""Bodies as text, bounded: whole from the message where the host put it there, else fetched."""

from __future__ import annotations

import codecs
from collections.abc import Generator
from typing import TYPE_CHECKING

import msgspec

from fmsg.message import Message
from fmsg.pieces import in_pieces
from fmsg.redact import scrub_long
from mcp_front.framing import Clean
from mcp_front.limits import UNBOUNDED_ROOM, AnswerRoom
from mcp_front.render import text_like

if TYPE_CHECKING:
    from fmsg.webapi import WebApi

_Utf8 = codecs.getincrementaldecoder("utf-8")

PIECE_BYTES = 1024 * 1024
"""Decoded at once: about a millisecond."""


class BodyText(msgspec.Struct, frozen=True):
    """``text`` is None for a type that is not text-like; ``truncated`` says whether there is more of it."""

    text: str | None
    truncated: bool = False


NO_TEXT = BodyText(None)
"""The body of an image, an archive and the like: its bytes are no text to show."""


async def decoded(data: bytes, *, more: bool = False, errors: str = "replace") -> str:
    """Bytes as text, in pieces. A character cut off at the end is left out if there is ``more``.

    What is not UTF-8 becomes U+FFFD; with ``errors`` "strict" it raises `UnicodeDecodeError`.
    """
    if len(data) <= PIECE_BYTES:
        return _Utf8(errors).decode(data, final=not more)
    return await in_pieces(_decoding(data, more=more, errors=errors))


def _decoding(data: bytes, *, more: bool, errors: str) -> Generator[None, None, str]:
    decoder, view = _Utf8(errors), memoryview(data)
    parts = []
    for start in range(0, len(data), PIECE_BYTES):
        parts.append(decoder.decode(bytes(view[start : start + PIECE_BYTES])))
        yield
    return "".join([*parts, "" if more else decoder.decode(b"", final=True)])


def clipped(text: str, max_bytes: int) -> BodyText:
    """The text's first ``max_bytes`` bytes of UTF-8, cut between characters."""
    data = text[: max_bytes + 1].encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return BodyText(text)
    return BodyText(_Utf8("replace").decode(data[:max_bytes]), truncated=True)


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
        found = BodyText(await decoded(body.data, more=body.truncated), truncated=body.truncated)
    return BodyText(Clean(await scrub_long(found.text or "")), found.truncated)
