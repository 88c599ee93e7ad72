"""One open WebSocket of a host: its send buffer, its pings, how it ends (FMSG-003, WebSocket)."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web

from sandbox.core import Core
from sandbox.routes import CALLER, CLAIMS, core_of

_CLOSE_WAIT_S = 1.0
"""How long a closed socket waits for the client's close frame: a sandbox stops quickly."""


class Socket:
    """An open socket of one identity. The request handler that runs it owns its tasks and timers."""

    def __init__(self, core: Core, ws: web.WebSocketResponse, request: web.Request) -> None:
        self.address = request[CALLER]
        """The identity whose events it gets."""
        self.key_id = request[CLAIMS].api_key_id
        """The API key behind it."""
        self._core = core
        self._ws = ws
        self._transport = request.transport
        self._buffer: deque[bytes] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._life_at_s = self._loop.time()
        self._ping_at_s = self._life_at_s + core.switches.ping_s
        self._pinging: asyncio.Task[None] | None = None
        self._timer = self._loop.call_at(self._ping_at_s, self._look)
        self._expiry: asyncio.TimerHandle | None = None
        if not core.switches.sockets_outlive_tokens:
            self._expiry = self._loop.call_later(max(0.0, request[CLAIMS].exp - core.clock()), self.close)

    def offer(self, frame: bytes) -> None:
        """Send the frame. A socket whose buffer is full is closed instead."""
        if self._closer is not None:
            return
        bound = self._core.switches.send_buffer_frames
        if bound and len(self._buffer) >= bound:
            self._core.faults.cut_bursts += 1
            self.close()
            return
        self._buffer.append(frame)
        if self._writer is None:
            # Ends when the buffer is empty; `run` cancels it with the socket.
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._buffer:
                await self._ws.send_frame(self._buffer.popleft(), WSMsgType.TEXT)
        except (ConnectionError, RuntimeError):
            self.drop()
        finally:
            self._writer = None

    def close(self, code: int = WSCloseCode.OK) -> None:
        """Close with a close frame."""
        self._core.listener.remove(self.address, self)
        if self._closer is None:
            # Awaited by `run`.
            self._closer = self._loop.create_task(self._close(code))

    async def _close(self, code: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * _CLOSE_WAIT_S):
                await self._ws.close(code=code, drain=False)
        if self._transport is not None and self._transport.get_write_buffer_size() > 0:
            self._transport.abort()  # The client does not read: what it has not taken by now it never gets.

    def drop(self) -> None:
        """Cut the connection without a close frame."""
        self._core.listener.remove(self.address, self)
        if self._transport is not None:
            self._transport.abort()

    async def run(self) -> None:
        """Read until the socket ends. What a client writes is ignored."""
        try:
            while True:
                message = await self._ws.receive()
                if message.type is WSMsgType.PONG:
                    self._life_at_s = self._loop.time()
                elif message.type is WSMsgType.PING:
                    await self._ws.pong(message.data)
                elif message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    return
        except ConnectionError:
            return
        finally:
            self._core.listener.remove(self.address, self)
            self._timer.cancel()
            if self._expiry is not None:
                self._expiry.cancel()
            for task in (self._writer, self._pinging):
                if task is not None:
                    task.cancel()
            if self._closer is not None:
                await asyncio.wait({self._closer})

    def _look(self) -> None:
        switches, now_s = self._core.switches, self._loop.time()
        if now_s >= self._life_at_s + switches.pong_wait_s:
            self.drop()
            return
        if now_s >= self._ping_at_s:
            self._ping_at_s = now_s + switches.ping_s
            # `run` cancels it with the socket.
            self._pinging = self._loop.create_task(self._send_ping())
        self._timer = self._loop.call_at(min(self._ping_at_s, self._life_at_s + switches.pong_wait_s), self._look)

    async def _send_ping(self) -> None:
        try:
            await self._ws.ping()
        except (ConnectionError, RuntimeError):
            self.drop()


async def events(request: web.Request) -> web.StreamResponse:
    """``GET /fmsg/ws``."""
    core = core_of(request)
    ws = web.WebSocketResponse(
        autoping=False, compress=False, max_msg_size=core.limits.client_frame_bytes, timeout=_CLOSE_WAIT_S
    )
    await ws.prepare(request)
    core.faults.count_connect(core.clock)
    socket = Socket(core, ws, request)
    core.listener.add(socket.address, socket)
    await socket.run()
    return ws
