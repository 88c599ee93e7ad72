"""The ASGI application of the HTTP front: which path leads where, and what a request meets before the MCP server.

Host, origin, key and method are looked at before anything of the body is read. The body is bounded in size, rate and
shape. What is over a budget is answered with the name of the budget and, where it helps, when to come back.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Container, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import mcp_types
import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.inbound import x_mcp_header_map

from ledger.values import CallerKey
from mcp_front.callers import KeyCaller, KeyCallers
from mcp_front.http.admission import (
    Admitted,
    Authenticator,
    BindRefused,
    Guesses,
    HostGate,
    OriginGate,
    RawHeaders,
    Refused,
    is_trusted,
    parse_networks,
    retry_after,
    source_of,
    values_of,
)
from mcp_front.http.body import BodyRefused, ClientGone, Malformed, TooDeep, TooManyItems, read_body, read_form
from mcp_front.http.connection import DISCARDED_BYTES, Connection
from mcp_front.http.files import Broken, Files
from mcp_front.http.request import Rejected, body_rejected, read_envelope
from mcp_front.http.response import Exchange, Receive, Send, SlowReader, reply
from mcp_front.limits import (
    AnswerRoom,
    AnswerShare,
    ByteBudget,
    ByteShare,
    OverBudget,
    answer_limits,
    form_limits,
    free_frames,
    upload_limits,
)
from mcp_front.settings import FrontSettings
from mcp_front.timer_wheel import TimerWheel
from telemetry import metrics

if TYPE_CHECKING:
    from mcp_front.oauth.app import SignIn

MAX_FORM_BYTES = 64 * 1024
"""A registration or a form of the sign-in; a sealed request of the largest client is under 16 kB."""
PREFLIGHT_MAX_AGE_S = 600
"""How long a browser may remember a preflight; the list of origins changes with a deploy only."""
DOCUMENTATION_URL = "https://github.com/markmnl/fmsg-mcpd/tree/main/docs"
"""Where the documentation is, for people who open the server in a browser."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}", re.ASCII)
_HEADER_NAME = re.compile(r"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]{1,64}")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_ALLOWED_HEADERS = (
    "authorization",
    "content-type",
    "accept",
    "range",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-session-id",
)

EXCLUDE_STORE = b"exclude=redis"
"""Asks /readyz about the process alone. It is for a proxy that chooses where requests go: without Redis every front is
as good as the others, and to take them all away would end the waits they hold."""


class HttpRequest(msgspec.Struct, frozen=True):
    """What handlers find as ``ctx.request``."""

    caller: KeyCaller
    request_id: str
    accepts_stream: bool
    answer: AnswerRoom
    may_write: bool = True
    """Whether more than reading was granted: always with an API key."""


class Accepts(msgspec.Struct, frozen=True):
    """In which forms a client takes an answer."""

    json: bool
    stream: bool


class HttpFront:
    """The application. One per process; `ready` says whether new requests are welcome."""

    def __init__(
        self,
        server: Server[Any],
        callers: KeyCallers,
        settings: FrontSettings,
        *,
        timer_wheel: TimerWheel,
        guesses: Guesses,
        store_ready: Callable[[], Awaitable[bool]] | None = None,
        sign_in: SignIn | None = None,
        files: Files | None = None,
        reads: Container[str] = (),
    ) -> None:
        """``store_ready`` says whether what is shared with the other processes can be written and read.

        ``sign_in`` is the authorization server and ``files`` the file routes, where there are any. ``reads`` are the
        tools that only read.

        Raises `BindRefused`, or `ValueError`, for settings that must not be served.
        """
        http = settings.http
        self.ready = True
        """True until the process begins to drain; then /readyz says so."""
        self._store_ready = store_ready
        self._server = server
        self._settings = settings
        self._timer_wheel = timer_wheel
        self._hosts = HostGate(http.host, http.allowed_hosts)
        self._origins = OriginGate(http.allowed_origins, bind=http.host)
        self._proxies = parse_networks(http.trusted_proxies)
        self._sign_in = sign_in
        self._files = files
        self._reads = reads
        self.authenticator = Authenticator(callers, guesses, self._proxies, sign_in=sign_in)
        """Whom a request acts as."""
        self._uploads = ByteBudget(upload_limits(settings.budgets))
        self._forms = ByteBudget(form_limits())
        self._reading = asyncio.Lock()
        self._answers = ByteBudget(answer_limits(settings.budgets))
        self._header_schemas: dict[str, Mapping[str, Any] | None] = {}
        self.lifespan_state: object = {}
        """What the server's lifespan gave; the product's has none."""
        self._routes: dict[str, Callable[[dict[str, Any], Receive, Send], Awaitable[None]]] = {
            "/": self._about,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }
        if http.path in self._routes or not _PATH.fullmatch(http.path):
            raise BindRefused(
                f"FMSG_MCP_PATH: {http.path!r} cannot be the path of the MCP endpoint. Write it as /mcp or /fmsg/mcp, "
                "in letters, digits and -._~, and neither /healthz nor /readyz."
            )
        self._routes[http.path] = self._routes[f"{http.path}/"] = self._endpoint

    def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> Awaitable[None]:
        """ASGI. It is no coroutine function itself: a held call would keep one more frame for it."""
        return self._routes.get(scope["path"], self._elsewhere)(scope, receive, send)

    async def _elsewhere(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if self._files is not None and self._files.serves(scope["path"]):
            await self._endpoint(scope, receive, send)
        elif self._sign_in is None or not self._sign_in.serves(scope["path"]):
            await self._nothing(scope, receive, send)
        elif not self._hosts.admits(scope["headers"]):
            await reply(send, 421, _error_body("This server does not serve the host name in the Host header."), [])
        else:
            await self._serve_sign_in(self._sign_in, scope, receive, send)

    async def _serve_sign_in(self, sign_in: SignIn, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """A form or a registration, of somebody who is not known yet: small, soon, and few at once from one address."""
        source = source_of(peer_of(scope), values_of(scope["headers"], b"x-forwarded-for"), self._proxies)
        place = CallerKey(source)
        try:
            self._forms.take(place, MAX_FORM_BYTES)
        except OverBudget as over:
            await reply(send, 429, _error_body(str(over)), [retry_after(over.retry_after_s or 1.0)])
            return
        try:
            body = await read_form(receive, max_bytes=MAX_FORM_BYTES, within_s=self._settings.budgets.header_s)
        except BodyRefused as refused:
            metrics.REFUSALS.labels(refused.budget).inc()
            await reply(send, refused.status, _error_body(str(refused)), [(b"connection", b"close")])
            return
        except ClientGone:
            return
        finally:
            self._forms.give_back(place, MAX_FORM_BYTES)

        async def again() -> dict[str, Any]:
            nonlocal body
            if body is None:
                received: dict[str, Any] = await receive()
                return received
            whole, body = body, None
            return {"type": "http.request", "body": whole, "more_body": False}

        await sign_in(scope, again, send)

    async def _nothing(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        text = f"There is nothing here. The MCP endpoint is {self._settings.http.path}."
        await reply(send, 404, _error_body(text), [])

    async def _about(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        text = (
            "This is fmsg-mcpd, an MCP server that gives AI agents an fmsg address. "
            f"MCP clients connect to {self._settings.http.path}. Documentation: {DOCUMENTATION_URL}\n"
        )
        await reply(send, 200, text.encode(), [], content_type=b"text/plain; charset=utf-8")

    async def _healthz(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await reply(send, 200, b'{"alive":true}', [])

    async def _readyz(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        asked: bytes = scope.get("query_string", b"")
        if not self.ready:
            await reply(send, 503, b'{"ready":false,"reason":"draining"}', [])
        elif self._store_ready is not None and asked != EXCLUDE_STORE and not await self._store_ready():
            # Why not is for operators: the port of the metrics tells them.
            await reply(send, 503, b'{"ready":false,"reason":"Redis cannot be used"}', [])
        else:
            await reply(send, 200, b'{"ready":true}', [])

    async def _endpoint(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """The MCP endpoint."""
        headers: RawHeaders = scope["headers"]
        extra: RawHeaders = [(b"x-request-id", self._request_id(scope).encode())]
        try:
            if not self._hosts.admits(headers):
                raise Refused(421, "This server does not serve the host name in the Host header.", reason="host")
            origins = values_of(headers, b"origin")
            if not self._origins.admits(origins):
                raise Refused(403, "This server does not serve pages of that origin.", reason="origin")
            if origins:
                extra += _cors(origins[0])
                if scope["method"] == "OPTIONS":
                    await reply(send, 204, b"", extra + _preflight(headers))
                    return
            admitted = await self.authenticator.admit(headers, peer=peer_of(scope))
            connection = _connection(scope)
            if connection is not None:
                connection.discard_bytes = max(DISCARDED_BYTES, self._settings.budgets.max_body_bytes)
            if self._files is not None and self._files.serves(scope["path"]):
                await self._serve_file(self._files, scope, receive, send, admitted, extra)
                return
            if scope["method"] != "POST":
                raise Refused(
                    405,
                    "POST requests here; there are no streams to GET and no sessions to DELETE.",
                    reason="method",
                    headers=[(b"allow", b"POST")],
                )
            await self._serve(scope, receive, send, admitted, extra)
        except Refused as refused:
            free_frames(refused)
            metrics.REFUSALS.labels(refused.reason).inc()
            await reply(send, refused.status, _error_body(refused.text), [*refused.headers, *extra])
        except Rejected as rejected:
            free_frames(rejected)
            metrics.REFUSALS.labels("envelope").inc()
            await reply(send, rejected.status, _rpc_error(rejected), extra)
        except ClientGone:
            return

    async def _serve_file(
        self, files: Files, scope: dict[str, Any], receive: Receive, send: Send, admitted: Admitted, extra: RawHeaders
    ) -> None:
        """Give or take a file, and stop where the client goes away."""
        if files.writes(scope["path"]) and not admitted.may_write:
            raise self.authenticator.insufficient_scope()
        connection, task = _connection(scope), asyncio.current_task()
        gone = False

        def lost() -> None:
            nonlocal gone
            gone = True
            if task is not None:
                task.cancel()

        if connection is not None:
            connection.on_lost = lost
        try:
            await files(scope, receive, send, admitted.caller, extra)
        except Broken:
            if connection is not None:
                connection.abort()
        except asyncio.CancelledError:
            if not gone:
                raise
        finally:
            if connection is not None:
                connection.on_lost = None

    async def _serve(
        self, scope: dict[str, Any], receive: Receive, send: Send, admitted: Admitted, extra: RawHeaders
    ) -> None:
        """Read the request and answer it, with what both hold in memory on the caller's budgets.

        It stops where the client goes away.
        """
        accepts = _negotiate(scope["headers"])
        connection = _connection(scope)
        caller = admitted.caller.key
        upload, answer = ByteShare(self._uploads, caller), AnswerShare(self._answers, caller)
        try:
            exchange = await self._received(scope, receive, send, upload, answer, admitted, accepts, extra)
            if exchange is None:
                await reply(send, 202, b"", extra)
                return
            scope["headers"].clear()  # They are not needed any more, and the key is among them.
            if connection is not None:
                connection.on_lost = exchange.lost
            await exchange.run(self._server, self.lifespan_state)
        except SlowReader:
            metrics.REFUSALS.labels("write_stall_s").inc()
            if connection is not None:
                connection.abort()
        except BodyRefused as refused:
            headers = [(b"connection", b"close")] if refused.status == HTTPStatus.REQUEST_TIMEOUT else []
            raise Refused(refused.status, str(refused), reason=refused.budget, headers=headers) from None
        except OverBudget as over:
            if over.retry_after_s is None:
                raise Refused(413, str(over), reason=over.budget) from None
            raise Refused(429, str(over), reason=over.budget, headers=[retry_after(over.retry_after_s)]) from None
        finally:
            if connection is not None:
                connection.on_lost = None
            upload.release()
            answer.release()

    async def _received(
        self,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
        upload: ByteShare,
        answer: AnswerShare,
        admitted: Admitted,
        accepts: Accepts,
        extra: RawHeaders,
    ) -> Exchange | None:
        """The exchange that a body asks for; None where it asks for none."""
        headers: RawHeaders = scope["headers"]
        budgets, http = self._settings.budgets, self._settings.http
        try:
            body = await read_body(
                receive, declared=_declared(headers), budgets=budgets, upload=upload, turn=self._reading
            )
        except (Malformed, TooDeep, TooManyItems) as error:
            raise body_rejected(error, budgets) from None
        envelope = read_envelope(body, headers, header_schema=self._header_schema)
        if envelope is None:
            return None
        if envelope.method == "subscriptions/listen" and not accepts.stream:
            raise Refused(406, "subscriptions/listen answers with text/event-stream only. Accept it.", reason="accept")
        if not admitted.may_write and envelope.method == "tools/call":
            name = (envelope.params or {}).get("name")
            if not isinstance(name, str) or name not in self._reads:
                raise self.authenticator.insufficient_scope()
        return Exchange(
            envelope,
            send,
            timer_wheel=self._timer_wheel,
            accepts_json=accepts.json,
            accepts_stream=accepts.stream,
            stream_after_s=http.sse_after_s,
            ping_s=http.ping_s,
            request=HttpRequest(
                admitted.caller, extra[0][1].decode("ascii"), accepts.stream, answer, admitted.may_write
            ),
            answer_share=answer,
            write_stall_s=budgets.write_stall_s,
            extra_headers=extra,
        )

    def _request_id(self, scope: dict[str, Any]) -> str:
        if self._proxies and is_trusted(peer_of(scope), self._proxies):
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


def peer_of(scope: Mapping[str, Any]) -> str | None:
    """The address at the other end of a request's connection."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def _connection(scope: dict[str, Any]) -> Connection | None:
    """The connection of a request; None on another server than ours."""
    connection = scope["state"].get("connection")
    return connection if isinstance(connection, Connection) else None


def _declared(headers: RawHeaders) -> int | None:
    """Content-Length; the HTTP parser has seen to it that there is one number or none."""
    values = values_of(headers, b"content-length")
    return int(values[0]) if values and values[0].isdigit() else None


def _negotiate(headers: RawHeaders) -> Accepts:
    """What the client accepts. Raises `Refused` for a body or an Accept we cannot serve."""
    kind = b",".join(values_of(headers, b"content-type")).decode("latin-1").lower()
    media, _, parameters = kind.partition(";")
    charset = parameters.partition("charset=")[2].strip(' "')
    if media.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise Refused(415, "Send the request as Content-Type: application/json in UTF-8.", reason="content_type")
    if values_of(headers, b"content-encoding") not in ([], [b"identity"]):
        raise Refused(415, "Send the request without a Content-Encoding.", reason="content_type")
    accept = values_of(headers, b"accept")
    if not accept:
        return Accepts(json=True, stream=False)
    ranges = {part.partition(";")[0].strip() for part in b",".join(accept).decode("latin-1").lower().split(",")}
    json = not ranges.isdisjoint(("*/*", "application/*", "application/json"))
    stream = not ranges.isdisjoint(("*/*", "text/*", "text/event-stream"))
    if not json and not stream:
        raise Refused(406, "Accept application/json and text/event-stream.", reason="accept")
    return Accepts(json=json, stream=stream)


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
        (b"access-control-allow-methods", b"POST, PUT, GET, HEAD"),
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
