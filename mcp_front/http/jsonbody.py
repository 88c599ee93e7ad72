"""Reading a request body without letting its shape cost more than its bytes.

A parser turns three bytes (``[],``) into sixty and recurses as deep as it is told. What is large in an honest request
is one string (an attachment, a text), so large bodies are first walked string by string, counting what lies between
them, and only what stays within the budgets is parsed.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

SMALL_BYTES = 64 * 1024
"""Up to here the number of values is not counted: at most 1.3 MB come of it."""

_STRING_TAIL = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""The rest of a string after its opening quote. Possessive: one pass, nothing remembered, whatever is sent."""
_BRACKET = re.compile(rb"[\[\]{}]")


class Malformed(ValueError):
    """The body is not one JSON text in UTF-8."""


class TooDeep(ValueError):
    """The body nests deeper than the budget allows."""


class TooManyItems(ValueError):
    """The body holds more values than the budget allows."""


def decode(body: bytes, *, max_depth: int, max_items: int) -> Any:
    """The value of a JSON text. Raises `Malformed`, `TooDeep` or `TooManyItems`.

    Stricter than `json`: no NaN, no invalid UTF-8, no lone surrogates, no byte order mark. Integers are exact.
    """
    small = len(body) <= SMALL_BYTES
    if not small or body.count(b"[") + body.count(b"{") > max_depth:
        _measure(body, max_depth=max_depth, max_items=len(body) if small else max_items)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed from error


def _measure(body: bytes, *, max_depth: int, max_items: int) -> None:
    depth = items = position = 0
    end = len(body)
    while position < end:
        quote = body.find(b'"', position)
        between = body[position : quote if quote >= 0 else end]
        items += 1 + between.count(b",") + between.count(b"[") + between.count(b"{")
        if items > max_items:
            raise TooManyItems
        for bracket in _BRACKET.findall(between):
            if bracket in b"[{":
                depth += 1
                if depth > max_depth:
                    raise TooDeep
            else:
                depth -= 1
        if quote < 0:
            return
        tail = _STRING_TAIL.match(body, quote + 1)
        if tail is None:
            raise Malformed
        position = tail.end()
