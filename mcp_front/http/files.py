"""Files over HTTP, beside the MCP endpoint: they travel without passing through a model's context.

``GET <endpoint>/attachments/{id}/{filename}`` streams an attachment, whole or in part (RFC 9110, 14).
``PUT <endpoint>/uploads`` streams a file to the host and answers with a handle that ``send_message`` and ``reply`` take
for an hour. Both take the credentials of the endpoint. Nothing is kept here: an upload rests on the host, as the
attachment of a draft of the caller's own.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import msgspec

from fmsg.errors import BadInput, FmsgError, HostRefused, NotFound, Transient, Unauthorized
from fmsg.reference import parse_reference
from fmsg.transfer import Download, meant_name
from ledger.port import DeferredTasks
from ledger.values import CallerKey
from mcp_front.caller import Caller
from mcp_front.framing import quoted, visible
from mcp_front.http.admission import OUTAGE_RETRY_S, Refused, key_refused, retry_after, values_of
from mcp_front.http.body import ClientGone
from mcp_front.http.response import Receive, Send, reply
from mcp_front.sending.deliver import Post
from mcp_front.sending.stored import UPLOAD_S, keep
from mcp_front.settings import Budgets

STEP_BYTES = 256 * 1024
"""What an upload has to bring within `STEP_S`: a slower one would hold its connections for a quarter of an hour."""
STEP_S = 20.0
"""Less than the host connection may rest (`fmsg.http.Deadlines.idle_s`): then it is known whose fault it is."""
TRANSFERS_PER_CALLER = 8
"""At the same time, in one process. Each holds one of the requests to the host and up to 3 MB of memory, for as long
as its client likes to take; eight saturate a line."""
TRANSFERS = 64
"""The same of all callers together: a quarter of the requests that the host is asked at once, so that the tools go on
(`fmsg.http.MAX_CONCURRENT`)."""
BUSY_RETRY_S = 2.0

_RANGE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_SAFE_HEADERS = [
    # Whatever the sender says it is, a browser saves it and never shows or runs it.
    (b"content-type", b"application/octet-stream"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"cache-control", b"private, no-store"),
    (b"cross-origin-resource-policy", b"same-site"),
]

RawHeaders = list[tuple[bytes, bytes]]


class Part(msgspec.Struct, frozen=True):
    """The bytes that are wanted of a file: from ``start`` up to ``end``, exclusive."""

    start: int
    end: int


class Unsatisfiable(Exception):
    """A range that lies outside the file (RFC 9110, 14.4)."""


def wanted_part(header: bytes | None, size: int | None) -> Part | None:
    """The part that a Range header asks for; None for the whole, also where the header cannot be served.

    Raises `Unsatisfiable`.
    """
    if header is None or size is None:
        return None
    match = _RANGE.fullmatch(header.strip())
    if match is None or (not match[1] and not match[2]):
        return None
    if not match[1]:
        length = int(match[2])
        if not length or not size:
            raise Unsatisfiable
        return Part(max(0, size - length), size)
    start, end = int(match[1]), int(match[2]) + 1 if match[2] else size
    if start >= size:
        raise Unsatisfiable
    return Part(start, min(end, size)) if end > start else None


class Files:
    """The file routes of one front."""

    def __init__(self, endpoint: str, deferred: DeferredTasks, budgets: Budgets) -> None:
        self._attachments = f"{endpoint}/attachments/"
        self._uploads = f"{endpoint}/uploads"
        self._deferred = deferred
        self._budgets = budgets
        self._running: Counter[CallerKey] = Counter()

    def serves(self, path: str) -> bool:
        """Whether a path is one of these."""
        return path == self._uploads or path.startswith(self._attachments)

    def writes(self, path: str) -> bool:
        """Whether a path changes something, so that a grant to read is not enough."""
        return path == self._uploads

    async def __call__(
        self, scope: dict[str, Any], receive: Receive, send: Send, caller: Caller, extra: RawHeaders
    ) -> None:
        """Serve a request of the caller's. Raises `Refused`, `ClientGone`; `Broken` in the middle of an answer."""
        method = scope["method"]
        upload = self.writes(scope["path"])
        if method not in (("PUT", "POST") if upload else ("GET", "HEAD")):
            allow = [(b"allow", b"PUT, POST" if upload else b"GET, HEAD")]
            raise Refused(
                405, f"{'PUT a file' if upload else 'GET an attachment'} here.", reason="method", headers=allow
            )
        try:
            with self._transfer(caller.key):
                if upload:
                    await self._take(receive, send, caller, extra)
                else:
                    await self._give(scope, send, caller, extra)
        except FmsgError as error:
            raise _refused(error) from None

    @contextmanager
    def _transfer(self, caller: CallerKey) -> Iterator[None]:
        """One of the places for transfers. Raises `Refused`."""
        for running, limit, whose in (
            (self._running[caller], TRANSFERS_PER_CALLER, "this address"),
            (self._running.total(), TRANSFERS, "all callers of this server process"),
        ):
            if running >= limit:
                text = f"{limit} files of {whose} are on their way already, and that is the limit. Try again soon."
                raise Refused(429, text, reason="transfers", headers=[retry_after(BUSY_RETRY_S)])
        self._running[caller] += 1
        try:
            yield
        finally:
            self._running[caller] -= 1
            self._running += Counter()  # forgets who has none

    async def _give(self, scope: dict[str, Any], send: Send, caller: Caller, extra: RawHeaders) -> None:
        message_id, filename = self._named(scope)
        try:
            await self._stream(scope, send, caller, message_id, filename, extra)
        except NotFound:
            message = await caller.api.message(message_id)
            meant = meant_name(filename, [info.filename for info in message.attachments or ()], shown=visible)
            if meant is None or meant == filename:
                raise
            await self._stream(scope, send, caller, message_id, meant, extra)

    async def _stream(
        self, scope: dict[str, Any], send: Send, caller: Caller, message_id: int, filename: str, extra: RawHeaders
    ) -> None:
        async with caller.api.attachment(message_id, filename) as download:
            size = download.size
            head = [*_SAFE_HEADERS, (b"content-disposition", disposition(filename)), *extra]
            try:
                part = wanted_part(_range(scope["headers"]), size)
            except Unsatisfiable:
                await reply(send, 416, b"", [(b"content-range", f"bytes */{size}".encode()), *head])
                return
            if size is not None:
                head.append((b"accept-ranges", b"bytes"))
                length = size if part is None else part.end - part.start
                head.append((b"content-length", str(length).encode()))
            if part is not None:
                head.append((b"content-range", f"bytes {part.start}-{part.end - 1}/{size}".encode()))
            await send({"type": "http.response.start", "status": 200 if part is None else 206, "headers": head})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            await self._pour(download, part, send)

    async def _pour(self, download: Download, part: Part | None, send: Send) -> None:
        """The bytes as they come, as fast as the client takes them. Raises `Broken`."""
        position = 0
        try:
            async for chunk in download.chunks:
                first, last = position, position + len(chunk)
                position = last
                if part is not None:
                    chunk = chunk[max(0, part.start - first) : max(0, part.end - first)]
                if chunk:
                    async with asyncio.timeout(self._budgets.write_stall_s):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if part is not None and last >= part.end:
                    break
        except (FmsgError, TimeoutError) as error:
            raise Broken from error
        await send({"type": "http.response.body", "body": b""})

    async def _take(self, receive: Receive, send: Send, caller: Caller, extra: RawHeaders) -> None:
        post = Post(api=caller.api, deferred=self._deferred, caller=caller.key)
        stored = await keep(post, caller.address, _pieces(receive))
        answer = {"upload": stored.handle, "size": stored.size, "expires_in": int(UPLOAD_S)}
        await reply(send, 201, msgspec.json.encode(answer), extra)

    def _named(self, scope: dict[str, Any]) -> tuple[int, str]:
        # Of the raw path: a slash in a name is %2F there, and a slash in the decoded path.
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        parts = raw.partition(b"?")[0].removeprefix(self._attachments.encode()).split(b"/")
        if len(parts) != 2 or not parts[1]:
            raise Refused(404, "An attachment is at attachments/{id}/{filename}.", reason="path")
        try:
            return parse_reference(parts[0].decode("ascii", "replace")), unquote_to_bytes(parts[1]).decode()
        except (BadInput, UnicodeDecodeError):
            raise Refused(404, "An attachment is at attachments/{id}/{filename}.", reason="path") from None


class Broken(Exception):
    """An answer that cannot be finished: the host stopped giving, or the client taking. Drop the connection."""


def disposition(filename: str) -> bytes:
    """Content-Disposition for saving under a name (RFC 6266): never shown in place."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\/' else "_" for c in filename) or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}".encode("ascii")


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    """A request's body as it comes. Raises `Refused` where it comes too slowly, `ClientGone` where it ends early."""
    more = True
    while more:
        got = 0
        try:
            async with asyncio.timeout(STEP_S) as step:
                while more and got < STEP_BYTES:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    piece: bytes = message.get("body", b"")
                    more = bool(message.get("more_body", False))
                    got += len(piece)
                    if piece:
                        step.reschedule(None)  # while the host takes it, time does not count against the client
                        yield piece
                        step.reschedule(asyncio.get_running_loop().time() + STEP_S)
        except TimeoutError:
            text = f"The file came slower than {STEP_BYTES // 1024} KiB in {STEP_S:g} s. Send it again, faster."
            raise Refused(408, text, reason="least_rate", headers=[(b"connection", b"close")]) from None


def _range(headers: RawHeaders) -> bytes | None:
    values = values_of(headers, b"range")
    return values[0] if len(values) == 1 else None


def _refused(error: FmsgError) -> Refused:
    """The host's refusal as an HTTP status of ours, with its own words."""
    reason = quoted(error.reason) if isinstance(error, HostRefused) else visible(str(error))
    if isinstance(error, Unauthorized):
        return Refused(401, key_refused(error).text, reason="key_refused")
    if isinstance(error, Transient):
        wait = [retry_after(error.retry_after_s or OUTAGE_RETRY_S)]
        return Refused(503, f"The fmsg host cannot do that now: {reason}", reason="host_unavailable", headers=wait)
    if isinstance(error, HostRefused):
        status = error.status if error.status in (400, 403, 404, 409, 413) else 502
        return Refused(status, f"The fmsg host refused: {reason}", reason="host_refused")
    return Refused(400, visible(str(error)), reason="bad_input")
