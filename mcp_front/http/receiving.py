"""Taking in a request body: not too large, not too slow, and not too many large ones at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ledger.values import CallerKey
from mcp_front.settings import Budgets, budget_name

COUNTED_BYTES = 64 * 1024
"""Smaller bodies are not counted as uploads: 20,000 of them are still fewer bytes than one process can take."""
RETRY_S = 5.0
"""When to come back to an upload that was refused for want of room."""

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


class Upload:
    """The bytes that one request holds of the uploads, until it gives them back."""

    __slots__ = ("_caller", "_uploads", "held")

    def __init__(self, uploads: Uploads, caller: CallerKey) -> None:
        self._uploads = uploads
        self._caller = caller
        self.held = 0
        """How many."""

    def grow_to(self, size: int) -> None:
        """Hold ``size`` bytes. Raises `BodyRefused`."""
        if size > max(self.held, COUNTED_BYTES):
            self._uploads.take(self._caller, size - self.held)
            self.held = size

    def give_back(self) -> None:
        """Hold nothing any more."""
        if self.held:
            self._uploads.give_back(self._caller, self.held)
            self.held = 0


class Uploads:
    """Bytes of bodies being received and handled, of all callers and of each."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._by_caller: dict[CallerKey, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes held now."""
        return self._total

    def give_back(self, caller: CallerKey, size: int) -> None:
        """Count ``size`` bytes less for a caller."""
        self._total -= size
        left = self._by_caller[caller] - size
        if left:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]

    def take(self, caller: CallerKey, size: int) -> None:
        """Count ``size`` bytes more for a caller. Raises `BodyRefused`."""
        mine = self._by_caller.get(caller, 0) + size
        if mine > self._budgets.upload_bytes_per_caller:
            raise _no_room("upload_bytes_per_caller", self._budgets.upload_bytes_per_caller, "your own uploads")
        if self._total + size > self._budgets.upload_bytes:
            raise _no_room("upload_bytes", self._budgets.upload_bytes, "the uploads of all callers")
        self._by_caller[caller] = mine
        self._total += size


async def read_body(receive: Receive, *, declared: int | None, budgets: Budgets, upload: Upload) -> bytes:
    """The whole body of a request. ``declared`` is its Content-Length, if it has one.

    Raises `BodyRefused`, or `ClientGone`.
    """
    if declared is not None:
        _check_size(declared, budgets)
        upload.grow_to(declared)
    try:
        async with asyncio.timeout(budgets.body_s):
            return await _read(receive, budgets, upload)
    except TimeoutError:
        text = f"the body did not come within {budgets.body_s:g} s ({budget_name('body_s')}). Send it faster."
    raise BodyRefused(408, text, budget="body_s")


async def _read(receive: Receive, budgets: Budgets, upload: Upload) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        piece = message.get("body", b"")
        if not pieces and not message.get("more_body"):
            _check_size(len(piece), budgets)
            upload.grow_to(len(piece))
            return bytes(piece)
        pieces.append(piece)
        size += len(piece)
        _check_size(size, budgets)
        upload.grow_to(size)
        if not message.get("more_body"):
            return b"".join(pieces)


def _check_size(size: int, budgets: Budgets) -> None:
    if size > budgets.max_body_bytes:
        raise BodyRefused(
            413,
            f"the body is over {budgets.max_body_bytes} bytes ({budget_name('max_body_bytes')}). Send less at once.",
            budget="max_body_bytes",
        )


def _no_room(field: str, limit: int, whose: str) -> BodyRefused:
    return BodyRefused(
        429,
        f"{whose} hold {limit} bytes already ({budget_name(field)}). Try again in {RETRY_S:g} s.",
        budget=field,
        retry_after_s=RETRY_S,
    )
