"""The event socket: pushes of ``GET /fmsg/ws`` as an iterator (FMSG-003, WebSocket).

A push is a hint that something happened, no more: on a socket that looks healthy events get lost or come out of order.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self

import aiohttp
import msgspec

from fmsg.decode import UNREADABLE, note_fault, read_message
from fmsg.errors import HostMisbehaved
from fmsg.message import Message
from fmsg.redact import scrub

log = logging.getLogger(__name__)

HEARTBEAT_S = 50.0
"""After so long a silence we ping. After half of it again without a sign of life the socket is dead. A host pings each
45 s (FMSG-003, WebSocket), so ours are for hosts that do not: ten thousand sockets are much to ping. The kernel finds
sooner that a host is gone (`fmsg.http.PROBE_AFTER_S`)."""

MAX_FRAME_BYTES = 1024 * 1024
"""The longest frame that is read. One has a message's headers and 768 bytes of its text, which is far less."""

CLOSE_WITHIN_S = 5.0
"""How long a closing socket has before it is dropped."""

MAX_REASON_CHARS = 200
"""How much of a reason is kept. A close frame's text has at most 123 bytes."""

TYPES = frozenset(("new_msg", "recipients_added", "delivered", "reaction"))
"""The event types there are. Others are skipped (FMSG-003: unknown types are ignored)."""


class Event(msgspec.Struct, frozen=True):
    """One push. For ``reaction`` the message is the refreshed subject, not the reaction."""

    type: str
    message: Message


class _Frame(msgspec.Struct, frozen=True):
    type: str
    data: msgspec.Raw


_decode_frame = msgspec.json.Decoder(_Frame).decode


class EventSocket:
    """An async iterator of `Event` that ends when the socket does, however that happens. Sends nothing but pings."""

    close_reason: str
    """Why the iteration ended; empty before."""

    skipped: int
    """Frames that were of an unknown type or could not be understood."""

    __slots__ = ("_socket", "close_reason", "skipped")

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.close_reason = ""
        self.skipped = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            frame = await self._socket.receive()
            if frame.type is aiohttp.WSMsgType.TEXT:
                event = read_event(frame.data)
                if event is not None:
                    return event
                self.skipped += 1
            elif frame.type is aiohttp.WSMsgType.BINARY:
                self.skipped += 1
            else:
                self.close_reason = self.close_reason or self._why(frame)
                raise StopAsyncIteration

    async def close(self) -> None:
        """Close; returns within a few seconds even where the host does not answer."""
        self.close_reason = self.close_reason or "closed by us"
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._socket.close()
        except TimeoutError:
            log.debug("an event socket did not close in time", extra={"action": "drop_socket"})

    def _why(self, last: aiohttp.WSMessage) -> str:
        if last.type is aiohttp.WSMsgType.CLOSE:
            said = f"closed by the host with {self._socket.close_code} {last.extra or ''}"
            return scrub(said).strip()[:MAX_REASON_CHARS]
        error = last.data if last.type is aiohttp.WSMsgType.ERROR else self._socket.exception()
        if isinstance(error, TimeoutError):
            return "no sign of life from the host"
        if isinstance(error, aiohttp.WebSocketError):
            return scrub(f"the host broke the protocol: {error}")[:MAX_REASON_CHARS]
        return "the connection was cut"


def read_event(data: str | bytes) -> Event | None:
    """The event in a text frame, or None where there is none for us in it."""
    try:
        frame = _decode_frame(data)
        if frame.type not in TYPES:
            return None
        message = read_message(frame.data)
    except (*UNREADABLE, HostMisbehaved) as error:
        note_fault("skipped an event", str(error))
        return None
    return Event(frame.type, message) if message.id else None
