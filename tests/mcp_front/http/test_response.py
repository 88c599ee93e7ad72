"""One exchange against a server of the SDK, with the ASGI side played by the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError, NoBackChannelError

from ledger.values import CallerKey
from mcp_front.http.body import RequestBody
from mcp_front.http.request import Envelope, read_envelope
from mcp_front.http.response import PIECE_BYTES, AnswerMessage, Exchange, SlowReader
from mcp_front.limits import AnswerShare, ByteBudget, answer_limits
from mcp_front.settings import MIB, Budgets
from mcp_front.timer_wheel import TimerWheel

ANN = CallerKey("ann")
Act = Callable[[Any], Any]


class Client:
    """What comes out of ``send``; ``full`` lets writes wait, as for a client that does not read."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.full: asyncio.Event | None = None
        self.blocked = asyncio.Event()
        self._wrote = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        if self.full is not None:
            self.blocked.set()
            await self.full.wait()
        self.sent.append(message)
        self._wrote.set()

    async def until(self, *, pings: int) -> None:
        """Wait for so many keep-alive comments."""
        async with asyncio.timeout(5):
            while self.body.count(b": ping\r\n\r\n") < pings:
                self._wrote.clear()
                await self._wrote.wait()

    @property
    def status(self) -> int:
        assert self.sent[0]["type"] == "http.response.start"
        return int(self.sent[0]["status"])

    @property
    def content_type(self) -> str:
        return bytes(dict(self.sent[0]["headers"])[b"content-type"]).decode()

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body", False) is False and len(self.sent) > 1

    def events(self) -> list[Any]:
        return [json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: ")]


class Bench:
    session: Any = None
    request: Any = None

    def __init__(self, act: Act) -> None:
        async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            self.session = ctx.session
            self.request = ctx.request
            text = await act(ctx)
            return types.CallToolResult(content=[types.TextContent(text=text or "done")])

        self.server: Server[Any] = Server("t", on_call_tool=call_tool)
        self.client = Client()
        loop = asyncio.get_running_loop()
        self.timer_wheel = TimerWheel(now=loop.time, call_at=loop.call_at)
        self.exchange: Exchange | None = None
        self.answers = ByteBudget(answer_limits(Budgets(answer_bytes=8 * MIB, answer_bytes_per_caller=4 * MIB)))
        self.stall_s = 60.0

    async def run(
        self,
        *,
        json_: bool = True,
        stream: bool = True,
        after_s: float = 60.0,
        ping_s: float = 60.0,
        token: Any = None,
        modern: bool = False,
        method: str = "tools/call",
    ) -> None:
        envelope = self.envelope(method, token, modern=modern)
        self.exchange = Exchange(
            envelope,
            self.client.send,
            timer_wheel=self.timer_wheel,
            accepts_json=json_,
            accepts_stream=stream,
            stream_after_s=after_s,
            ping_s=ping_s,
            request="the request",
            answer_share=AnswerShare(self.answers, ANN),
            write_stall_s=self.stall_s,
            extra_headers=[(b"x-request-id", b"r")],
        )
        await self.exchange.run(self.server, {})

    def envelope(self, method: str, token: Any, *, modern: bool) -> Envelope:
        meta: dict[str, Any] = {"progressToken": token} if token is not None else {}
        headers: list[tuple[bytes, bytes]] = []
        if modern:
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28"
            meta["io.modelcontextprotocol/clientCapabilities"] = {}
            headers = [(b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", method.encode()), (b"mcp-name", b"t")]
        message = {"jsonrpc": "2.0", "id": 9, "method": method, "params": {"name": "t", "_meta": meta}}
        envelope = read_envelope(RequestBody(message, 100), headers, header_schema=lambda name: None)
        assert envelope is not None
        return envelope


async def at_once(ctx: Any) -> str:
    return "done"


async def test_what_is_there_soon_is_plain_json() -> None:
    bench = Bench(at_once)
    await bench.run()
    assert (bench.client.status, bench.client.content_type, bench.client.complete) == (200, "application/json", True)
    assert json.loads(bench.client.body)["result"]["content"][0]["text"] == "done"
    assert dict(bench.client.sent[0]["headers"])[b"x-request-id"] == b"r"
    assert bench.request == "the request"
    assert len(bench.timer_wheel) == 0


async def test_what_takes_longer_becomes_a_stream_with_pings() -> None:
    go = asyncio.Event()

    async def wait(ctx: Any) -> None:
        await go.wait()

    bench = Bench(wait)
    running = asyncio.ensure_future(bench.run(after_s=0.0, ping_s=0.01))
    await bench.client.until(pings=3)
    go.set()
    await running
    assert (bench.client.content_type, bench.client.complete) == ("text/event-stream", True)
    assert [event["id"] for event in bench.client.events()] == [9]
    assert len(bench.timer_wheel) == 0


async def test_progress_comes_ahead_of_the_answer_where_it_was_asked_for() -> None:
    async def report(ctx: Any) -> None:
        await ctx.session.report_progress(1.0, 4.0, "one")
        await ctx.session.report_progress(2.0)

    bench = Bench(report)
    await bench.run(token="t")
    progress = [event["params"] for event in bench.client.events()[:-1]]
    assert progress == [
        {"progressToken": "t", "progress": 1.0, "total": 4.0, "message": "one"},
        {"progressToken": "t", "progress": 2.0},
    ]
    assert bench.client.events()[-1]["id"] == 9
    for options in ({"token": None}, {"token": "t", "stream": False}):
        bench = Bench(report)
        await bench.run(**options)
        assert bench.client.content_type == "application/json"
        assert "progress" not in bench.client.body.decode()


async def test_a_client_that_accepts_streams_only_gets_one_at_once() -> None:
    bench = Bench(at_once)
    await bench.run(json_=False)
    assert bench.client.content_type == "text/event-stream"
    assert bench.client.events()[0]["id"] == 9


@pytest.mark.parametrize("after_s", [0.0, 60.0])
async def test_a_client_that_has_gone_ends_the_call(after_s: float) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(ctx: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    bench = Bench(wait)
    running = asyncio.ensure_future(bench.run(after_s=after_s))
    await begun.wait()
    assert bench.exchange is not None
    bench.exchange.lost()
    await running
    assert ended.is_set()
    assert not bench.client.complete
    assert len(bench.timer_wheel) == 0
    assert not running.cancelling()
    bench.exchange.lost()
    bench.exchange.due()
    await bench.exchange.notify("notifications/x", None)


async def test_a_cancellation_that_is_not_the_clients_goes_on() -> None:
    begun = asyncio.Event()

    async def wait(ctx: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    bench = Bench(wait)
    running = asyncio.ensure_future(bench.run())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_client_that_does_not_read_is_not_pinged() -> None:
    go = asyncio.Event()

    async def wait(ctx: Any) -> None:
        await go.wait()

    bench = Bench(wait)
    running = asyncio.ensure_future(bench.run(after_s=60.0))
    await asyncio.sleep(0)
    assert bench.exchange is not None
    bench.exchange.due()
    before = len(bench.client.sent)
    bench.client.full = asyncio.Event()
    bench.exchange.due()
    bench.exchange.due()
    bench.client.full.set()
    go.set()
    await running
    assert len(bench.client.sent) == before + 1
    assert bench.client.complete


@pytest.mark.parametrize(("modern", "status"), [(False, 200), (True, 404)])
async def test_errors_have_a_status_in_the_newest_era_only(modern: bool, status: int) -> None:
    bench = Bench(at_once)
    await bench.run(method="no/such", modern=modern)
    assert bench.client.status == status
    assert json.loads(bench.client.body)["error"]["code"] == -32601


async def test_an_error_with_data_and_one_that_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(ctx: Any) -> None:
        raise MCPError(-32021, "no", {"why": 1})

    async def fail(ctx: Any) -> None:
        raise RuntimeError("a secret")

    bench = Bench(refuse)
    await bench.run(modern=True)
    assert json.loads(bench.client.body)["error"] == {"code": -32021, "message": "no", "data": {"why": 1}}
    assert bench.client.status == 400
    bench = Bench(fail)
    await bench.run()
    assert json.loads(bench.client.body)["error"] == {"code": -32603, "message": "Internal server error"}


async def test_half_a_surrogate_pair_is_still_json() -> None:
    async def odd(ctx: Any) -> str:
        return "x\ud800y"

    bench = Bench(odd)
    await bench.run()
    assert json.loads(bench.client.body)["result"]["content"][0]["text"] == "x\ud800y"


LONG = 'long\U0001f600"\\ ' * 20_000


async def answer_long(ctx: Any) -> str:
    return LONG


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_large_answer_is_written_in_pieces(stream: bool, modern: bool) -> None:
    bench = Bench(answer_long)
    await bench.run(json_=not stream, modern=modern)
    answer = bench.client.events()[0] if stream else json.loads(bench.client.body)
    assert bench.client.content_type == ("text/event-stream" if stream else "application/json")
    assert answer["result"]["content"][0]["text"] == LONG
    assert bench.client.complete
    assert max(len(message.get("body", b"")) for message in bench.client.sent) < 3 * PIECE_BYTES
    assert bench.answers.total == 0 or bench.answers.total >= 4 * len(LONG)
    assert len(bench.timer_wheel) == 0


async def test_others_have_their_turn_while_a_large_answer_is_written() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    bench = Bench(answer_long)
    await bench.run()
    counting.cancel()
    assert turns >= len(LONG) // PIECE_BYTES


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "result": {"a": [LONG, {"b": LONG + "x", "c": 1}], "d": None, "e": "short"}},
        {"id": LONG},
        {"result": [str(number) * 50 for number in range(20_000)]},
        {"result": LONG + "\ud800" + LONG, "x": "\udfff"},
    ],
)
def test_pieces_together_are_the_message(message: dict[str, Any]) -> None:
    made = AnswerMessage(message)
    assert made.whole is None
    pieces = list(made.pieces())
    assert json.loads(b"".join(pieces)) == message
    assert max(map(len, pieces)) < 13 * PIECE_BYTES
    assert b"\n" not in b"".join(pieces)


def test_a_small_message_is_made_at_once() -> None:
    assert AnswerMessage({"id": 1}).whole == b'{"id":1}'


async def test_an_answer_is_on_the_budget_until_it_is_written() -> None:
    bench = Bench(answer_long)
    bench.client.full = asyncio.Event()
    running = asyncio.ensure_future(bench.run())
    await bench.client.blocked.wait()
    held = bench.answers.total
    assert held >= 4 * len(LONG)
    bench.client.full.set()
    await running
    assert json.loads(bench.client.body)["result"]["content"][0]["text"] == LONG


@pytest.mark.parametrize("modern", [False, True])
async def test_an_answer_that_there_is_no_memory_for_says_so(modern: bool) -> None:
    async def answer(ctx: Any) -> str:
        return LONG * 10

    bench = Bench(answer)
    await bench.run(modern=modern)
    result = json.loads(bench.client.body)["result"]
    assert result["isError"]
    assert "FMSG_MCP_ANSWER_BYTES_PER_CALLER" in result["content"][0]["text"]
    assert "Ask for less" in result["structuredContent"]["error"]["reason"]


async def test_a_client_that_does_not_take_a_large_answer_is_given_up() -> None:
    bench = Bench(answer_long)
    bench.stall_s = -1e6
    bench.client.full = asyncio.Event()
    with pytest.raises(SlowReader):
        await bench.run()


async def test_a_client_that_goes_away_ends_the_writing() -> None:
    bench = Bench(answer_long)
    bench.client.full = asyncio.Event()
    running = asyncio.ensure_future(bench.run())
    await bench.client.blocked.wait()
    assert bench.exchange is not None
    bench.exchange.lost()
    bench.client.full.set()
    await running
    assert len(bench.client.sent) == 1
    assert not bench.client.complete


async def test_there_is_no_way_back_to_the_client() -> None:
    bench = Bench(at_once)
    await bench.run()
    assert bench.exchange is not None
    with pytest.raises(NoBackChannelError):
        await bench.exchange.send_raw_request("roots/list", None)
    assert not bench.session.can_send_request
