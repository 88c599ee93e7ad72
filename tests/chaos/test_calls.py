"""The light client: answers as JSON and as a stream, and every way in which there is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.chaos.calls import Client, Dropped, Refused, Silent, ToolFailed

Handler = Callable[[web.Request, int], Awaitable[web.StreamResponse]]


class Desk:
    """A server that answers with whatever it is given."""

    def __init__(self) -> None:
        self.handler: Handler
        self.seen: list[dict[str, object]] = []
        app = web.Application()
        app.router.add_post("/mcp", self._handle)
        self.server = TestServer(app)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body | {"headers": dict(request.headers)})
        return await self.handler(request, body["id"])

    @property
    def url(self) -> str:
        return str(self.server.make_url("/mcp"))


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    found = Desk()
    async with found.server:
        yield found


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client() as found:
        yield found


def result(request_id: int, **fields: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, "result": fields}


async def test_an_answer_in_json(desk: Desk, client: Client) -> None:
    async def answer(_: web.Request, request_id: int) -> web.StreamResponse:
        return web.json_response(result(request_id, structuredContent={"a": 1}))

    desk.handler = answer
    assert await client.call(desk.url, "fmsgk_x", "whoami", {}, patience_s=5) == {"a": 1}
    (seen,) = desk.seen
    assert seen["params"] == {"name": "whoami", "arguments": {}}
    headers = seen["headers"]
    assert isinstance(headers, dict)
    assert headers["Authorization"] == "Bearer fmsgk_x"


async def test_an_answer_in_a_stream_after_pings_and_progress(desk: Desk, client: Client) -> None:
    async def answer(request: web.Request, request_id: int) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b": ping\r\n\r\n")
        await stream.write(b'data: {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}\r\n\r\n')
        body = json.dumps(result(request_id, structuredContent={"a": 2})).encode()
        await stream.write(b"event: message\r\ndata: " + body[:20])
        await stream.write(body[20:] + b"\r\n\r\n")
        return stream

    desk.handler = answer
    assert await client.call(desk.url, "k", "t", {}, patience_s=5) == {"a": 2}


async def test_a_stream_that_ends_early_was_dropped(desk: Desk, client: Client) -> None:
    async def answer(request: web.Request, _: int) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b": ping\r\n\r\n")
        return stream

    desk.handler = answer
    with pytest.raises(Dropped, match="without an answer"):
        await client.call(desk.url, "k", "t", {}, patience_s=5)


async def test_a_connection_that_is_cut_was_dropped(desk: Desk, client: Client) -> None:
    async def answer(request: web.Request, _: int) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    desk.handler = answer
    with pytest.raises(Dropped):
        await client.call(desk.url, "k", "t", {}, patience_s=5)


async def test_silence_has_an_end(desk: Desk, client: Client) -> None:
    over = asyncio.Event()

    async def answer(request: web.Request, _: int) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await over.wait()
        return stream

    desk.handler = answer
    with pytest.raises(Silent):
        await client.call(desk.url, "k", "t", {}, patience_s=0.1)
    over.set()


async def test_a_status_is_a_refusal(desk: Desk, client: Client) -> None:
    async def answer(_: web.Request, __: int) -> web.StreamResponse:
        return web.Response(status=503, text="not now", headers={"Retry-After": "7"})

    desk.handler = answer
    with pytest.raises(Refused, match="503: not now") as caught:
        await client.call(desk.url, "k", "t", {}, patience_s=5)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 7.0)


async def test_an_error_of_the_tool_says_its_text(desk: Desk, client: Client) -> None:
    async def answer(_: web.Request, request_id: int) -> web.StreamResponse:
        return web.json_response(
            result(request_id, isError=True, content=[{"type": "text", "text": "no such message"}])
        )

    desk.handler = answer
    with pytest.raises(ToolFailed, match="no such message"):
        await client.call(desk.url, "k", "t", {}, patience_s=5)


async def test_an_error_of_the_protocol_says_its_message(desk: Desk, client: Client) -> None:
    async def answer(_: web.Request, request_id: int) -> web.StreamResponse:
        error = {"code": -32602, "message": "unknown tool"}
        return web.json_response({"jsonrpc": "2.0", "id": request_id, "error": error})

    desk.handler = answer
    with pytest.raises(ToolFailed, match="unknown tool"):
        await client.call(desk.url, "k", "t", {}, patience_s=5)
