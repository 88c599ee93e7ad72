"""Bytes to a front and back, for what no HTTP client would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.mcp_front.fakes import ANSWER_S, Front


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        """Send bytes; that the other side has hung up is found out by reading."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            return

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer. (0, {}, b"") at the end."""
        async with asyncio.timeout(ANSWER_S):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return 0, {}, b""
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return int(lines[0].split()[1]), headers, body

    async def closed(self) -> bool:
        """Wait for the other side to hang up; whatever it still says is dropped."""
        async with asyncio.timeout(ANSWER_S):
            try:
                while await self.reader.read(65536):
                    continue
            except ConnectionError:
                return True
        return True


@asynccontextmanager
async def wire(running: Front) -> AsyncIterator[Wire]:
    """A connection to the front."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


def post(key: str, message: object, *more: bytes, host: bytes = b"localhost") -> bytes:
    """The bytes of a request."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    lines = [
        b"POST /mcp HTTP/1.1",
        b"Host: " + host,
        b"Authorization: Bearer " + key.encode(),
        b"Content-Type: application/json",
        b"Accept: application/json, text/event-stream",
        b"Content-Length: %d" % len(body),
        *more,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
