from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ledger.embedded import free_port
from ops.doctor.proxy import NOBODY, HeldWait, check_proxy, judge

KEY = "fmsgk_c2VjcmV0c2VjcmV0"
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "No message."}]}}
EVENT = f"event: message\r\ndata: {json.dumps(ANSWER)}\r\n\r\n"
PING = ": ping\r\n\r\n"


def held(
    *signs_s: float,
    ended_s: float = 75.0,
    text: str = PING + EVENT,
    status: int = 200,
    streamed: bool = True,
    cut: str | None = None,
) -> HeldWait:
    return HeldWait(status=status, streamed=streamed, signs_s=signs_s, ended_s=ended_s, text=text, cut=cut)


def told(answer: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **answer})


class TestJudging:
    @pytest.mark.parametrize(
        ("came", "level", "words"),
        [
            (held(1, 16, 31, 46, 61, 75), "ok", ["held 75 s", "at most 15 s apart"]),
            (held(75, text=EVENT), "failure", ["nothing came for 75 s", "proxy_buffering off"]),
            (held(text=told(ANSWER), streamed=False), "failure", ["signs of life are held back"]),
            (held(1, ended_s=11, text=PING, cut="closed"), "failure", ["cut after 11 s", "10 s of silence"]),
            (held(1, 16, 31, 46, ended_s=60, text=PING), "failure", ["cut after 60 s", "14 s of silence"]),
            (held(1, 16, 31, ended_s=32, text=PING), "failure", ["cut after 32 s", "how long a whole request"]),
            (held(ended_s=30, text=""), "failure", ["cut after 30 s", "30 s of silence"]),
            (held(1, ended_s=5), "warning", ["after 5 s already", "repeat it"]),
            (held(1, text=told({"error": {"message": "no such tool"}})), "failure", ["no such tool"]),
            (
                held(1, text=told({"result": {"isError": True, "content": [{"type": "text", "text": "no wait"}]}})),
                "failure",
                ["no wait", "about the call itself"],
            ),
            (held(1, text="hello", streamed=False), "failure", ["no answer to a call"]),
            (held(1, text=told({"result": [1]}), streamed=False), "failure", ["signs of life are held back"]),
        ],
    )
    def test_what_came_tells_of_the_way(self, came: HeldWait, level: str, words: list[str]) -> None:
        found = judge(came, tried="hold a wait", hold_s=75.0)
        assert found.level == level, found
        assert all(word in f"{found.came} {found.do}" for word in words), found

    def test_a_short_wait_shows_no_signs(self) -> None:
        came = held(ended_s=5.0, text=told(ANSWER), streamed=False)
        assert judge(came, tried="hold a wait", hold_s=5.0).level == "ok"

    @pytest.mark.parametrize(
        ("status", "do"),
        [
            (401, "Authorization"),
            (404, "/mcp"),
            (405, "POST"),
            (421, "FMSG_MCP_ALLOWED_HOSTS"),
            (502, "finds no front"),
            (504, "240 s"),
            (307, "redirect"),
            (418, "log"),
        ],
    )
    def test_a_refusal_has_its_next_step(self, status: int, do: str) -> None:
        refusal = held(ended_s=0.1, status=status, text=told({"error": {"message": "not here"}}), streamed=False)
        found = judge(refusal, tried="hold a wait", hold_s=75.0)
        assert found.level == "failure"
        assert f"{status} after 0 s (not here)" in found.came
        assert do in found.do

    @pytest.mark.parametrize(("text", "shown"), [("<html>bad gateway</html>", "502 after 0 s"), ("busy", "(busy)")])
    def test_what_a_proxy_wrote(self, text: str, shown: str) -> None:
        refusal = held(ended_s=0.1, status=502, text=text, streamed=False)
        assert judge(refusal, tried="hold a wait", hold_s=75.0).came.endswith(shown)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def front(handler: Handler) -> AsyncIterator[str]:
    """Something that answers like a front, or a proxy before one."""
    app = web.Application()
    app.router.add_post("/mcp", handler)
    async with TestServer(app) as server:
        yield str(server.make_url("/mcp"))


async def streamed(request: web.Request, *parts: str) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for part in parts:
        await answer.write(part.encode())
    return answer


class TestHolding:
    async def test_a_wait_is_asked_for_that_nobody_ends(self) -> None:
        asked: list[Any] = []

        async def handler(request: web.Request) -> web.StreamResponse:
            asked.extend((await request.json(), request.headers["Authorization"], request.headers["Accept"]))
            return await streamed(request, PING, PING, EVENT)

        async with front(handler) as url:
            found = await check_proxy(url, KEY, 1.0)
        assert found.level == "ok", found
        assert "2 signs of life" in found.came
        assert asked[0]["params"] == {
            "name": "wait_for_message",
            "arguments": {"from": NOBODY, "timeout_seconds": 1.0},
        }
        assert asked[1:] == [f"Bearer {KEY}", "application/json, text/event-stream"]
        assert KEY not in str(found)

    async def test_a_proxy_that_cuts(self) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            answer = await streamed(request, PING)
            assert request.transport is not None
            request.transport.abort()
            return answer

        async with front(handler) as url:
            found = await check_proxy(url, KEY, 1.0)
        assert found.level == "failure"
        assert "cut after 0 s" in found.came
        assert "1 sign of life had come" in found.came

    async def test_a_way_that_is_silent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ops.doctor.proxy.SPARE_S", 0.1)

        async def handler(request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            return web.Response()

        async with front(handler) as url:
            found = await check_proxy(url, KEY, 0.1)
        assert (found.level, found.came) == ("failure", "nothing within 0.2 s")

    async def test_a_stream_that_does_not_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ops.doctor.proxy.SPARE_S", 0.1)

        async def handler(request: web.Request) -> web.StreamResponse:
            answer = await streamed(request, PING)
            await asyncio.Event().wait()
            return answer

        async with front(handler) as url:
            found = await check_proxy(url, KEY, 0.1)
        assert found.level == "failure"
        assert "it did not end" in found.came

    async def test_nobody_listens(self) -> None:
        found = await check_proxy(f"http://127.0.0.1:{free_port()}/mcp", KEY, 1.0)
        assert found.level == "failure"
        assert found.came.startswith("no answer (ClientConnectorError")

    async def test_a_flood_is_not_kept(self) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            return await streamed(request, "x" * 1_000_000)

        async with front(handler) as url:
            assert (await check_proxy(url, KEY, 1.0)).level == "failure"
