"""One client connection: uvicorn's HTTP/1.1 protocol, with what it would let pass bounded or left out.

Headers have a budget and a deadline. The rest of a refused body is thrown away up to a limit. Trailers and offers of
another protocol are ignored. The request that is being handled hears of the end of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcp_front.settings import Budgets, budget_name
from mcp_front.timer_wheel import TimerWheel
from telemetry import metrics

log = logging.getLogger("mcp_front.http.connection")
log.setLevel(logging.ERROR)  # A client that sends garbage must not fill the disk: garbage is counted, not logged.

DISCARDED_BYTES = 1024 * 1024
"""What is thrown away of a body that was refused before its sender was known. To close at once would be cheaper, but
then the kernel resets the connection under the bytes still coming in, and the client sees that, not the answer."""
_OFFERS = frozenset({b"connection", b"upgrade", b"http2-settings"})
"""Headers that offer to go on in another protocol."""


class HeadersTooLarge(Exception):
    """The headers of a request are over budget."""


class _Pipeline(list[Any]):
    """Requests that came while another was answered. Next to always empty, and a deque reserves 700 bytes for that."""

    def appendleft(self, item: Any) -> None:
        """As of a deque."""
        self.insert(0, item)


class Connection(HttpToolsProtocol):
    """A connection of the front. The request's scope has it as ``scope["state"]["connection"]``."""

    # Beside uvicorn's attributes, of which there are as many as instances can share the keys of: one more in their
    # dictionary, and each connection has a whole dictionary of its own.
    __slots__ = (
        "_budgets",
        "_discarded_bytes",
        "_head_bytes",
        "_idle_bytes",
        "_in_head",
        "_moved",
        "_timed",
        "_timer_wheel",
        "_too_large",
        "discard_bytes",
        "on_lost",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        budgets: Budgets,
        timer_wheel: TimerWheel,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = log
        self.access_log = False
        self.pipeline = _Pipeline()  # type: ignore[assignment]  # uvicorn adds at one end and takes at the other
        self.on_lost: Callable[[], None] | None = None
        """Called once when the client is gone. Set while a request is handled."""
        self.discard_bytes = DISCARDED_BYTES
        """How much of a refused body is read and thrown away before the connection is closed."""
        self._discarded_bytes = 0
        self._in_head = True
        self._budgets = budgets
        self._timer_wheel = timer_wheel
        self._head_bytes = 0
        self._idle_bytes = 0
        self._moved = False
        self._too_large = False
        self._timed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """A client has connected; it has ``header_s`` for its first request's headers."""
        super().connection_made(transport)
        if len(self.connections) > self._budgets.max_connections:
            metrics.REFUSALS.labels("max_connections").inc()
            transport.abort()
            return
        self._begin_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or we have closed."""
        self._end_deadline()
        super().connection_lost(exc)
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()
        # They refer to the connection, and it to them: only a full collection would free them, and those are rare.
        self.cycle = None  # type: ignore[assignment]  # as before the first request
        self.scope = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Bytes between requests begin a new deadline, whatever they are.

        The parser hands a header out when it is complete: bytes it takes without getting anywhere are counted here.
        """
        if self.cycle is not None and self.cycle.response_complete:
            self._begin_deadline()
        self._moved = False
        self._unset_keepalive_if_required()
        self._feed(data)
        self._idle_bytes = 0 if self._moved else self._idle_bytes + len(data)
        if self._idle_bytes > self._budgets.header_bytes:
            self._too_large = True
            self.send_400_response("")

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("This server is no proxy.")
            else:
                self._feed(self._head_without_offer() + data[offer.args[0] :])
        except HttpParserError:
            self.send_400_response("The request is not HTTP/1.1.")

    def _head_without_offer(self) -> bytes:
        """The head that was just read, for a new parser.

        The parser takes an offer of another protocol for accepted: it does not read the body by its length but leaves
        it where the next request would be. A server may ignore an offer (RFC 9110, 7.8), and then the body is a body.
        """
        line = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b" % (name, value) for name, value in self.headers if name not in _OFFERS]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            headers.append(b"connection: close")
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([line, *headers]) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True
        self._discarded_bytes = 0
        self._head_bytes = 0
        self.scope["state"]["connection"] = self

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Blanks after a value are no part of it (RFC 9110, 5.5); the parser leaves them.

        Trailers of a chunked body come here too. They are dropped: nothing that was looked at before the body may
        change after it (RFC 9110, 6.5.1).
        """
        self._count(len(name) + len(value) + 4)
        if self._in_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """The request can be handled; its body has a deadline of its own."""
        if self.parser.should_upgrade():
            return  # The same head comes again, without the offer.
        self._in_head = False
        self._end_deadline()
        self._moved = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._moved = True
        super().on_body(body)
        if self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > self.discard_bytes and not self.transport.is_closing():
                metrics.REFUSALS.labels("discarded_bytes").inc()
                self.transport.close()

    def on_message_complete(self) -> None:
        """The request is all there."""
        if self.parser.should_upgrade():
            return
        self._moved = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser refuses: broken HTTP, or what one of the callbacks above did not take."""
        metrics.REFUSALS.labels("header_bytes" if self._too_large else "bad_http").inc()
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # In the middle of an answer nothing else can be said.
            return
        status = b"400 Bad Request"
        if self._too_large:
            status = b"431 Request Header Fields Too Large"
            msg = f"The headers are over {self._budgets.header_bytes} bytes ({budget_name('header_bytes')})."
        body = msg.encode()
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, len(body), body)
        )
        self.transport.close()

    def abort(self) -> None:
        """Drop the connection in the middle of an answer."""
        self.transport.abort()

    def due(self) -> None:
        """The headers did not come in time."""
        self._timed = False
        if not self.transport.is_closing():
            metrics.REFUSALS.labels("header_s").inc()
            self.transport.abort()

    def _begin_deadline(self) -> None:
        """Bytes that keep coming do not put it off: neither slow headers nor the rest of a refused body."""
        if not self._timed:
            self._timed = True
            self._timer_wheel.add(self, self._budgets.header_s)

    def _end_deadline(self) -> None:
        if self._timed:
            self._timed = False
            self._timer_wheel.forget(self, self._budgets.header_s)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._budgets.header_bytes:
            self._too_large = True
            raise HeadersTooLarge
