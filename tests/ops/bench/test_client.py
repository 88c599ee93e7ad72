"""`ops.bench.client`: answers read from pieces, as JSON and as streams, and what is no answer."""

from __future__ import annotations

import json

import pytest

from ops.bench.client import BenchClient, CallFailed, answer_in

RESULT = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"a": 1}, "isError": False},
}
BODY = json.dumps(RESULT).encode()


def plain(body: bytes, *, status: str = "200 OK") -> bytes:
    """A whole JSON answer."""
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def streamed(*pieces: bytes) -> bytes:
    """A stream in chunks."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "received", [plain(BODY), streamed(b": ping\r\n\r\n", b"event: message\r\ndata: " + BODY + b"\r\n\r\n")]
)
def test_an_answer_is_read_once_all_of_it_has_come(received: bytes) -> None:
    for end in range(len(received)):
        assert answer_in(received[:end]) is None
    answer = answer_in(received)
    assert answer is not None
    assert answer.content == {"a": 1}
    assert answer.text == "hello"
    assert not answer.is_error


@pytest.mark.parametrize(
    ("received", "told"),
    [
        (plain(b"no", status="401 Unauthorized"), "401"),
        (plain(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"bad"}}'), "bad"),
        (streamed(b": ping\r\n\r\n"), "without an event"),
    ],
)
def test_what_is_no_result_is_told(received: bytes, told: str) -> None:
    with pytest.raises(CallFailed, match=told):
        answer_in(received)


async def test_a_call_without_a_connection_fails() -> None:
    client = BenchClient(host="127.0.0.1:1", path="/mcp", api_key="k")
    with pytest.raises(CallFailed, match="closed"):
        await client.call("whoami", {})


async def test_a_connection_that_is_lost_fails_the_call_it_carried() -> None:
    client = BenchClient(host="127.0.0.1:1", path="/mcp", api_key="k")
    client.connection_lost(None)  # with nothing under way: nothing happens
    call = client.call("whoami", {})
    with pytest.raises(CallFailed):
        await call
