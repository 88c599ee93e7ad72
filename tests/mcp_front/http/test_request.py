from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_front.http.request import Envelope, Rejected, read_envelope
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
    return read_envelope(
        body, raw, budgets=Budgets(json_items=1000), header_schema=lambda name: SCHEMA if name == "by_region" else None
    )


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
        (b"[" * 70 + b"]" * 70, [], -32600),
        (b"[" + b"1," * 100_000 + b"1]", [], -32600),
        (b"{", [], -32700),
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
    assert rejected.value.data == {"supported": ["2026-07-28"], "requested": "2030-01-01"}


def test_arguments_repeated_in_headers_have_to_be_the_same() -> None:
    envelope = read(call("by_region", arguments={"region": "eu"}), modern("by_region", ("mcp-param-region", "eu")))
    assert envelope is not None


@pytest.mark.parametrize(
    ("budget", "body"), [("JSON_DEPTH", b"[" * 70 + b"]" * 70), ("JSON_ITEMS", b"[" + b"1," * 100_000)]
)
def test_a_budget_is_named(budget: str, body: bytes) -> None:
    with pytest.raises(Rejected, match=f"FMSG_MCP_{budget}"):
        read(body)


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
