"""The event socket: what it yields, how it ends, what it never does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import WSCloseCode, WSMsgType, web
from hypothesis import given
from hypothesis import strategies as st

from fmsg import events
from fmsg.events import TYPES, Event, EventSocket, read_event
from fmsg.http import HostHttp
from fmsg.message import Message
from tests.fmsg.fakehost import KEY, FakeHost

Script = Callable[[web.WebSocketResponse], Awaitable[None]]


def frame(kind: str, message_id: int, **fields: object) -> str:
    """A push as hosts send it."""
    return json.dumps({"type": kind, "data": {"id": message_id, "from": "@b@b.test", "time": 1.5, **fields}})


def speaks(host: FakeHost, script: Script, *, autoping: bool = True) -> list[str | bytes]:
    """Let the host's socket follow a script; returns the list of data frames the client sends."""
    heard: list[str | bytes] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=autoping, timeout=0.1)
        await socket.prepare(request)
        await script(socket)
        heard.extend([message.data async for message in socket if message.type is not WSMsgType.CLOSE])
        return socket

    host.on("GET", "/fmsg/ws", handler)
    return heard


async def connect(http: HostHttp, *, heartbeat_s: float = 20.0, max_frame_bytes: int = 10_000) -> EventSocket:
    """An event socket with limits of the test's own."""
    return EventSocket(
        await http.socket("/fmsg/ws", bearer="token", heartbeat_s=heartbeat_s, max_frame_bytes=max_frame_bytes)
    )


async def test_pushes_come_as_events_in_the_order_of_the_frames(host: FakeHost, http: HostHttp) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        for kind, message_id in (("new_msg", 2**63 - 1), ("recipients_added", 5), ("delivered", 7), ("reaction", 6)):
            await socket.send_str(frame(kind, message_id))
        await socket.close()

    heard = speaks(host, script)
    socket = await connect(http)
    assert [(event.type, event.message.id) async for event in socket] == [
        ("new_msg", 2**63 - 1),
        ("recipients_added", 5),
        ("delivered", 7),
        ("reaction", 6),
    ]
    await socket.close()
    assert heard == []


async def test_the_upgrade_carries_the_token_and_offers_no_compression(host: FakeHost, http: HostHttp) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await socket.close()

    speaks(host, script)
    await (await connect(http)).close()
    headers = host.asked[0].headers
    assert headers["Authorization"] == "Bearer token"
    assert "Sec-WebSocket-Extensions" not in headers
    assert "token" not in host.asked[0].path


async def test_what_cannot_be_understood_is_skipped_and_counted(
    host: FakeHost, http: HostHttp, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [
        "",
        "{",
        "null",
        "[]",
        '{"type":"new_msg"}',
        '{"data":{"id":1}}',
        '{"type":"new_msg","data":{"id":"1"}}',
        "\x00",
    ]

    async def script(socket: web.WebSocketResponse) -> None:
        for text in odd:
            await socket.send_str(text)
        await socket.send_bytes(frame("new_msg", 3).encode())
        await socket.send_str(frame("typing", 4))
        await socket.send_str(json.dumps({"type": "new_msg", "data": {"from": "@b@b.test", "topic": "no id"}}))
        await socket.send_str(frame("new_msg", 5))
        await socket.close()

    speaks(host, script)
    socket = await connect(http)
    with caplog.at_level(logging.DEBUG, logger="fmsg"):
        assert [event.message.id async for event in socket] == [5]
    assert socket.skipped == len(odd) + 3
    assert "no id" not in caplog.text
    await socket.close()


async def test_the_host_s_close_ends_the_iteration_with_its_words(host: FakeHost, http: HostHttp) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await socket.send_str(frame("new_msg", 1))
        await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=f"full {KEY}".encode())

    speaks(host, script)
    socket = await connect(http)
    assert [event.message.id async for event in socket] == [1]
    assert socket.close_reason == "closed by the host with 1013 full [redacted fmsg key]"
    assert [event async for event in socket] == []
    await socket.close()


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_a_cut_connection_ends_the_iteration(host: FakeHost, http: HostHttp, how: str) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await socket.send_str(frame("new_msg", 1))
        transport = socket._req.transport if socket._req else None
        assert transport is not None
        getattr(transport, how)()

    speaks(host, script)
    socket = await connect(http)
    assert [event.message.id async for event in socket] == [1]
    assert socket.close_reason == "the connection was cut"
    await socket.close()


async def test_a_host_that_says_no_more_is_given_up_after_a_ping(host: FakeHost, http: HostHttp) -> None:
    pinged = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=False, timeout=0.1)
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.PING:
                pinged.set()
        return socket

    host.on("GET", "/fmsg/ws", handler)
    socket = await connect(http, heartbeat_s=0.1)
    assert [event async for event in socket] == []
    assert socket.close_reason == "no sign of life from the host"
    assert pinged.is_set()
    await socket.close()


async def test_a_host_that_answers_pings_is_not_given_up(host: FakeHost, http: HostHttp) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=False, timeout=0.1)
        await socket.prepare(request)
        pings = 0
        async for message in socket:
            if message.type is WSMsgType.PING:
                pings += 1
                await socket.pong(message.data)
            if pings == 2:
                await socket.send_str(frame("new_msg", 1))
                break
        await socket.close()
        return socket

    host.on("GET", "/fmsg/ws", handler)
    socket = await connect(http, heartbeat_s=0.3)
    assert [event.message.id async for event in socket] == [1]
    await socket.close()


async def test_the_host_s_pings_are_answered(host: FakeHost, http: HostHttp) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=False, timeout=0.1)
        await socket.prepare(request)
        await socket.ping(b"alive?")
        answer = await socket.receive()
        assert (answer.type, bytes(answer.data)) == (WSMsgType.PONG, b"alive?")
        await socket.send_str(frame("new_msg", 1))
        await socket.close()
        return socket

    host.on("GET", "/fmsg/ws", handler)
    socket = await connect(http)
    assert [event.message.id async for event in socket] == [1]
    await socket.close()


async def test_a_frame_beyond_the_limit_ends_the_socket(host: FakeHost, http: HostHttp) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await socket.send_str(frame("new_msg", 1, topic="x" * 200))
        await socket.send_str(frame("new_msg", 2, topic="x" * 2000))

    speaks(host, script)
    socket = await connect(http, max_frame_bytes=1000)
    assert [event.message.id async for event in socket] == [1]
    assert socket.close_reason.startswith("the host broke the protocol: ")
    await socket.close()


async def test_closing_while_somebody_iterates_ends_the_iteration(host: FakeHost, http: HostHttp) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await socket.send_str(frame("new_msg", 1))

    speaks(host, script)
    socket = await connect(http)
    first = asyncio.Event()

    async def iterate() -> list[int]:
        ids = []
        async for event in socket:
            ids.append(event.message.id)
            first.set()
        return ids

    iterating = asyncio.create_task(iterate())
    await first.wait()
    await socket.close()
    assert await iterating == [1]
    assert socket.close_reason == "closed by us"


async def test_closing_takes_no_longer_than_it_may(
    host: FakeHost, http: HostHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CLOSE_WITHIN_S", 0.1)
    over = asyncio.Event()

    async def script(socket: web.WebSocketResponse) -> None:
        while not over.is_set():
            await socket.send_str(frame("new_msg", 1))
            await asyncio.sleep(0.01)

    speaks(host, script)
    socket = await connect(http)
    assert (await anext(socket)).message.id == 1
    loop = asyncio.get_running_loop()
    started = loop.time()
    await socket.close()
    assert loop.time() - started < 1.0
    over.set()


async def test_a_cancelled_iteration_leaves_a_socket_that_closes(host: FakeHost, http: HostHttp) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await socket.send_str(frame("new_msg", 1))

    speaks(host, script)
    socket = await connect(http)
    await anext(socket)
    waiting = asyncio.ensure_future(anext(socket))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await socket.close()
    assert socket.close_reason == "closed by us"


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_each_type_there_is_is_read(kind: str) -> None:
    assert read_event(frame(kind, 7)) == Event(kind, Message(id=7, from_="@b@b.test", time=1.5))


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_no_frame_raises(data: str | bytes) -> None:
    assert read_event(data) is None


def test_half_a_surrogate_pair_in_a_frame_costs_that_frame_only() -> None:
    assert read_event('{"type":"new_msg","data":{"id":1,"topic":"\\ud800"}}') is None
