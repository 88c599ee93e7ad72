"""A line is a message, an answer with its own id, or nothing; and nothing else ever comes out."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_front.stdio.messages import VERSION_KEY, LineAnswer, LineReader, cancelled_request

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}


def begun() -> LineReader:
    reader = LineReader()
    assert isinstance(reader.read(json.dumps(INITIALIZE).encode()), types.JSONRPCRequest)
    return reader


def answered(line: bytes, reader: LineReader | None = None) -> dict[str, Any]:
    answer = (reader or begun()).read(line)
    assert isinstance(answer, LineAnswer)
    told: dict[str, Any] = json.loads(answer.line)
    return told


@pytest.mark.parametrize("request_id", ["null", "1.5", "true", "[1]", '{"a": 1}', "1e2"])
def test_an_id_that_is_none_is_answered_with_itself(request_id: str) -> None:
    told = answered(b'{"jsonrpc": "2.0", "id": %s, "method": "ping"}' % request_id.encode())
    assert told["id"] == json.loads(request_id)
    assert told["error"]["code"] == types.INVALID_REQUEST


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"jsonrpc": "1.0"}, "jsonrpc"),
        ({"jsonrpc": None}, "jsonrpc"),
        ({"params": [1]}, "params"),
        ({"params": "x"}, "params"),
        ({"method": 5}, "method"),
    ],
)
@pytest.mark.parametrize("request_id", [7, "seven", 1.5, None])
def test_an_error_in_the_frame_is_answered_with_the_id(change: dict[str, Any], named: str, request_id: object) -> None:
    told = answered(json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "ping", **change}).encode())
    assert told["id"] == request_id
    assert told["error"]["message"].startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", types.PARSE_ERROR),
        (b"\xff\xfe", types.PARSE_ERROR),
        (b"[" * 100_000, types.PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": NaN}}', types.PARSE_ERROR),
        (b"9" * 10_000, types.PARSE_ERROR),
        (b"[]", types.INVALID_REQUEST),
        (b"7", types.INVALID_REQUEST),
        (b"{}", types.INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_answered_without_an_id(line: bytes, code: int) -> None:
    told = answered(line)
    assert (told["id"], told["error"]["code"]) == (None, code)


def test_half_a_surrogate_pair_is_left_to_the_argument_that_has_it() -> None:
    line = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"body": "\\ud800"}}}'
    message = begun().read(line)
    assert isinstance(message, types.JSONRPCRequest)
    assert (message.params or {})["arguments"]["body"] == "\ud800"


def test_a_leading_byte_order_mark_is_skipped_once() -> None:
    reader = LineReader()
    line = b"\xef\xbb\xbf" + json.dumps(INITIALIZE).encode()
    assert isinstance(reader.read(line), types.JSONRPCRequest)
    assert answered(line, reader)["error"]["code"] == types.PARSE_ERROR


def test_nothing_is_served_before_initialize_to_the_eras_that_have_it() -> None:
    reader = LineReader()
    listing = b'{"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}'
    told = answered(listing, reader)
    assert (told["id"], told["error"]["code"]) == (1, types.INVALID_REQUEST)
    assert "initialize" in told["error"]["message"]
    assert isinstance(reader.read(b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}'), types.JSONRPCRequest)
    newest = {"jsonrpc": "2.0", "id": 3, "method": "prompts/list", "params": {"_meta": {VERSION_KEY: "2026-07-28"}}}
    assert isinstance(reader.read(json.dumps(newest).encode()), types.JSONRPCRequest)
    assert answered(listing, reader)["id"] == 1
    reader.read(json.dumps(INITIALIZE).encode())
    assert isinstance(reader.read(listing), types.JSONRPCRequest)


@pytest.mark.parametrize("line", [b"", b"  \r\n", b'{"jsonrpc": "2.0", "id": 1, "result": {}}'])
def test_what_asks_for_nothing_gets_nothing(line: bytes) -> None:
    assert begun().read(line) is None


@pytest.mark.parametrize("request_id", [[], {}, None, True, 1.5])
def test_a_cancellation_of_what_is_no_id_cancels_nothing(request_id: object) -> None:
    params = {"requestId": request_id}
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    message = begun().read(line.encode())
    assert isinstance(message, types.JSONRPCNotification)
    assert cancelled_request(message) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result"]), JSON | st.just("2.0"), max_size=5)
)
def test_every_line_with_an_id_that_asks_for_something_gets_a_message_or_an_answer(fields: dict[str, Any]) -> None:
    came = begun().read(json.dumps(fields).encode())
    if isinstance(came, LineAnswer):
        assert json.loads(came.line)["id"] == fields.get("id")
    elif came is None:
        assert "method" not in fields
    else:
        assert fields["method"] == came.model_dump()["method"]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_an_answer_or_nothing(line: bytes) -> None:
    begun().read(line)
