"""One HTTP client for a process and one configured host: deadlines everywhere, no redirects, cookies or compression."""

from __future__ import annotations

import asyncio
import io
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from fmsg.answers import SMALL_BYTES, Answer, check, failure, read_answer
from fmsg.errors import FmsgError, HostMisbehaved, HostRefused, HostUnreachable, Unauthorized
from fmsg.redact import scrub_beginning
from fmsg.transfer import Download, Form, media_type
from fmsg.urls import PLACEHOLDER, base_url, proxy_for

T = TypeVar("T")

Observer = Callable[[str, int | None, float], None]
"""Called after each request with the route's name, the status (None: no answer) and the seconds it took."""

USER_AGENT = "fmsg-mcpd"

MAX_CONCURRENT = 256
"""Requests in flight at once, sockets not counted. They keep a host busy from one process. A burst of thousands of
callers queues here instead of opening thousands of connections."""

KEEP_ALIVE_S = 15.0
"""Shorter than what hosts and proxies keep idle connections (60 s and more), so that they rarely close one as we send:
a POST cut off that way has an unknown outcome."""

SOCKET_CLOSE_S = 2.0
"""How long a closing socket waits for the host's close frame before it is dropped."""

PROBE_AFTER_S = 20
PROBE_EACH_S = 5
PROBES = 2
"""TCP keep-alive of event sockets. The kernel notices after 30 s that a host or the path to it is gone."""

_SENDABLE = re.compile(r"[\x21-\x7e]{1,8192}")
"""What fits a header: visible ASCII, and no more than common servers take."""


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step may take, in seconds."""

    queue_s: float = 30.0
    """Waiting for one of the ``max_concurrent`` places."""
    connect_s: float = 10.0
    """Name lookup, TCP and TLS."""
    answer_s: float = 30.0
    """An ordinary request from connecting to the end of its answer; a transfer up to the head of its answer."""
    idle_s: float = 30.0
    """A transfer in which nothing moves. It has no total: a large attachment on a slow line is no fault."""
    stored_s: float = 120.0
    """From an upload's last byte to the answer: the host stores and hashes it."""
    upgrade_s: float = 20.0
    """Opening an event socket."""


class _Watch(msgspec.Struct):
    """What the observer will be told of a request."""

    status: int | None = None


class HostHttp:
    """The connection pool to one host; an async context manager.

    ``api_url`` is the base URL: https, or http where the host is this machine or ``allow_insecure`` says so. Raises
    `BadInput` for anything else. ``observer`` is called after each request and must not raise. ``environment`` (the
    process's) names a proxy on the way to the host, see `proxy_for`.
    """

    api_url: str
    """The base URL without a trailing slash."""

    def __init__(
        self,
        api_url: str,
        *,
        allow_insecure: bool = False,
        max_concurrent: int = MAX_CONCURRENT,
        observer: Observer | None = None,
        deadlines: Deadlines | None = None,
        ssl_context: ssl.SSLContext | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.api_url = base_url(api_url, allow_insecure=allow_insecure)
        self._proxy = proxy_for(self.api_url, os.environ if environment is None else environment)
        self.deadlines = deadlines or Deadlines()
        self._ssl = ssl_context
        self._places = asyncio.Semaphore(max_concurrent)
        self._observe = observer or (lambda route, status, duration_s: None)
        self._stack = AsyncExitStack()
        self._requests: aiohttp.ClientSession | None = None
        self._sockets: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"HostHttp({self.api_url!r})"

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=self._ssl or True)
        self._stack.push_async_callback(connector.close)
        self._requests = await self._stack.enter_async_context(self._session(connector))
        self._sockets = await self._stack.enter_async_context(self._session(connector, _upgrade_or_raise))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests = self._sockets = None
        await self._stack.aclose()

    def _session(
        self, connector: aiohttp.TCPConnector, *middlewares: aiohttp.ClientMiddlewareType
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=self.deadlines.connect_s),
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            middlewares=middlewares,
            auto_decompress=False,
        )

    async def call(
        self,
        route: str,
        method: str,
        path: str,
        *,
        bearer: str,
        content: bytes | None = None,
        within_s: float | None = None,
        max_bytes: int = SMALL_BYTES,
    ) -> Answer:
        """One request, with a JSON body or none, and its whole answer of at most ``max_bytes``.

        It takes no longer than the deadline for answers, or ``within_s``.

        ``route`` names the request to the observer; ``path`` is percent-encoded and begins with ``/``. Raises what
        `fmsg.errors` lists.
        """
        headers = {} if content is None else {"Content-Type": "application/json"}
        # As a file it goes out in pieces: megabytes at once would hold the event loop, and aiohttp warns of them.
        data = None if content is None else io.BytesIO(content)

        async def exchange(watch: _Watch) -> Answer:
            response = await self._open(watch, method, path, bearer=bearer, data=data, headers=headers)
            return await read_answer(response, max_bytes=max_bytes)

        async with self._watched(route) as watch:
            return await self._guarded(exchange(watch), within_s or self.deadlines.answer_s)

    @asynccontextmanager
    async def download(self, route: str, path: str, *, bearer: str) -> AsyncIterator[Download]:
        """An answer that is read while it comes. Leaving the context early drops the connection. Raises as `call`."""
        async with self._watched(route) as watch:
            response = await self._guarded(self._open(watch, "GET", path, bearer=bearer), self.deadlines.answer_s)
            try:
                yield Download(
                    size=response.content_length,
                    content_type=media_type(response.headers.get("Content-Type")),
                    chunks=self._chunks(response),
                )
            finally:
                response.close()

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        while chunk := await self._guarded(response.content.readany(), self.deadlines.idle_s):
            yield chunk

    async def upload(self, route: str, path: str, *, bearer: str, form: Form) -> Answer:
        """POST a form. Raises as `call`, and what reading the form's bytes raises."""
        source_failure: BaseException | None = None
        headers = {"Content-Type": form.content_type}
        if form.size is not None:
            headers["Content-Length"] = str(form.size)

        async def exchange(watch: _Watch) -> Answer:
            async with asyncio.timeout(self.deadlines.idle_s) as limit:
                response = await self._open(watch, "POST", path, bearer=bearer, data=progress(limit), headers=headers)
                return await read_answer(response)

        async def progress(limit: asyncio.Timeout) -> AsyncIterator[bytes]:
            nonlocal source_failure
            now = asyncio.get_running_loop().time
            try:
                async for chunk in form.chunks:
                    limit.reschedule(now() + self.deadlines.idle_s)
                    yield chunk
            except Exception as error:
                source_failure = error
                raise
            limit.reschedule(now() + self.deadlines.stored_s)

        async with self._watched(route) as watch:
            try:
                return await self._guarded(exchange(watch), None)
            except HostUnreachable:
                if source_failure is None:
                    raise
        raise source_failure

    async def socket(
        self, path: str, *, bearer: str, heartbeat_s: float, max_frame_bytes: int
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket, which the caller closes. Raises as `call`."""
        started = asyncio.get_running_loop().time()
        status: int | None = None
        try:
            socket = await self._guarded(
                _active(self._sockets).ws_connect(
                    self._url(path),
                    headers=_authorized(bearer),
                    heartbeat=heartbeat_s,
                    proxy=self._proxy,
                    max_msg_size=max_frame_bytes,
                    compress=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=SOCKET_CLOSE_S),
                ),
                self.deadlines.upgrade_s,
            )
            status = 101
        except HostRefused as refusal:
            status = refusal.status
            raise
        finally:
            self._observe("ws", status, asyncio.get_running_loop().time() - started)
        _probe(socket.get_extra_info("socket"))
        return socket

    @asynccontextmanager
    async def _watched(self, route: str) -> AsyncIterator[_Watch]:
        """One of the places for requests; tells the observer at the end."""
        await self._take_place()
        loop = asyncio.get_running_loop()
        watch, started = _Watch(), loop.time()
        try:
            yield watch
        finally:
            self._places.release()
            self._observe(route, watch.status, loop.time() - started)

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()  # Comes back at once: no timer for what nobody has to wait for.
            return
        try:
            async with asyncio.timeout(self.deadlines.queue_s):
                await self._places.acquire()
        except TimeoutError:
            taken = False
        else:
            taken = True
        if not taken:
            raise HostUnreachable(f"{self.api_url}: too many requests are waiting. Try again later.", sent=False)

    async def _open(
        self,
        watch: _Watch,
        method: str,
        path: str,
        *,
        bearer: str,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        """A response with a 2xx status whose body is still to be read. The caller closes it."""
        response = await _active(self._requests).request(
            method,
            self._url(path),
            headers={**(headers or {}), **_authorized(bearer)},
            data=data,
            allow_redirects=False,
            proxy=self._proxy,
        )
        watch.status = response.status
        await check(response)
        return response

    def _url(self, path: str) -> URL:
        return URL(self.api_url + path, encoded=True)

    async def _guarded(self, work: Awaitable[T], within_s: float | None) -> T:
        """Awaits with a deadline, and turns the client library's errors into ours.

        Ours are raised outside of the handler, so that they do not carry the library's along, which show headers.
        """
        try:
            async with asyncio.timeout(within_s):
                return await work
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failed = self._failure(error)
        raise failed

    def _failure(self, error: Exception) -> FmsgError:
        match error:
            case aiohttp.ConnectionTimeoutError():
                return self._unreachable(f"no connection within {self.deadlines.connect_s:g} s", sent=False)
            case aiohttp.ClientHttpProxyError():
                return self._unreachable(f"the proxy on the way to it answered {error.status}", sent=False)
            case aiohttp.ClientProxyConnectionError():
                return self._unreachable("no connection to the proxy that HTTPS_PROXY or HTTP_PROXY names", sent=False)
            case aiohttp.ClientConnectorCertificateError():
                return self._unreachable(f"its certificate is not accepted: {error.certificate_error}", sent=False)
            case aiohttp.ClientConnectorError():
                return self._unreachable(f"no connection ({_why(error.os_error)})", sent=False)
            case aiohttp.ClientResponseError():
                return HostMisbehaved(
                    f"{self.api_url}: its answer is not what HTTP prescribes. Is this the Web API's URL?"
                )
            case TimeoutError():
                return self._unreachable("no answer in time", sent=True)
            case _:
                return self._unreachable(f"the connection was cut ({type(error).__name__})", sent=True)

    def _unreachable(self, reason: str, *, sent: bool) -> HostUnreachable:
        return HostUnreachable(f"{self.api_url}: {scrub_beginning(reason, 500)}.", sent=sent)


def _why(error: OSError) -> str:
    """The system's words. Those of the event loop repeat the address as a tuple."""
    if error.errno and error.errno > 0 and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _active(session: aiohttp.ClientSession | None) -> aiohttp.ClientSession:
    if session is None:
        raise RuntimeError("HostHttp is used outside of its context")
    return session


def _authorized(bearer: str) -> dict[str, str]:
    if PLACEHOLDER.fullmatch(bearer):
        raise Unauthorized(
            401,
            "the credential is the name of a variable, like ${FMSG_API_KEY}, which was not replaced by its value. "
            "Put the key itself where the program that starts this server or sends its header finds it.",
        )
    if not _SENDABLE.fullmatch(bearer):
        raise Unauthorized(401, "the credential is empty or contains characters that none has. Copy it again.")
    return {"Authorization": f"Bearer {bearer}"}


def _probe(connection: socket.socket | None) -> None:
    """Have the kernel look whether the other end is there. A system without these options has times of its own."""
    if connection is None:
        return
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", PROBE_AFTER_S), ("TCP_KEEPINTVL", PROBE_EACH_S), ("TCP_KEEPCNT", PROBES)):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _upgrade_or_raise(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Turns a refused upgrade into an error with the host's reason. Follows no redirect. The library does neither."""
    response = await handler(request)
    if response.status != 101:
        raise await failure(response)
    return response
