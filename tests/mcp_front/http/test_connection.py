"""What uvicorn alone would let pass: headers without end, connections without requests, answers nobody takes."""

from __future__ import annotations

import asyncio
import sys

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from mcp_front.http.connection import Connection
from mcp_front.settings import Budgets
from mcp_front.timer_wheel import TimerWheel
from tests.mcp_front.fakes import Front, call, front
from tests.mcp_front.raw import Wire, post, wire

BRIEF = Budgets(header_s=0.2, header_bytes=4096)


async def test_requests_follow_each_other_on_one_connection(running: Front) -> None:
    key = running.key()
    async with wire(running) as one:
        for _ in range(3):
            await one.say(post(key, call("who")))
            assert (await one.answer())[0] == 200
        await one.say(post(key, call("who", id_=1)) + post(key, call("who", id_=2)))
        assert b'"id":1' in (await one.answer())[2]
        assert b'"id":2' in (await one.answer())[2]


@pytest.mark.parametrize("header", [b"X: " + b"a" * 8000, b"a" * 8000 + b": x", b"\r\n".join([b"X: y"] * 1000)])
async def test_headers_over_budget_are_431(header: bytes) -> None:
    async with front(budgets=BRIEF) as running, wire(running) as one:
        await one.say(post(running.key(), call("who"), header))
        status, headers, body = await one.answer()
        assert (status, headers["connection"]) == (431, "close")
        assert b"FMSG_MCP_HEADER_BYTES" in body
        assert await one.closed()


async def test_a_header_without_end_is_431_before_it_is_all_there() -> None:
    async with front(budgets=Budgets(header_bytes=4096)) as running, wire(running) as one:
        await one.say(b"POST /mcp HTTP/1.1\r\nX: ")
        for _ in range(20):
            await one.say(b"a" * 1000)
        assert (await one.answer())[0] == 431


async def test_a_long_request_line_is_431() -> None:
    async with front(budgets=BRIEF) as running, wire(running) as one:
        await one.say(b"POST /mcp?" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await one.answer())[0] == 431


@pytest.mark.parametrize(
    "beginning", [b"", b"\r\n", b"P", b"POST /mcp HTTP/1.1\r\n", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: "]
)
async def test_a_connection_without_a_request_ends(beginning: bytes) -> None:
    async with front(budgets=BRIEF) as running, wire(running) as one:
        await one.say(beginning)
        assert await one.closed()


async def test_bytes_between_requests_do_not_keep_a_connection() -> None:
    async with front(budgets=BRIEF) as running, wire(running) as one:
        await one.say(post(running.key(), call("who")))
        assert (await one.answer())[0] == 200
        await one.say(b"\r\n")
        assert await one.closed()


async def test_slow_headers_do_not_put_the_deadline_off() -> None:
    async with front(budgets=BRIEF) as running, wire(running) as one:

        async def drip() -> None:
            for letter in b"POST /mcp HTTP/1.1\r\nX-Slow: " + b"a" * 10_000:
                await one.say(bytes([letter]))
                await asyncio.sleep(0.01)

        dripping = asyncio.ensure_future(drip())
        assert await one.closed()
        dripping.cancel()


async def test_an_idle_connection_may_wait_longer_than_headers_may_take() -> None:
    async with front(budgets=Budgets(header_s=0.05)) as running, wire(running) as one:
        key = running.key()
        await one.say(post(key, call("who")))
        assert (await one.answer())[0] == 200
        async with wire(running) as other:
            assert await other.closed()
        await one.say(post(key, call("who")))
        assert (await one.answer())[0] == 200


async def test_a_held_call_is_no_slow_header() -> None:
    async with front(budgets=Budgets(header_s=0.05), sse_after_s=60.0) as running, wire(running) as one:
        await one.say(post(running.key(), call("hold")))
        await running.toolbox.until(holding=1)
        async with wire(running) as other:
            assert await other.closed()
        running.toolbox.release.set()
        assert (await one.answer())[0] == 200


async def test_the_rest_of_a_refused_body_is_thrown_away_for_a_while() -> None:
    async with front(budgets=Budgets(header_s=0.2, max_body_bytes=10)) as running:
        key = running.key()
        head = post(key, b"x" * 100_000).split(b"\r\n\r\n")[0] + b"\r\n\r\n"
        async with wire(running) as one:
            await one.say(head)
            assert (await one.answer())[0] == 413
            await one.say(b"x" * 100_000)
            await one.say(post(key, call("who")))
            assert (await one.answer())[0] == 413
        async with wire(running) as one:
            await one.say(head)
            assert (await one.answer())[0] == 413

            async def drip() -> None:
                for _ in range(1000):
                    await one.say(b"x")
                    await asyncio.sleep(0.01)

            dripping = asyncio.ensure_future(drip())
            assert await one.closed()
            dripping.cancel()


async def test_there_are_only_so_many_connections() -> None:
    async with front(budgets=Budgets(max_connections=2)) as running:
        key = running.key()
        async with wire(running) as one, wire(running) as two:
            for number in (one, two):
                await number.say(post(key, call("who")))
                assert (await number.answer())[0] == 200
            async with wire(running) as three:
                assert await three.closed()
            await one.say(post(key, call("who")))
            assert (await one.answer())[0] == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
        b"POST /m\xc3\xbccp HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ],
)
async def test_broken_http_is_400_and_the_end_of_the_connection(
    running: Front, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire(running) as one:
        await one.say(garbage)
        status, _, _ = await one.answer()
        assert status in (400, 401, 404, 421)
        if status == 400:
            assert await one.closed()
    assert [record for record in caplog.records if record.name != "asyncio"] == []


@pytest.mark.parametrize("host", [b"localhost\r\nHost: localhost", b"evil.example", b""])
async def test_there_is_one_host_and_it_is_ours(running: Front, host: bytes) -> None:
    async with wire(running) as one:
        await one.say(post(running.key(), call("who"), host=host))
        assert (await one.answer())[0] == 421


async def test_a_wish_for_another_protocol_is_ignored(running: Front) -> None:
    async with wire(running) as one:
        await one.say(post(running.key(), call("who"), b"Connection: Upgrade", b"Upgrade: h2c"))
        status, _, _ = await one.answer()
        assert status in (200, 400)


async def test_a_body_is_asked_for_only_once_the_key_is_known(running: Front) -> None:
    message = post(running.key(), call("who"), b"Expect: 100-continue")
    head, body = message.split(b"\r\n\r\n", 1)
    async with wire(running) as one:
        await one.say(head + b"\r\n\r\n")
        assert (await one.answer())[0] == 100
        await one.say(body)
        assert (await one.answer())[0] == 200
    async with wire(running) as one:
        await one.say(head.replace(b"Bearer fmsgk_", b"Bearer xx") + b"\r\n\r\n")
        assert (await one.answer())[0] == 401


async def test_chunks_are_put_together(running: Front) -> None:
    head, body = post(running.key(), call("who"), b"Transfer-Encoding: chunked").split(b"\r\n\r\n", 1)
    head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
    async with wire(running) as one:
        await one.say(head + b"\r\n\r\n")
        for letter in body:
            await one.say(b"1\r\n" + bytes([letter]) + b"\r\n")
        await one.say(b"0\r\n\r\n")
        assert (await one.answer())[0] == 200


async def _gone(one: Wire) -> None:
    one.writer.transport.abort()


async def test_a_connection_that_is_reset_cancels_its_call(running: Front) -> None:
    async with wire(running) as one:
        await one.say(post(running.key(), call("hold")))
        await running.toolbox.until(holding=1)
        await _gone(one)
        await running.toolbox.until(cancelled=1)


async def test_a_client_that_has_said_all_it_will_counts_as_gone(running: Front) -> None:
    async with wire(running) as one:
        await one.say(post(running.key(), call("hold")))
        await running.toolbox.until(holding=1)
        one.writer.write_eof()
        await running.toolbox.until(cancelled=1)


async def test_connections_share_the_keys_of_their_dictionaries() -> None:
    """One attribute more than Python shares, and each connection costs a kilobyte more."""
    loop = asyncio.get_running_loop()
    config = Config(app=lambda: None, http=Connection, ws="none", lifespan="off", interface="asgi3", log_config=None)
    timer_wheel = TimerWheel(now=loop.time, call_at=loop.call_at)

    def connection() -> Connection:
        made = Connection(config, ServerState(), {}, loop, budgets=Budgets(), timer_wheel=timer_wheel)
        made.url = b""
        return made

    several = [connection() for _ in range(5)]
    assert sys.getsizeof(vars(several[-1])) < sys.getsizeof(dict.fromkeys(vars(several[-1])))
