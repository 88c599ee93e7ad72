from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mcp_front.http.body import Malformed, RequestBody, TooDeep, TooManyItems, read_json
from mcp_front.http.request import ORDINARY_BYTES, Envelope, Rejected, body_rejected, read_envelope
from mcp_front.settings import Budgets

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}
SCHEMA = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


def read(message: object, headers: list[tuple[str, str]] | None = None) -> Envelope | None:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    raw = [(name.encode(), value.encode()) for name, value in headers or []]
    parsed = RequestBody(read_json(body, max_depth=64), len(body))
    return read_envelope(parsed, raw, header_schema=lambda name: SCHEMA if name == "by_region" else None)


def call(name: str = "who", **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": META, **more}}


def modern(name: str = "who", *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", name), *more]


def test_without_a_version_it_is_a_request_of_the_older_era() -> None:
    envelope = read({"jsonrpc": "2.0", "id": "a", "method": "ping"})
    assert envelope is not None
    assert (envelope.request_id, envelope.method, envelope.params, envelope.modern) == ("a", "ping", None, False)
    assert envelope.connection.protocol_version == "2025-03-26"
    assert envelope.connection.initialize_accepted


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_version_of_the_older_eras_comes_in_a_header(version: str) -> None:
    envelope = read({"jsonrpc": "2.0", "id": 1, "method": "ping"}, [("mcp-protocol-version", version)])
    assert envelope is not None
    assert (envelope.connection.protocol_version, envelope.modern) == (version, False)


def test_the_newest_era_brings_everything_along() -> None:
    envelope = read(call(), modern())
    assert envelope is not None
    assert envelope.modern
    assert envelope.connection.protocol_version == "2026-07-28"
    assert envelope.connection.client_params is not None
    assert envelope.connection.client_params.client_info.name == "c"


@pytest.mark.parametrize(
    ("token", "read_token"), [("t", "t"), (7, 7), (2**63, 2**63), (True, None), (1.5, None), ([], None), (None, None)]
)
def test_a_progress_token_is_a_string_or_a_number(token: object, read_token: object) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"_meta": {"progressToken": token}}}
    envelope = read(message)
    assert envelope is not None
    assert envelope.progress_token == read_token


@pytest.mark.parametrize("meta", [5, None, "x", []])
def test_metadata_of_another_shape_is_no_token(meta: object) -> None:
    envelope = read({"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"_meta": meta}})
    assert envelope is not None
    assert envelope.progress_token is None


def test_notifications_and_answers_need_nothing() -> None:
    assert read({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
    assert read({"jsonrpc": "2.0", "id": 1, "result": {}}) is None
    assert read({"jsonrpc": "2.0", "id": 1, "error": {}}) is None
    assert read({"jsonrpc": "2.0", "method": "x"}, [("mcp-protocol-version", "2026-07-28")]) is None


@pytest.mark.parametrize(
    ("message", "headers", "code"),
    [
        (call(), modern()[:2], -32020),
        (call(), [*modern()[:1], ("mcp-method", "tools/list"), ("mcp-name", "who")], -32020),
        (call(), [*modern(), ("mcp-name", "who")], -32020),
        (call(), [*modern(), ("mcp-protocol-version", "2026-07-28")], -32020),
        (call(_meta={}), modern(), -32602),
        (call(_meta={**META, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}), modern(), -32020),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, modern(), -32600),
        ({"jsonrpc": "2.0", "method": "x"}, [("mcp-protocol-version", "2030-01-01")], -32022),
        (call("by_region", arguments={"region": "eu"}), modern("by_region"), -32020),
        (call("by_region", arguments={"region": "eu"}), modern("by_region", ("mcp-param-region", "us")), -32020),
        (
            call("by_region", arguments={"region": "eu"}),
            modern("by_region", ("mcp-param-region", "eu"), ("mcp-param-region", "eu")),
            -32020,
        ),
    ],
)
def test_what_does_not_hold_together_is_rejected(message: object, headers: list[tuple[str, str]], code: int) -> None:
    with pytest.raises(Rejected) as rejected:
        read(message, headers)
    assert (rejected.value.code, rejected.value.status) == (code, 400)


def test_an_unsupported_version_names_those_there_are() -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    with pytest.raises(Rejected) as rejected:
        read(call(_meta=meta), [("mcp-protocol-version", "2030-01-01"), *modern()[1:]])
    assert rejected.value.code == -32022
    assert rejected.value.request_id == 1
    supported = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
    assert rejected.value.data == {"supported": supported, "requested": "2030-01-01"}
    assert all(version in rejected.value.message for version in supported)


@pytest.mark.parametrize("version", ["2023-01-01", "2030-01-01", "latest", ""])
def test_a_version_that_nobody_speaks_is_told_so_whatever_the_body(version: str) -> None:
    with pytest.raises(Rejected, match="2026-07-28, 2025-11-25, 2025-06-18") as rejected:
        read({"jsonrpc": "2.0", "id": 1, "method": "ping"}, [("mcp-protocol-version", version)])
    assert (rejected.value.code, rejected.value.request_id) == (-32022, 1)


def test_arguments_repeated_in_headers_have_to_be_the_same() -> None:
    envelope = read(call("by_region", arguments={"region": "eu"}), modern("by_region", ("mcp-param-region", "eu")))
    assert envelope is not None


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (TooDeep(), -32600, "64 levels .FMSG_MCP_JSON_DEPTH"),
        (TooManyItems(), -32600, "100000 values .FMSG_MCP_JSON_ITEMS"),
        (Malformed(), -32700, "not JSON in UTF-8"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(
    error: Malformed | TooDeep | TooManyItems, code: int, said: str
) -> None:
    rejected = body_rejected(error, Budgets())
    assert (rejected.code, rejected.status) == (code, 400)
    assert re.search(said, rejected.message)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "m" * 1025},
        {"jsonrpc": "2.0", "id": "i" * 1025, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "n" * 1025}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"progressToken": "t" * 1025}}},
    ],
)
def test_names_have_a_length(message: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="longer than 1024 characters"):
        read(message)


LARGE = "x" * ORDINARY_BYTES


@pytest.mark.parametrize("tool", ["send_message", "reply"])
def test_the_arguments_of_what_sends_may_be_large(tool: str) -> None:
    params = {"name": tool, "arguments": {"body": LARGE, "attachments": [{"data": LARGE}]}}
    envelope = read({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert envelope is not None
    assert envelope.params == params


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": LARGE}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "whoami", "arguments": {"a": LARGE}}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "reply", "_meta": {"a": LARGE}}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "reply", LARGE: 1}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "reply"}, "more": [LARGE]},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"reason": LARGE}},
    ],
)
def test_nothing_else_may_be_large(message: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="Only the arguments of reply and send_message may be over 256 KiB") as rejected:
        read(message)
    assert rejected.value.status == 413


@pytest.mark.parametrize("request_id", [1.5, None, True, [], {}, [1], {"a": 1}])
def test_an_id_of_another_kind_is_told_so(request_id: object) -> None:
    with pytest.raises(Rejected, match='"id" has to be a string or a whole number') as rejected:
        read({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
    assert (rejected.value.code, rejected.value.request_id) == (-32600, None)


@pytest.mark.parametrize("request_id", [1.5, None, True, [], {}, "a" * 5000, -1, 10**400])
def test_a_cancellation_of_any_id_is_taken_and_ignored(request_id: object) -> None:
    """A client cancels over HTTP by going away."""
    params = {"requestId": request_id}
    assert read({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}) is None


async def test_a_connection_for_one_request_holds_next_to_nothing() -> None:
    envelope = read(call(), modern())
    assert envelope is not None
    connection = envelope.connection
    assert connection.initialized.is_set()
    assert "exit_stack" not in vars(connection)
    closed: list[str] = []
    connection.exit_stack.callback(closed.append, "closed")
    await connection.exit_stack.aclose()
    assert closed == ["closed"]
    with pytest.raises(AttributeError):
        connection.no_such  # type: ignore[attr-defined]  # noqa: B018
