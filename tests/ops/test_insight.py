"""What the page is told of agents: the waits that pass an observer, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from ops.insight import Observer, SeenWaits, Snippets, result_in
from sandbox.host import SandboxHost

ALICE = "@alice@here.test"


def returned(*ids: str, **fields: Any) -> dict[str, Any]:
    """The result of a wait that returned these messages."""
    messages = [{"id": one.removesuffix("!"), "already_returned": one.endswith("!")} for one in ids]
    return {"structuredContent": {"status": "message", "after_id": "9", "messages": messages, **fields}}


def test_what_is_counted() -> None:
    seen = SeenWaits(received=2)
    for result in (returned("1", "2"), returned("2", "3"), returned("3!")):
        seen.end(seen.begin({}), result)
    assert seen.counts(received=6) == {"sent": 4, "returned": 3, "twice": 1, "marked": 1}
    assert [wait.number for wait in seen.waits] == [3, 2, 1]
    assert (seen.waits[0].ids, seen.waits[0].again, seen.waits[0].after_id) == (["3"], 1, "9")


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (None, "left"),
        ({"isError": True, "content": []}, "failed"),
        ({}, "failed"),
        ({"structuredContent": {"status": "timeout", "after_id": "4", "messages": [], "notes": ["a", "b"]}}, "timeout"),
    ],
)
def test_how_a_wait_ended(result: dict[str, Any] | None, outcome: str) -> None:
    seen = SeenWaits(received=0)
    wait = seen.begin({"timeout_seconds": 5, "settle_seconds": 1})
    assert (wait.ended_s, wait.timeout_s, wait.settle_s) == (None, 5, 1)
    seen.end(wait, result)
    assert wait.outcome == outcome
    assert wait.ended_s is not None
    assert wait.note == ("a b" if outcome == "timeout" else "")


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}',
        b'event: message\ndata: {"method":"notifications/progress"}\n\ndata: {"id":1,"result":{"a":1}}\n\n',
    ],
    ids=["json", "events"],
)
def test_the_result_in_an_answer(answer: bytes) -> None:
    assert result_in(answer) == {"a": 1}
    assert result_in(b"<html>") == {}


def test_a_host_by_itself_says_how_to_connect_a_process() -> None:
    (line, *_) = Snippets().snippets(ALICE, "fmsgk_1_2", api_url="http://127.0.0.1:1")
    assert "fmsgk_1_2" in line["text"]
    assert "http://127.0.0.1:1" in line["text"]


class Front:
    """A front that answers a call when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.arrived = asyncio.Event()
        self.answer = asyncio.Event()
        self.gone = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Hold the request, then stream a result."""
        self.asked.append((request.headers["Authorization"], await request.read()))
        self.arrived.set()
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.gone.set()
            raise
        data = msgspec.json.encode({"id": 1, "result": returned("1")})
        return web.Response(body=b"data: " + data + b"\n\n", content_type="text/event-stream")


@pytest.fixture
async def front() -> AsyncIterator[tuple[Front, str]]:
    """A front on a port."""
    made = Front()
    app = web.Application()
    app.router.add_post("/mcp", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield made, f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    await runner.cleanup()


def call(tool: str) -> dict[str, Any]:
    """A tool call."""
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {"after_id": "0"}}}


async def test_requests_pass_and_waits_are_noted(front: tuple[Front, str]) -> None:
    made, url = front
    host = SandboxHost("here.test")
    headers = {"Authorization": f"Bearer {host.control.create_key(ALICE)}"}
    observer = Observer(host.control)
    observer.front_url = url
    async with observer.serve() as served, aiohttp.ClientSession(headers=headers) as session:
        asking = asyncio.create_task(session.post(served, json=call("wait_for_message")))
        await made.arrived.wait()
        (wait,) = observer.seen[ALICE].waits
        assert wait.ended_s is None
        made.answer.set()
        async with await asking as answer:
            assert answer.content_type == "text/event-stream"
            assert b'"id":"1"' in await answer.read()
        assert (wait.outcome, wait.ids) == ("message", ["1"])
        async with session.post(served, json=call("whoami")) as answer:
            assert answer.status == 200
        assert [key for key, _ in made.asked] == [headers["Authorization"]] * 2
    assert len(observer.seen[ALICE].waits) == 1
    host.close()


async def test_an_agent_that_leaves_ends_its_call_at_the_front(front: tuple[Front, str]) -> None:
    made, url = front
    host = SandboxHost("here.test")
    observer = Observer(host.control)
    observer.front_url = url
    async with observer.serve() as served:
        headers = {"Authorization": f"Bearer {host.control.create_key(ALICE)}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            asking = asyncio.create_task(session.post(served, json=call("wait_for_message")))
            await made.arrived.wait()
            asking.cancel()
            await asyncio.wait({asking})
        await made.gone.wait()
        (wait,) = observer.seen[ALICE].waits
        assert wait.outcome == "left"
    host.close()


async def test_a_front_that_is_away_is_said(unused_tcp_port: int) -> None:
    host = SandboxHost("here.test")
    observer = Observer(host.control)
    observer.front_url = f"http://127.0.0.1:{unused_tcp_port}/mcp"
    async with observer.serve() as served, aiohttp.ClientSession() as session:
        async with session.post(served, json=call("wait_for_message"), headers={"Authorization": "Bearer x"}) as answer:
            assert answer.status == 502
        async with session.post(served, data=b"{", headers={"Authorization": "Bearer x"}) as answer:
            assert answer.status == 502
    assert observer.seen == {}
    host.close()
