"""Bodies as text, bounded: whole from the message where the host put it there, else fetched."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import msgspec

from fmsg.message import Message
from mcp_front.render import text_like

if TYPE_CHECKING:
    from fmsg.webapi import WebApi

_Utf8 = codecs.getincrementaldecoder("utf-8")


class BodyText(msgspec.Struct, frozen=True):
    """``text`` is None for a type that is not text-like; ``truncated`` says whether there is more of it."""

    text: str | None
    truncated: bool = False


NO_TEXT = BodyText(None)
"""The body of an image, an archive and the like: its bytes are no text to show."""


def decoded(data: bytes, *, more: bool) -> str:
    """Bytes as text. What is not UTF-8 becomes U+FFFD; one cut off at the end is left out if there is ``more``."""
    return _Utf8("replace").decode(data, final=not more)


def clipped(text: str, max_bytes: int) -> BodyText:
    """The text's first ``max_bytes`` bytes of UTF-8, cut between characters."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return BodyText(text)
    return BodyText(decoded(data[:max_bytes], more=True), truncated=True)


async def body_text(api: WebApi, message: Message, *, max_bytes: int) -> BodyText:
    """The body of a message, at most ``max_bytes`` of it. One request, or none where ``short_text`` is all of it."""
    if not text_like(message.type):
        return NO_TEXT
    whole = message.whole_text()
    if whole is not None:
        return clipped(whole, max_bytes)
    if max_bytes == 0:
        return BodyText("", truncated=message.size > 0)
    body = await api.body(message.id, max_bytes=max_bytes)
    return BodyText(decoded(body.data, more=body.truncated), truncated=body.truncated)
