"""What a POST to the MCP endpoint carries: one JSON-RPC request, in one of the two eras of the protocol.

Up to 2025-11-25 a session begins with ``initialize``, which a stateless server answers and forgets. From 2026-07-28 on
each request brings its version and the client's capabilities along, and headers that repeat what it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import msgspec
from mcp.server.connection import Connection
from mcp.shared.dispatcher import Outbound
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    InitializeRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from mcp_front.http.body import STRUCTURE_BYTES, Malformed, RequestBody, TooDeep, TooManyItems
from mcp_front.settings import Budgets, budget_name

Headers = Sequence[tuple[bytes, bytes]]
RequestId = str | int

LARGE_CALLS = frozenset({"send_message", "reply"})
"""The tools whose arguments carry texts and files."""
ORDINARY_BYTES = 256 * 1024
"""What every other request stays below: the SDK checks it in one go, on the event loop."""
LONGEST_NAME_CHARS = 1024
"""Of a method, an id, a token and a name. They are repeated in answers, errors and logs."""

_ROUTING = {name.encode(): name for name in (MCP_PROTOCOL_VERSION_HEADER, MCP_METHOD_HEADER, MCP_NAME_HEADER)}
_PARAM_PREFIX = MCP_PARAM_HEADER_PREFIX.lower().encode()


class BriefConnection(Connection):
    """What the SDK knows of a client, for one request: without what a connection that lasts has to hold."""

    def __init__(
        self,
        outbound: Outbound,
        *,
        protocol_version: str,
        session_id: str | None = None,
        client_params: InitializeRequestParams | None = None,
    ) -> None:
        self.outbound = outbound
        self.protocol_version = protocol_version
        self.session_id = session_id
        self.client_capabilities = None
        self.client_params = client_params
        self.initialized = _initialized()
        self.state = {}

    def __getattr__(self, name: str) -> Any:
        """The exit stack, made when somebody has something to close."""
        if name != "exit_stack":
            raise AttributeError(name)
        self.exit_stack = AsyncExitStack()
        return self.exit_stack


@functools.cache
def _initialized() -> anyio.Event:
    """There is no beginning to wait for: one event for all connections, set by each of them."""
    return anyio.Event()


class Rejected(Exception):
    """A body that is no request we can serve, as a JSON-RPC error and an HTTP status."""

    def __init__(
        self, code: int, message: str, *, status: int, request_id: RequestId | None = None, data: Any = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.request_id = request_id
        self.data = data


class Envelope(msgspec.Struct, frozen=True):
    """One request. ``modern``: it is of the era without sessions."""

    request_id: RequestId
    method: str
    params: dict[str, Any] | None
    modern: bool
    connection: Connection
    progress_token: RequestId | None


def read_envelope(
    body: RequestBody, headers: Headers, *, header_schema: Callable[[str], Mapping[str, Any] | None]
) -> Envelope | None:
    """The request in a body; None for a notification or an answer, which a stateless server has no use for.

    ``header_schema`` gives the input schema of a tool that wants arguments repeated in headers. Raises `Rejected`.
    """
    routing: dict[str, str] = {}
    twice: str | None = None
    for key, value in headers:
        name = _ROUTING.get(key)
        if name is not None:
            twice = name if name in routing else twice
            routing[name] = value.decode("latin-1").strip()
    version = routing.get(MCP_PROTOCOL_VERSION_HEADER)
    modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
    message = body.value
    if not isinstance(message, dict):
        raise _invalid("The body has to be one JSON-RPC request; batches are not served.")
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        if not modern and message.get("jsonrpc") == "2.0" and ("result" in message or "error" in message):
            return None
        raise _invalid('The body has to be one JSON-RPC 2.0 request with "jsonrpc": "2.0" and a "method".')
    _check_lengths(message, body.size_bytes)
    method, params = message["method"], message.get("params")
    if params is not None and not isinstance(params, dict):
        raise _invalid('"params" has to be an object.')
    if "id" not in message:
        if modern and version is not None:
            _raise(unsupported_protocol_version_rejection(version), None)
        return None
    request_id = message["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        raise _invalid('"id" has to be a string or a whole number.')
    if modern:
        if twice is not None:
            # A reader of the first copy and a reader of the last one would disagree.
            raise Rejected(HEADER_MISMATCH, f"{twice} header appears more than once", status=400, request_id=request_id)
        connection = _modern(message, headers, routing, header_schema)
    else:
        connection = BriefConnection.from_envelope(version or DEFAULT_NEGOTIATED_VERSION, None, None)
    return Envelope(request_id, method, params, modern, connection, _progress_token(params))


def body_rejected(error: Malformed | TooDeep | TooManyItems, budgets: Budgets) -> Rejected:
    """What to answer to a body that could not be read."""
    if isinstance(error, Malformed):
        return Rejected(PARSE_ERROR, "The body is not JSON in UTF-8.", status=400)
    if isinstance(error, TooDeep):
        return _invalid(f"The body nests deeper than {budgets.json_depth} levels ({budget_name('json_depth')}).")
    return _invalid(
        f"The body holds more than {budgets.json_items} values ({budget_name('json_items')}), or more than "
        f"{STRUCTURE_BYTES} bytes besides its long strings."
    )


def _check_lengths(message: dict[str, Any], size_bytes: int) -> None:
    """What is large has its place: the arguments of `LARGE_CALLS`. Raises `Rejected`."""
    params = message.get("params")
    fields = params if isinstance(params, dict) else {}
    token = _meta_of(message).get("progressToken")
    names = {"method": message["method"], "id": message.get("id"), "progressToken": token, "name": fields.get("name")}
    for field, value in names.items():
        if isinstance(value, str) and len(value) > LONGEST_NAME_CHARS:
            raise _invalid(f'"{field}" is longer than {LONGEST_NAME_CHARS} characters.')
    if size_bytes <= ORDINARY_BYTES:
        return
    large = message["method"] == "tools/call" and names["name"] in LARGE_CALLS
    if large and _text_chars({**message, "params": {**fields, "arguments": None}}) <= ORDINARY_BYTES:
        return
    raise Rejected(
        INVALID_REQUEST,
        f"The request has {size_bytes} bytes. Only the arguments of {' and '.join(sorted(LARGE_CALLS))} may be over "
        f"{ORDINARY_BYTES // 1024} KiB.",
        status=413,
    )


def _text_chars(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_text_chars, value))
    if isinstance(value, dict):
        return sum(len(name) + _text_chars(item) for name, item in value.items())
    return 0


def _modern(
    message: dict[str, Any],
    headers: Headers,
    routing: dict[str, str],
    header_schema: Callable[[str], Mapping[str, Any] | None],
) -> Connection:
    request_id: RequestId = message["id"]
    version = routing[MCP_PROTOCOL_VERSION_HEADER]
    if PROTOCOL_VERSION_META_KEY not in _meta_of(message):
        # Where the header alone names a version that is not served, a missing field is not what is wrong.
        _raise(unsupported_protocol_version_rejection(version), request_id)
    verdict = classify_inbound_request(message, headers=routing)
    if isinstance(verdict, InboundLadderRejection):
        raise _rejected(verdict, request_id)
    if message["method"] == "tools/call":
        params = message["params"]
        schema = header_schema(params["name"]) if isinstance(params.get("name"), str) else None
        arguments = params.get("arguments") or {}
        if schema is not None and isinstance(arguments, dict):
            _raise(validate_mcp_param_headers(schema, arguments, _param_headers(headers)), request_id)
    return BriefConnection.from_envelope(verdict.protocol_version, verdict.client_info, verdict.client_capabilities)


def _named_versions(rejection: InboundLadderRejection) -> InboundLadderRejection:
    """Where a version is not served, those that are. The SDK names the ones of the newest era only."""
    if rejection.code != UNSUPPORTED_PROTOCOL_VERSION:
        return rejection
    supported = [*MODERN_PROTOCOL_VERSIONS, *reversed(HANDSHAKE_PROTOCOL_VERSIONS)]
    requested = (rejection.data or {}).get("requested")
    message = f"Unsupported protocol version. This server speaks {', '.join(supported)}."
    return InboundLadderRejection(
        code=rejection.code, message=message, data={"supported": supported, "requested": requested}
    )


def _meta_of(message: dict[str, Any]) -> Mapping[str, Any]:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _param_headers(headers: Headers) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(_PARAM_PREFIX):
            # The SDK finds duplicates by spelling, and here all names are in lower case: keep both copies apart.
            key = name.decode("latin-1")
            found[key.upper() if key in found else key] = value.decode("latin-1").strip()
    return found


def _progress_token(params: dict[str, Any] | None) -> RequestId | None:
    meta = params.get("_meta") if params else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def _raise(rejection: InboundLadderRejection | None, request_id: RequestId | None) -> None:
    if rejection is not None:
        raise _rejected(rejection, request_id)


def _rejected(rejection: InboundLadderRejection, request_id: RequestId | None) -> Rejected:
    rejection = _named_versions(rejection)
    status = ERROR_CODE_HTTP_STATUS.get(rejection.code, 400)
    return Rejected(rejection.code, rejection.message, status=status, request_id=request_id, data=rejection.data)


def _invalid(text: str) -> Rejected:
    return Rejected(INVALID_REQUEST, text, status=400)
