"""Taking in a request body: JSON that is read as it arrives, so that no size and no shape holds the process up.

A parser that gets 60 MB at once holds the process for a quarter of a second, and turns three bytes (``[],``) into
sixty. What is large in an honest request is a long string: an attachment, a text. So the reader takes long strings out
while the bytes arrive, decodes those in pieces, bounds what is left, and parses that at the end.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mcp_front.limits import FREE_BYTES, ByteShare
from mcp_front.settings import Budgets, budget_name

SMALL_BYTES = 64 * 1024
"""A body up to here is parsed at once: that takes under a millisecond, and at most 1.3 MB come of it."""
LONG_STRING_BYTES = 4096
"""Strings above it are taken out; there are 16,000 of them at most in 64 MiB."""
STRUCTURE_BYTES = 2 * 1024 * 1024
"""What a body may hold besides its long strings. It is parsed at once, in 20 ms; 20,000 addresses are 800 kB."""
STEP_BYTES = 160 * 1024
STEP_S = 10.0
"""A body that is counted (`FREE_BYTES`) has to bring so many bytes in so many seconds: what it holds, others cannot
have. A mobile network may be silent for some seconds, and brings more than 16 kB/s."""

_UNITS = re.compile(
    rb"(?:"
    rb'[^"\\\x00-\x1f\x80-\xff]++'
    rb"|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
    rb'|\\["\\/bfnrt]'
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb")*+"
)
"""Characters of a string, each of them whole. Possessive: one pass, nothing remembered, whatever is sent."""
_LONGEST_UNIT_BYTES = 12
"""A surrogate pair as two escapes."""
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

_STRING_OVERHEAD_BYTES = sys.getsizeof("é") - 1

Receive = Callable[[], Awaitable[Any]]


class BodyRefused(Exception):
    """A body that is not taken in: the HTTP status to answer with, a text, and when to try again if that helps."""

    def __init__(self, status: int, text: str, *, budget: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.budget = budget
        self.retry_after_s = retry_after_s


class ClientGone(Exception):
    """The client went away while it sent."""


class RequestBody(msgspec.Struct, frozen=True):
    """A JSON value, and how many bytes it came in."""

    value: Any
    size_bytes: int


class Malformed(ValueError):
    """The body is not one JSON text in UTF-8."""


class TooDeep(ValueError):
    """The body nests deeper than the budget allows."""


class TooManyItems(ValueError):
    """The body holds more values than the budget allows, or more than `STRUCTURE_BYTES` besides its long strings."""


class BodyReader:
    """Reads one JSON text from pieces. `feed` and `value` raise `Malformed`, `TooDeep` or `TooManyItems`.

    It is stricter than `json`: no NaN, no invalid UTF-8, no lone surrogates, no byte order mark. Integers are exact.
    """

    def __init__(self, *, max_depth: int, max_items: int) -> None:
        self._max_depth = max_depth
        self._max_items = max_items
        self._depth = 0
        self._items = 0
        self._structure = bytearray()
        self._string_at: int | None = None
        """Where in the structure the contents of the current string begin; None outside of strings."""
        self._cut_off = b""
        """A character of which the rest comes with the next piece."""
        self._marker = secrets.token_hex(8)
        """Stands for a long string in the structure. The client cannot know it."""
        self._long: list[str] = []
        self._pieces: list[str] | None = None
        """Of the current string, where it is a long one."""
        self._current_chars = 0
        self._current_width = 1
        self._decoded_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """What the long strings take in memory: up to four bytes a character."""
        return self._decoded_bytes + self._current_chars * self._current_width

    def feed(self, data: bytes) -> None:
        """Take the next bytes. The work is in proportion to them: a few milliseconds for 64 KiB of the worst."""
        if self._cut_off:
            data, self._cut_off = self._cut_off + data, b""
        position, end = 0, len(data)
        while position < end:
            read = self._outside if self._string_at is None else self._inside
            position = read(data, position)
            if len(self._structure) > STRUCTURE_BYTES:
                raise TooManyItems

    def value(self) -> Any:
        """What was read, once all of it was fed."""
        if self._string_at is not None:
            raise Malformed
        value = _parsed(self._structure)
        return self._restored(value) if self._long else value

    def _outside(self, data: bytes, position: int) -> int:
        quote = data.find(b'"', position)
        between = data[position:] if quote < 0 else data[position : quote + 1]
        self._items += between.count(b",") + between.count(b"[") + between.count(b"{") + (quote >= 0)
        if self._items > self._max_items:
            raise TooManyItems
        for bracket in between.translate(None, _NOT_BRACKETS):
            self._depth += 1 if bracket in b"[{" else -1
            if self._depth > self._max_depth:
                raise TooDeep
            if self._depth < 0:
                raise Malformed
        self._structure += between
        if quote >= 0:
            self._string_at = len(self._structure)
        return position + len(between)

    def _inside(self, data: bytes, position: int) -> int:
        match = _UNITS.match(data, position)
        end = position if match is None else match.end()
        self._contents(data[position:end])
        if end < len(data):
            if data[end] == ord('"'):
                self._close()
                return end + 1
            self._cut_off = data[end:]
            if len(self._cut_off) >= _LONGEST_UNIT_BYTES:
                raise Malformed
        return len(data)

    def _contents(self, raw: bytes) -> None:
        if self._pieces is not None:
            self._add(self._pieces, raw)
            return
        self._structure += raw
        begin = self._string_at or 0
        if len(self._structure) - begin > LONG_STRING_BYTES:
            self._pieces = []
            self._add(self._pieces, bytes(self._structure[begin:]))
            self._structure[begin:] = f"{self._marker}{len(self._long)}".encode()

    def _add(self, pieces: list[str], raw: bytes) -> None:
        piece = _parsed(b'"%b"' % raw)
        pieces.append(piece)
        self._current_chars += len(piece)
        if not piece.isascii():
            self._current_width = max(self._current_width, _char_bytes(piece))

    def _close(self) -> None:
        self._structure += b'"'
        self._string_at = None
        if self._pieces is not None:
            self._decoded_bytes = self.memory_bytes
            self._current_chars, self._current_width = 0, 1
            self._long.append("".join(self._pieces))
            self._pieces = None

    def _restored(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._long[int(value[len(self._marker) :])] if value.startswith(self._marker) else value
        if isinstance(value, list):
            return [self._restored(item) for item in value]
        if isinstance(value, dict):
            if any(name.startswith(self._marker) for name in value):
                raise Malformed
            return {name: self._restored(item) for name, item in value.items()}
        return value


def _parsed(text: bytes | bytearray) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed from error


def _char_bytes(text: str) -> int:
    """How many bytes a character of a text that is not ASCII takes in memory: 1, 2 or 4."""
    return min(4, max(1, (sys.getsizeof(text) - _STRING_OVERHEAD_BYTES) // len(text)))


def read_json(body: bytes, *, max_depth: int) -> Any:
    """The value of a small body. Raises `Malformed` or `TooDeep`."""
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return _parsed(body)
    reader = BodyReader(max_depth=max_depth, max_items=len(body))
    reader.feed(body)
    return reader.value()


async def read_body(
    receive: Receive, *, declared: int | None, budgets: Budgets, upload: ByteShare, turn: asyncio.Lock
) -> RequestBody:
    """The body of a request. ``declared`` is its Content-Length, if it has one.

    ``upload`` grows with the bytes that arrive. ``turn`` is one lock for all bodies: in each turn of the event loop one
    piece of one of them is read. Raises `BodyRefused`, `ClientGone`, `Malformed`, `TooDeep`,
    `TooManyItems`, or `OverBudget`.
    """
    if declared is not None:
        _check_size(declared, budgets)
    try:
        async with asyncio.timeout(budgets.body_s):
            first, more = await _next(receive)
            if not more and len(first) <= SMALL_BYTES:
                return RequestBody(read_json(first, max_depth=budgets.json_depth), len(first))
            return await _Intake(budgets, upload, turn).read(receive, first, more=more)
    except TimeoutError:
        text = f"The body did not come within {budgets.body_s:g} s ({budget_name('body_s')}). Send it faster."
    raise BodyRefused(408, text, budget="body_s")


async def read_form(receive: Receive, *, max_bytes: int, within_s: float) -> bytes | None:
    """A small body of somebody who is not known yet, whole. Raises `BodyRefused`, `ClientGone`."""
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(within_s):
            while more:
                piece, more = await _next(receive)
                body += piece
                if len(body) > max_bytes:
                    raise BodyRefused(413, f"The body is over {max_bytes} bytes. Send less.", budget="form_bytes")
    except TimeoutError:
        text = f"The body did not come within {within_s:g} s. Send it faster."
        raise BodyRefused(408, text, budget="form_s") from None
    return bytes(body)


class _Intake:
    """A body that comes in pieces."""

    def __init__(self, budgets: Budgets, upload: ByteShare, turn: asyncio.Lock) -> None:
        self._budgets = budgets
        self._upload = upload
        self._turn = turn
        self._reader = BodyReader(max_depth=budgets.json_depth, max_items=budgets.json_items)
        self._size = 0

    async def read(self, receive: Receive, piece: bytes, *, more: bool) -> RequestBody:
        """The body, from its first piece on."""
        await self._take(piece)
        while more and self._size <= FREE_BYTES:
            piece, more = await _next(receive)
            await self._take(piece)
        while more:
            more = await self._step(receive)
        async with self._turn:
            return RequestBody(self._reader.value(), self._size)

    async def _step(self, receive: Receive) -> bool:
        """Read on; whether there is more after `STEP_BYTES`."""
        enough, more = self._size + STEP_BYTES, True
        step = asyncio.timeout(STEP_S)
        try:
            async with step:
                while more and self._size < enough:
                    piece, more = await _next(receive)
                    await self._take(piece)
        except TimeoutError:
            if not step.expired():
                raise
            text = f"The body came slower than {STEP_BYTES // 1024} KiB in {STEP_S:g} s. Send it again, faster."
            raise BodyRefused(408, text, budget="least_rate") from None
        return more

    async def _take(self, piece: bytes) -> None:
        self._size += len(piece)
        _check_size(self._size, self._budgets)
        for begin in range(0, len(piece), SMALL_BYTES):
            async with self._turn:
                self._reader.feed(piece[begin : begin + SMALL_BYTES])
                self._upload.grow_to(max(self._size, self._reader.memory_bytes))
                await asyncio.sleep(0)


async def _next(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] != "http.request":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


def _check_size(size: int, budgets: Budgets) -> None:
    if size > budgets.max_body_bytes:
        raise BodyRefused(
            413,
            f"The body is over {budgets.max_body_bytes} bytes ({budget_name('max_body_bytes')}). Send less at once.",
            budget="max_body_bytes",
        )
