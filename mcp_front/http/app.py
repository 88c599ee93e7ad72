"""The ASGI application of the HTTP front: what is checked in which order before a request reaches the MCP server.

Host, origin, method and key are looked at before anything of the body is read; the body is bounded in size, time and
shape; whatever is over a budget is answered with the name of the budget and, where it helps, when to come back.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import mcp_types
import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.inbound import x_mcp_header_map

from fmsg.errors import FmsgError, HostRefused, Transient
from fmsg.redact import scrub
from mcp_front.callers import Callers, KeyCaller
from mcp_front.framing import quoted, visible
from mcp_front.http.body import BodyRefused, ClientGone, Malformed, TooDeep, TooManyItems, read_body
from mcp_front.http.connection import DISCARDED_BYTES, Connection
from mcp_front.http.gate import Challenge, HostGate, OriginGate, bearer_key, values_of
from mcp_front.http.request import Rejected, body_rejected, read_envelope
from mcp_front.http.response import Exchange, Receive, Send, SlowReader, reply
from mcp_front.http.sources import Guesses, TooManyGuesses, is_trusted, parse_networks, source_of
from mcp_front.limits import AnswerRoom, AnswerShare, ByteBudget, ByteShare, OverBudget, answer_limits, upload_limits
from mcp_front.settings import FrontSettings
from mcp_front.timer_wheel import TimerWheel
from telemetry import metrics

OUTAGE_RETRY_S = 5.0
"""When to come back while the host cannot be asked about keys; hosts restart in seconds."""
PREFLIGHT_MAX_AGE_S = 600
"""How long a browser may remember a preflight; the list of origins changes with a deploy only."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}", re.ASCII)
_HEADER_NAME = re.compile(r"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]{1,64}")
_ALLOWED_HEADERS = (
    "authorization",
    "content-type",
    "accept",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-session-id",
)

EXCLUDE_STORE = b"exclude=redis"
"""Asks /readyz about the process alone. For whoever chooses where requests go: without Redis waits go on by polling,
and a proxy that takes every front away for that would end them."""

RawHeaders = list[tuple[bytes, bytes]]


class HttpRequest(msgspec.Struct, frozen=True):
    """What handlers find as ``ctx.request``."""

    caller: KeyCaller
    request_id: str
    accepts_stream: bool
    answer: AnswerRoom


class Accepts(msgspec.Struct, frozen=True):
    """In which forms a client takes an answer."""

    json: bool
    stream: bool


class _Refused(Exception):
    """An answer that is no JSON-RPC result."""

    def __init__(self, status: int, text: str, *, reason: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason
        self.headers = headers


class HttpFront:
    """The application. One per process; `ready` says whether new requests are welcome."""

    def __init__(
        self,
        server: Server[Any],
        callers: Callers,
        settings: FrontSettings,
        *,
        timer_wheel: TimerWheel,
        guesses: Guesses,
        store_ready: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """``store_ready`` says whether what is shared with the other processes can be written and read."""
        http = settings.http
        self.ready = True
        """True until the process begins to drain; then /readyz says so."""
        self._store_ready = store_ready
        self._server = server
        self._callers = callers
        self._settings = settings
        self._timer_wheel = timer_wheel
        self._guesses = guesses
        self._hosts = HostGate(http.host, http.allowed_hosts)
        self._origins = OriginGate(http.allowed_origins, bind=http.host)
        self._proxies = parse_networks(http.trusted_proxies)
        self._uploads = ByteBudget(upload_limits(settings.budgets))
        self._answers = ByteBudget(answer_limits(settings.budgets))
        self._header_schemas: dict[str, Mapping[str, Any] | None] = {}
        self.lifespan_state: object = {}
        """What the server's lifespan gave; the product's has none."""

    def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> Awaitable[None]:
        """See ASGI. Not itself a coroutine function: a held call would keep one more frame for it."""
        path: str = scope["path"]
        if path in ("/healthz", "/readyz"):
            return self._ready(scope, send) if path == "/readyz" else reply(send, 200, b'{"alive":true}', [])
        if path.rstrip("/") == self._settings.http.path:
            return self._endpoint(scope, receive, send)
        text = f"There is nothing here. The MCP endpoint is {self._settings.http.path}."
        return reply(send, 404, _error_body(text), [])

    async def _ready(self, scope: dict[str, Any], send: Send) -> None:
        asked: bytes = scope.get("query_string", b"")
        if not self.ready:
            await reply(send, 503, b'{"ready":false,"reason":"draining"}', [])
        elif self._store_ready is not None and asked != EXCLUDE_STORE and not await self._store_ready():
            # Why not is for operators: the port of the metrics tells them.
            await reply(send, 503, b'{"ready":false,"reason":"Redis cannot be used"}', [])
        else:
            await reply(send, 200, b'{"ready":true}', [])

    async def _endpoint(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        headers: RawHeaders = scope["headers"]
        request_id = self._request_id(scope)
        extra: RawHeaders = [(b"x-request-id", request_id.encode())]
        try:
            if not self._hosts.admits(headers):
                raise _Refused(421, "This server does not serve the host name in the Host header.", reason="host")
            origins = values_of(headers, b"origin")
            if origins and not self._origins.admits(origins, host=values_of(headers, b"host")[0]):
                raise _Refused(403, "This server does not serve pages of that origin.", reason="origin")
            if origins:
                extra += _cors(origins[0])
                if scope["method"] == "OPTIONS":
                    await reply(send, 204, b"", extra + _preflight(headers))
                    return
            caller = await self._authenticate(scope, headers)
            connection = scope["state"].get("connection")
            if isinstance(connection, Connection):
                connection.discard_bytes = max(DISCARDED_BYTES, self._settings.budgets.max_body_bytes)
            if scope["method"] != "POST":
                allow = [(b"allow", b"POST")]
                raise _Refused(
                    405,
                    "POST requests here; there are no streams to GET and no sessions to DELETE.",
                    reason="method",
                    headers=allow,
                )
            accepts = _negotiate(headers)
            upload, answer = ByteShare(self._uploads, caller.key), AnswerShare(self._answers, caller.key)
            try:
                exchange = await self._received(scope, receive, send, upload, caller, accepts, answer, extra)
                if exchange is not None:
                    await self._run(scope, exchange)
            finally:
                upload.release()
                answer.release()
        except _Refused as refused:
            await self._refuse(send, refused, extra)
        except BodyRefused as refused:
            retry = [] if refused.retry_after_s is None else [_retry_after(refused.retry_after_s)]
            if refused.status == HTTPStatus.REQUEST_TIMEOUT:
                retry.append((b"connection", b"close"))
            told = _Refused(refused.status, str(refused), reason=refused.budget, headers=retry)
            await self._refuse(send, told, extra)
        except Rejected as rejected:
            metrics.REFUSALS.labels("envelope").inc()
            await reply(send, rejected.status, _rpc_error(rejected), extra)
        except OverBudget as over:
            retry = [] if over.retry_after_s is None else [_retry_after(over.retry_after_s)]
            status = 413 if over.retry_after_s is None else 429
            await reply(send, status, _error_body(str(over)), [*retry, *extra])
        except ClientGone:
            return

    async def _received(
        self,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
        upload: ByteShare,
        caller: KeyCaller,
        accepts: Accepts,
        answer: AnswerShare,
        extra: RawHeaders,
    ) -> Exchange | None:
        """The exchange that a body asks for; None where it asks for none and has been answered."""
        headers: RawHeaders = scope["headers"]
        budgets = self._settings.budgets
        try:
            body = await read_body(receive, declared=_declared(headers), budgets=budgets, upload=upload)
            envelope = read_envelope(body, headers, header_schema=self._header_schema)
        except (Malformed, TooDeep, TooManyItems) as error:
            raise body_rejected(error, budgets) from None
        if envelope is None:
            await reply(send, 202, b"", extra)
            return None
        if envelope.method == "subscriptions/listen" and not accepts.stream:
            raise _Refused(406, "subscriptions/listen answers with text/event-stream only. Accept it.", reason="accept")
        return Exchange(
            envelope,
            send,
            timer_wheel=self._timer_wheel,
            accepts_json=accepts.json,
            accepts_stream=accepts.stream,
            stream_after_s=self._settings.http.sse_after_s,
            ping_s=self._settings.http.ping_s,
            request=HttpRequest(caller, extra[0][1].decode("ascii"), accepts.stream, answer),
            answer_share=answer,
            write_stall_s=budgets.write_stall_s,
            extra_headers=extra,
        )

    async def _run(self, scope: dict[str, Any], exchange: Exchange) -> None:
        """Answer, and stop where the client goes away."""
        # Not needed any more, and the key is among them.
        scope["headers"].clear()
        connection = scope["state"].get("connection")
        if not isinstance(connection, Connection):
            await exchange.run(self._server, self.lifespan_state)
            return
        connection.on_lost = exchange.lost
        try:
            await exchange.run(self._server, self.lifespan_state)
        except SlowReader:
            metrics.REFUSALS.labels("write_stall_s").inc()
            connection.abort()
        finally:
            connection.on_lost = None

    async def _authenticate(self, scope: dict[str, Any], headers: RawHeaders) -> KeyCaller:
        """The caller of a request. Raises `_Refused`."""
        key = bearer_key(headers)
        if isinstance(key, Challenge):
            raise _unauthorized(key, "no_key" if not key.error else "malformed_key")
        caller = self._callers.known(key)
        if caller is not None:
            return caller
        source = self._source(scope, headers)
        try:
            refusal = self._callers.refusal(key)
            if refusal is not None:
                self._guesses.check(source)
                self._guesses.failed(source)
                raise _key_refused(refusal)
            async with self._guesses.looking_up(source):
                return await self._callers.identify(key)
        except TooManyGuesses as error:
            retry = _retry_after(error.retry_after_s)
            raise _Refused(429, f"Too many attempts: {error}", reason="auth_failures", headers=[retry]) from None
        except HostRefused as error:
            if isinstance(error, Transient):
                raise _unavailable(error) from None
            self._guesses.failed(source)
            raise _key_refused(error) from None
        except FmsgError as error:
            raise _unavailable(error) from None

    async def _refuse(self, send: Send, refused: _Refused, extra: RawHeaders) -> None:
        """Answer. The connection throws away what is still to come of the body."""
        metrics.REFUSALS.labels(refused.reason).inc()
        await reply(send, refused.status, _error_body(refused.text), [*refused.headers, *extra])

    def _source(self, scope: dict[str, Any], headers: RawHeaders) -> str:
        return source_of(_peer(scope), values_of(headers, b"x-forwarded-for"), self._proxies)

    def _request_id(self, scope: dict[str, Any]) -> str:
        if self._proxies and is_trusted(_peer(scope), self._proxies):
            given = values_of(scope["headers"], b"x-request-id")
            if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
                return given[0].decode("ascii")
        return secrets.token_hex(8)

    def _header_schema(self, tool: str) -> Mapping[str, Any] | None:
        """The input schema of a tool, if any of its arguments is to be repeated in a header."""
        if tool not in self._header_schemas:
            lookup = self._server.get_tool_input_schema
            schema = None if lookup is None else lookup(tool)
            if schema is None:
                return None  # No such tool: not remembered, there is no end of names.
            self._header_schemas[tool] = schema if x_mcp_header_map(schema) else None
        return self._header_schemas[tool]


def _peer(scope: dict[str, Any]) -> str | None:
    client = scope.get("client")
    return None if client is None else str(client[0])


def _declared(headers: RawHeaders) -> int | None:
    """Content-Length; the HTTP parser has seen to it that there is one number or none."""
    values = values_of(headers, b"content-length")
    return int(values[0]) if values and values[0].isdigit() else None


def _negotiate(headers: RawHeaders) -> Accepts:
    """What the client accepts. Raises `_Refused` for a body or an Accept we cannot serve."""
    kind = b",".join(values_of(headers, b"content-type")).decode("latin-1").lower()
    media, _, parameters = kind.partition(";")
    charset = parameters.partition("charset=")[2].strip(' "')
    if media.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise _Refused(415, "Send the request as Content-Type: application/json in UTF-8.", reason="content_type")
    if values_of(headers, b"content-encoding") not in ([], [b"identity"]):
        raise _Refused(415, "Send the request without a Content-Encoding.", reason="content_type")
    accept = values_of(headers, b"accept")
    if not accept:
        return Accepts(json=True, stream=False)
    ranges = {part.partition(";")[0].strip() for part in b",".join(accept).decode("latin-1").lower().split(",")}
    json = not ranges.isdisjoint(("*/*", "application/*", "application/json"))
    stream = not ranges.isdisjoint(("*/*", "text/*", "text/event-stream"))
    if not json and not stream:
        raise _Refused(406, "Accept application/json and text/event-stream.", reason="accept")
    return Accepts(json=json, stream=stream)


def _unauthorized(challenge: Challenge, reason: str) -> _Refused:
    return _Refused(401, challenge.text, reason=reason, headers=[(b"www-authenticate", challenge.header)])


def _key_refused(error: HostRefused) -> _Refused:
    """The host's refusal of a key: 401, also where the host has another status for it (FMSG-007)."""
    text = f"The fmsg host does not accept this API key: {quoted(error.reason)}"
    return _unauthorized(Challenge("invalid_token", text), "key_refused")


def _unavailable(error: FmsgError) -> _Refused:
    """The host's trouble, which says nothing about the key."""
    asked = error.retry_after_s if isinstance(error, HostRefused) else None
    reason = quoted(error.reason) if isinstance(error, HostRefused) else visible(scrub(str(error)))
    text = f"The fmsg host cannot be asked about the API key now: {reason}"
    return _Refused(503, text, reason="host_unavailable", headers=[_retry_after(asked or OUTAGE_RETRY_S)])


def _retry_after(seconds: float) -> tuple[bytes, bytes]:
    return b"retry-after", str(max(1, round(seconds))).encode()


def _cors(origin: bytes) -> RawHeaders:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"www-authenticate, retry-after, x-request-id"),
        (b"vary", b"origin"),
    ]


def _preflight(headers: RawHeaders) -> RawHeaders:
    asked = b",".join(values_of(headers, b"access-control-request-headers")).decode("latin-1").lower()
    names = [name for name in (part.strip() for part in asked.split(",")) if _HEADER_NAME.fullmatch(name)]
    return [
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", ", ".join((*_ALLOWED_HEADERS, *names)).encode()),
        (b"access-control-max-age", str(PREFLIGHT_MAX_AGE_S).encode()),
    ]


def _error_body(text: str) -> bytes:
    """A refusal before there is a request id, in the form MCP clients show to people."""
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": None, "error": {"code": mcp_types.INVALID_REQUEST, "message": text}}
    )


def _rpc_error(rejected: Rejected) -> bytes:
    error: dict[str, Any] = {"code": rejected.code, "message": rejected.message}
    if rejected.data is not None:
        error["data"] = rejected.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": rejected.request_id, "error": error})
