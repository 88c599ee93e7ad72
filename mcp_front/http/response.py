"""One JSON-RPC request over HTTP: handled in the task that received it, answered as JSON or as a stream.

A request has no stream pair, task or timer of its own: a held call costs what its handler costs. An answer that is
there soon is plain JSON. One that takes longer, or reports progress, becomes ``text/event-stream`` and is kept alive by
comments, all from one timer (`mcp_front.timer_wheel`). A client that goes away ends its call at once, streaming or not
(MCP 2026-07-28: a disconnect counts as a cancellation).

A large answer is encoded and written in pieces, each when the client has taken the one before. The memory it takes is
on the caller's budget until the last piece is written.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any

import anyio
import mcp_types
import msgspec
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, modern_error_data
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext

from mcp_front.failures import failure_of, failure_result
from mcp_front.http.request import Envelope
from mcp_front.limits import AnswerShare, OverBudget
from mcp_front.timer_wheel import TimerWheel

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
"""The last one keeps nginx from collecting the stream before it passes it on."""
PING = b": ping\r\n\r\n"
"""An SSE comment: clients ignore it, proxies see life."""
_TRANSPORT = TransportContext(kind="streamable-http", can_send_request=False)

PIECE_BYTES = 64 * 1024
"""A larger answer is written in pieces of about this size, and a longer string in it encoded so: each in under 1 ms."""
LEAST_READ_RATE = 32 * 1024
"""Bytes of memory per second that a client has to take of a large answer: what it holds, others cannot have."""

_fast = msgspec.json.Encoder().encode


class SlowReader(Exception):
    """The client takes a large answer too slowly. The connection has to be dropped in the middle of it."""


class AnswerMessage:
    """A JSON-RPC message to be sent, as JSON without line breaks, with its long strings apart."""

    def __init__(self, message: dict[str, Any]) -> None:
        self._long: list[str] = []
        self._marker = ""
        """Stands for a long string in the rest. It is drawn only where there is one."""
        self._rest = _encode(self._shortened(message) if _has_long(message) else message)

    @property
    def memory_bytes(self) -> int:
        """What it takes."""
        return len(self._rest) + sum(map(sys.getsizeof, self._long))

    @property
    def whole(self) -> bytes | None:
        """All of it, where it is small enough to be written at once."""
        return self._rest if self.memory_bytes <= PIECE_BYTES else None

    def pieces(self) -> Iterator[bytes]:
        """It in pieces of a few times `PIECE_BYTES` at most."""
        rest = self._rest
        for number, text in enumerate(self._long):
            before, _, rest = rest.partition(f'"{self._marker}{number}"'.encode())
            yield from _cut(before + b'"')
            for begin in range(0, len(text), PIECE_BYTES):
                yield _encode(text[begin : begin + PIECE_BYTES])[1:-1]
            rest = b'"' + rest
        yield from _cut(rest)

    def _shortened(self, value: Any) -> Any:
        """The value with a mark in place of each long string."""
        if isinstance(value, str):
            return self._mark(value) if len(value) > PIECE_BYTES else value
        if isinstance(value, dict):
            return {name: self._shortened(item) for name, item in value.items()}
        return [self._shortened(item) for item in value] if isinstance(value, list) else value

    def _mark(self, text: str) -> str:
        self._marker = self._marker or secrets.token_hex(16)
        self._long.append(text)
        return f"{self._marker}{len(self._long) - 1}"


class Exchange:
    """One request and its answer. The SDK sees it as the request's dispatch context."""

    __slots__ = (
        "_answer_share",
        "_cancel_requested",
        "_committed",
        "_envelope",
        "_extra_headers",
        "_gone",
        "_json",
        "_over",
        "_ping_s",
        "_send",
        "_stall_s",
        "_stream",
        "_stream_after_s",
        "_task",
        "_timer_wheel",
        "_token",
        "message_metadata",
        "request_id",
    )

    can_send_request = False
    """There is no way back to the client but this one answer."""
    transport = _TRANSPORT

    def __init__(
        self,
        envelope: Envelope,
        send: Send,
        *,
        timer_wheel: TimerWheel,
        accepts_json: bool,
        accepts_stream: bool,
        stream_after_s: float,
        ping_s: float,
        request: object,
        answer_share: AnswerShare,
        write_stall_s: float,
        extra_headers: list[tuple[bytes, bytes]],
    ) -> None:
        """``request`` is what handlers get as ``ctx.request``; what they reserve is in ``answer_share``.

        A client that takes nothing for ``write_stall_s`` is given up.
        """
        self.request_id = envelope.request_id
        self.message_metadata = ServerMessageMetadata(request_context=request, can_send_request=False)
        self._cancel_requested: anyio.Event | None = None
        self._envelope = envelope
        self._token = envelope.progress_token
        self._send = send
        self._timer_wheel = timer_wheel
        self._json = accepts_json
        self._stream = accepts_stream
        self._stream_after_s = stream_after_s
        self._ping_s = ping_s
        self._answer_share = answer_share
        self._stall_s = write_stall_s
        self._extra_headers = extra_headers
        self._committed = False
        self._over = False
        self._gone = False
        self._task = asyncio.current_task()

    @property
    def cancel_requested(self) -> anyio.Event:
        """Never set: over HTTP a client cancels by going away, and then the task is cancelled."""
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
        return self._cancel_requested

    async def run(self, server: Server[Any], lifespan_state: object) -> None:
        """Handle the request and answer it. Returns without an answer where the client has gone.

        Raises `SlowReader`.
        """
        envelope = self._envelope
        if self._stream:
            self._timer_wheel.add(self, self._stream_after_s)
        try:
            try:
                # As the SDK's `serve_one`, without closing what a connection may have been given to close: ours are
                # given nothing, and every held call would keep a frame for it.
                runner = ServerRunner(server, envelope.connection, lifespan_state)
                on_request = runner.on_request
                # It keeps the method it gave out, which refers to it: only a full garbage collection would free that.
                vars(runner).pop("on_request", None)
                result = await on_request(self, envelope.method, envelope.params)
                status, answer = 200, {"jsonrpc": "2.0", "id": self.request_id, "result": result}
            except Exception as error:  # noqa: BLE001 - the SDK's ladder of errors; unknown ones are logged there
                status, answer = self._failed(error, modern=envelope.modern)
            self._over = True
            await self._finish(status, AnswerMessage(answer))
        except asyncio.CancelledError:
            if not self._gone or self._over:
                raise
            if self._task is not None:
                self._task.uncancel()
        finally:
            self._over = True
            self._timer_wheel.forget(self, self._stream_after_s)
            self._timer_wheel.forget(self, self._ping_s)

    def lost(self) -> None:
        """The client has gone away: the handler ends, or the writing of the answer."""
        self._gone = True
        if not self._over and self._task is not None:
            self._task.cancel()

    def due(self) -> None:
        """Time to show life: by becoming a stream, and then by a comment."""
        if self._over:
            return
        if not self._committed:
            self._committed = True
            _run_now(self._send(self._start()))
        # A client that does not read gets no comments on top.
        _run_now(self._send({"type": "http.response.body", "body": PING, "more_body": True}))
        self._timer_wheel.add(self, self._ping_s)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """A stateless server asks clients nothing."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification ahead of the answer; dropped where the client accepts JSON only."""
        if not self._stream or self._over:
            return
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        await self._write(_encode(message), more=True)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, where the client gave a token for it."""
        if self._token is None:
            return
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)

    def _failed(self, error: Exception, *, modern: bool) -> tuple[int, dict[str, Any]]:
        told = modern_error_data(error)
        fields: dict[str, Any] = {"code": told.code, "message": told.message}
        if told.data is not None:
            fields["data"] = told.data
        status = ERROR_CODE_HTTP_STATUS.get(told.code, 200) if modern else 200
        return status, {"jsonrpc": "2.0", "id": self.request_id, "error": fields}

    async def _finish(self, status: int, message: AnswerMessage) -> None:
        payload = message.whole
        if payload is not None:
            self._answer_share.release()
            if self._committed or not self._json:
                await self._write(payload, more=False)
            else:
                await reply(self._send, status, payload, self._extra_headers)
            return
        size = message.memory_bytes
        try:
            await self._answer_share.settle(size)
        except OverBudget as over:
            await self._finish(status, AnswerMessage(self._over_budget(over)))
            return
        try:
            async with asyncio.timeout(self._stall_s + size / LEAST_READ_RATE):
                await self._write_large(status, message)
        except TimeoutError:
            raise SlowReader from None

    async def _write_large(self, status: int, message: AnswerMessage) -> None:
        stream = self._committed or not self._json
        if not self._committed:
            self._committed = True
            headers = STREAM_HEADERS if stream else [(b"content-type", b"application/json")]
            head = {"type": "http.response.start", "status": status, "headers": [*headers, *self._extra_headers]}
            await self._send(head)
        if stream:
            await self._send({"type": "http.response.body", "body": b"event: message\r\ndata: ", "more_body": True})
        for piece in message.pieces():
            if self._gone:
                return
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)  # Others have their turn, also where the client takes everything at once.
        await self._send({"type": "http.response.body", "body": b"\r\n\r\n" if stream else b""})

    def _over_budget(self, over: OverBudget) -> dict[str, Any]:
        """In place of an answer that there is no memory for: of a tool call, a result that says so."""
        if self._envelope.method == "tools/call":
            result = failure_result(failure_of(over)).model_dump(by_alias=True, mode="json", exclude_none=True)
            if self._envelope.modern:
                result["resultType"] = "complete"
            return {"jsonrpc": "2.0", "id": self.request_id, "result": result}
        error = {"code": mcp_types.INTERNAL_ERROR, "message": str(over)}
        return {"jsonrpc": "2.0", "id": self.request_id, "error": error}

    async def _write(self, payload: bytes, *, more: bool) -> None:
        """One event, and before the first one the head of the stream."""
        if not self._committed:
            self._committed = True
            self._timer_wheel.forget(self, self._stream_after_s)
            self._timer_wheel.add(self, self._ping_s)
            await self._send(self._start())
        event = b"event: message\r\ndata: " + payload + b"\r\n\r\n"
        await self._send({"type": "http.response.body", "body": event, "more_body": more})

    def _start(self) -> dict[str, Any]:
        return {"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *self._extra_headers]}


async def reply(
    send: Send,
    status: int,
    body: bytes,
    headers: list[tuple[bytes, bytes]],
    *,
    content_type: bytes = b"application/json",
) -> None:
    """A whole answer at once."""
    head = [(b"content-length", str(len(body)).encode()), *headers]
    if body:
        head.insert(0, (b"content-type", content_type))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _has_long(message: dict[str, Any]) -> bool:
    left: list[Any] = [message]
    while left:
        value = left.pop()
        if isinstance(value, str):
            if len(value) > PIECE_BYTES:
                return True
        elif isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return False


def _cut(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), PIECE_BYTES):
        yield data[begin : begin + PIECE_BYTES]


def _encode(value: Any) -> bytes:
    try:
        return _fast(value)
    except UnicodeEncodeError:
        # Half of a surrogate pair somewhere in a text: as an escape it is still JSON.
        return json.dumps(value, separators=(",", ":")).encode()


def _run_now(writing: Awaitable[None]) -> None:
    """Run a write that needs not wait, outside of any task; one that would have to wait is dropped.

    The server writes into the connection's buffer and waits only where that is full.
    """
    if not isinstance(writing, Coroutine):
        raise TypeError("an ASGI server's send is a coroutine function")
    try:
        writing.send(None)
    except StopIteration:
        return
    writing.close()
