"""Lines from and to file descriptors without blocking the event loop, whatever the descriptors are.

A read that waits in a thread cannot be ended, and a process that cannot be interrupted is killed by its host. So pipes,
sockets and terminals are read by the event loop; a thread is left for regular files, which never wait.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, Protocol

MAX_LINE_BYTES = 128 * 1024 * 1024
"""The longest message that is taken in: what the HTTP front takes, and as much again. It bounds the memory of a host
that never ends its line."""


class LineTooLong(ValueError):
    """A line is longer than `MAX_LINE_BYTES`; it has been thrown away."""


class Lines(Protocol):
    """Where lines come from."""

    async def next(self) -> bytes:
        """The next line with its end; empty at the end of everything. Raises `LineTooLong`."""
        ...


class Sink(Protocol):
    """Where bytes go."""

    gone: asyncio.Event
    """Set when the reader has closed its end."""

    async def write(self, data: bytes) -> None:
        """Write all of it, waiting while the other side does not read. Raises `OSError` when it has gone."""
        ...


@asynccontextmanager
async def lines_from(fd: int, *, first: bytes = b"", max_line_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[Lines]:
    """The lines of a descriptor, which stays open; ``first`` was read from it before."""
    if not _waits(fd):
        with os.fdopen(os.dup(fd), "rb") as buffered:
            yield _FileLines(buffered, first, max_line_bytes)
        return
    file = os.fdopen(os.dup(fd), "rb", 0)
    was_blocking = os.get_blocking(fd)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=max_line_bytes)
    reader.feed_data(first)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        yield _StreamLines(reader)
    finally:
        transport.close()
        _restore(fd, was_blocking)


@asynccontextmanager
async def sink_to(fd: int) -> AsyncIterator[Sink]:
    """A descriptor to write to, which stays open."""
    file = os.fdopen(os.dup(fd), "wb", 0)
    if not _waits(fd):
        with file:
            yield _FileSink(file)
        return
    was_blocking = os.get_blocking(fd)
    loop = asyncio.get_running_loop()
    protocol = _Watched(loop=loop)
    transport, _ = await loop.connect_write_pipe(lambda: protocol, file)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        yield _StreamSink(writer, protocol.gone)
    finally:
        transport.close()
        _restore(fd, was_blocking)


class _StreamLines:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError:
            raise LineTooLong from None


class _FileLines:
    def __init__(self, file: BinaryIO, first: bytes, max_line_bytes: int) -> None:
        self._file = file
        self._first = first.splitlines(keepends=True)
        self._max_line_bytes = max_line_bytes

    async def next(self) -> bytes:
        begun = self._first.pop(0) if self._first else b""
        if begun.endswith(b"\n"):
            return begun
        line = begun + await asyncio.to_thread(self._file.readline, self._max_line_bytes)
        if len(line) == self._max_line_bytes and not line.endswith(b"\n"):
            raise LineTooLong
        return line


class _Watched(asyncio.streams.FlowControlMixin):
    """Notices at once that the reader of a pipe has closed its end."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.gone = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.gone.set()


class _StreamSink:
    def __init__(self, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        self._writer = writer
        self.gone = gone

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class _FileSink:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.gone = asyncio.Event()

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[await asyncio.to_thread(self._file.write, view) or 0 :]


def _waits(fd: int) -> bool:
    """Whether the event loop can wait for the descriptor: not so for files, nor for /dev/null."""
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)):
        return False
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(fd, selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError:
            return False
    return True


def _restore(fd: int, blocking: bool) -> None:
    """A terminal is shared with the shell, which does not expect it not to block."""
    try:
        os.set_blocking(fd, blocking)
    except OSError:
        return
