"""A client as light as can be, so that ten thousand are no load of their own: one connection, one call at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

PROTOCOL = "2025-11-25"
"""The revision most clients speak; it needs no handshake with a stateless server."""

_END_OF_HEAD = b"\r\n\r\n"


class CallFailed(Exception):
    """A call did not come back with a result. The text says how."""


class BenchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's answer: structured content, text, whether it is an error, and when it had come (monotonic seconds)."""

    content: dict[str, Any]
    text: str
    is_error: bool
    at_s: float


class BenchClient(asyncio.Protocol):
    """One caller's connection to an MCP endpoint."""

    __slots__ = ("_buffer", "_head", "_number", "_path", "_transport", "_waiting", "sent_s")

    def __init__(self, *, host: str, path: str, api_key: str) -> None:
        self._path = path
        self._head = (
            f"Host: {host}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nAuthorization: Bearer {api_key}\r\n"
            f"MCP-Protocol-Version: {PROTOCOL}\r\n"
        )
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._number = 0
        self._waiting: asyncio.Future[BenchAnswer] | None = None
        self.sent_s = 0.0
        """When the last call was sent, in monotonic seconds."""

    @classmethod
    async def connect(cls, host: str, port: int, *, path: str, api_key: str) -> BenchClient:
        """Connect; `close` ends it."""
        client = cls(host=f"{host}:{port}", path=path, api_key=api_key)
        await asyncio.get_running_loop().create_connection(lambda: client, host, port)
        return client

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def call(self, tool: str, arguments: Mapping[str, Any]) -> asyncio.Future[BenchAnswer]:
        """Send a call; the future gets its answer, or `CallFailed`."""
        self._number += 1
        body = msgspec.json.encode(
            {
                "jsonrpc": "2.0",
                "id": self._number,
                "method": "tools/call",
                "params": {"name": tool, "arguments": arguments},
            }
        )
        head = f"POST {self._path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._waiting = asyncio.get_running_loop().create_future()
        self._buffer.clear()
        if self._transport is None or self._transport.is_closing():
            self._waiting.set_exception(CallFailed("the connection is closed"))
        else:
            self.sent_s = time.monotonic()
            self._transport.write(head.encode() + body)
        return self._waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(CallFailed("the connection was cut"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        try:
            answer = answer_in(bytes(self._buffer))
        except CallFailed as failed:
            waiting.set_exception(failed)
            return
        if answer is not None:
            self._buffer.clear()
            waiting.set_result(answer)


def answer_in(received: bytes) -> BenchAnswer | None:
    """The answer, once all of it has come; raises `CallFailed` for anything but a tool's result."""
    head, found, rest = received.partition(_END_OF_HEAD)
    if not found:
        return None
    status, _, fields = head.partition(b"\r\n")
    fields = fields.lower()
    if b"transfer-encoding: chunked" in fields:
        if not rest.endswith(b"0\r\n\r\n"):
            return None
        body = _unchunked(rest)
    else:
        length = int(fields.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(rest) < length:
            return None
        body = rest[:length]
    if b" 200 " not in status + b" ":
        raise CallFailed(f"{status.decode('latin-1')}: {body[:200].decode('utf-8', 'replace')}")
    at_s = time.monotonic()
    message = msgspec.json.decode(_last_event(body) if b"text/event-stream" in fields else body)
    result = message.get("result")
    if result is None:
        raise CallFailed(f"a protocol error: {message.get('error')}")
    blocks = result.get("content") or ()
    return BenchAnswer(
        content=result.get("structuredContent") or {},
        text="\n".join(block.get("text", "") for block in blocks),
        is_error=bool(result.get("isError")),
        at_s=at_s,
    )


def _unchunked(data: bytes) -> bytes:
    parts = []
    while data:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            break
        parts.append(data[:count])
        data = data[count + 2 :]
    return b"".join(parts)


def _last_event(stream: bytes) -> bytes:
    lines = [line[5:].strip() for line in stream.splitlines() if line.startswith(b"data:")]
    if not lines:
        raise CallFailed("a stream without an event")
    return lines[-1]
