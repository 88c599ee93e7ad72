"""JSON in and out, and refusals in the words of the Web API: ``{"error": text, "code"?: code}``."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from aiohttp import web

MAX_ID_DIGITS = 19
"""2^63-1 has 19 digits; longer numbers are no id and no offset."""

_HASH = re.compile("[0-9a-fA-F]{64}")

encode = msgspec.json.Encoder().encode
"""JSON bytes of plain values; 64-bit ids stay exact numbers."""


def is_hash(text: str) -> bool:
    """Whether the text is a sha256 in hexadecimal."""
    return _HASH.fullmatch(text) is not None


class RouteRefused(Exception):
    """A request is refused with an HTTP status, a text for people and, now and then, a code for machines."""

    def __init__(self, status: int, text: str, *, code: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.code = code

    def response(self) -> web.Response:
        """The answer a client sees."""
        fields = {"error": self.text} if self.code is None else {"error": self.text, "code": self.code}
        return answer(fields, status=self.status)


def answer(value: object, *, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(status=status, body=encode(value), content_type="application/json", charset="utf-8")


async def json_object(request: web.Request, *, optional: bool = False) -> dict[str, Any]:
    """The JSON object of a request body; an empty one where ``optional`` and there is none. 400 for anything else."""
    raw = await request.read()
    if optional and not raw:
        return {}
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RouteRefused(400, f"invalid request body: {error}") from None
    if not isinstance(value, dict):
        raise RouteRefused(400, "invalid request body: an object is wanted")
    return value


def page_window(request: web.Request) -> tuple[int, int]:
    """``limit`` (default 20, over 100 clamped) and ``offset`` of a list route."""
    limit = _whole(request, "limit", default=20, least=1)
    return min(limit, 100), _whole(request, "offset", default=0, least=0)


def _whole(request: web.Request, name: str, *, default: int, least: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS) or int(text) < least:
        raise RouteRefused(400, f"invalid {name}")
    return int(text)
