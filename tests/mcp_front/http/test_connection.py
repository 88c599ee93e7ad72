"""What uvicorn alone would let pass: headers without end, connections without requests, answers nobody takes."""

from __future__ import annotations

import asyncio
import sys

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from mcp_front.http.connection import DISCARDED_BYTES, Connection
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


H2C = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")
OTHER_OFFERS = (
    (b"Connection: upgrade", b"Upgrade: websocket"),
    (b"Connection: keep-alive, Upgrade", b"Upgrade: TLS/1.0"),
)


@pytest.mark.parametrize("offer", [H2C, *OTHER_OFFERS])
@pytest.mark.parametrize("at_once", [True, False])
async def test_an_offer_of_another_protocol_is_ignored(running: Front, offer: tuple[bytes, ...], at_once: bool) -> None:
    """Java's client makes one with its first request. The body is read by its length, and the connection stays."""
    key = running.key()
    message = post(key, call("who", id_=1), *offer)
    async with wire(running) as one:
        if at_once:
            await one.say(message)
        else:
            head, body = message.split(b"\r\n\r\n", 1)
            for piece in (head[:50], head[50:] + b"\r\n\r\n", body[:10], body[10:]):
                await one.say(piece)
        status, _, answer = await one.answer()
        assert status == 200
        assert b"@alice@a.test" in answer
        await one.say(post(key, call("who", id_=2)))
        assert b'"id":2' in (await one.answer())[2]


async def test_a_body_behind_an_offer_is_no_second_request(running: Front) -> None:
    """What would be smuggled in there is a body, and not JSON."""
    hidden = post(running.key(), call("who", id_=7))
    for more in ((b"Content-Length: %d" % len(hidden),), ()):
        message = post(running.key(), call("who"), *H2C, *more)
        head = message.split(b"\r\n\r\n")[0]
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length") or line in more]
        body = hidden
        if not more:
            lines.append(b"Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden)
        async with wire(running) as one:
            await one.say(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            status, _, answer = await one.answer()
            assert (status, b"-32700" in answer) == (400, True)
            await one.say(post(running.key(), call("who", id_=8)))
            assert b'"id":8' in (await one.answer())[2]


async def test_a_request_that_offers_and_closes_is_closed(running: Front) -> None:
    async with wire(running) as one:
        await one.say(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n")
        status, headers, _ = await one.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await one.closed()


@pytest.mark.parametrize(
    "trailer",
    [
        b"Authorization: Bearer fmsgk_x",
        b"X-Forwarded-For: 192.0.2.1",
        b"Origin: http://evil.example",
        b"X-Request-ID: x",
        b"Content-Type: text/plain",
        b"Host: evil.example",
    ],
)
async def test_trailers_are_dropped(trailer: bytes) -> None:
    async with front(trusted_proxies=("127.0.0.0/8",)) as running:
        head, body = post(running.key(), call("who"), b"Transfer-Encoding: chunked").split(b"\r\n\r\n", 1)
        head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
        async with wire(running) as one:
            await one.say(head + b"\r\n\r\n" + b"%x\r\n%b\r\n0\r\n%b\r\n\r\n" % (len(body), body, trailer))
            status, headers, answer = await one.answer()
            assert status == 200
            assert b"@alice@a.test" in answer
            assert len(headers["x-request-id"]) == 16


async def test_trailers_do_not_count_as_another_source() -> None:
    """They come before the key is looked up where the whole request is sent at once."""
    async with front(budgets=Budgets(auth_failures=3), trusted_proxies=("127.0.0.0/8",)) as running:
        statuses = []
        for number in range(6):
            message = post(f"fmsgk_wrong{number}", call("who"), b"Transfer-Encoding: chunked")
            head = b"\r\n".join(line for line in message.split(b"\r\n\r\n")[0].split(b"\r\n") if b"Length" not in line)
            async with wire(running) as one:
                trailer = b"X-Forwarded-For: 192.0.2.%d" % number
                await one.say(head + b"\r\n\r\n2\r\n{}\r\n0\r\n" + trailer + b"\r\n\r\n")
                statuses.append((await one.answer())[0])
        assert statuses == [401, 401, 401, 429, 429, 429]


async def test_trailers_without_end_are_over_budget() -> None:
    async with front(budgets=BRIEF) as running, wire(running) as one:
        head = post(running.key(), call("who"), b"Transfer-Encoding: chunked").split(b"\r\n\r\n")[0]
        head = b"\r\n".join(line for line in head.split(b"\r\n") if b"Length" not in line)
        await one.say(head + b"\r\n\r\n2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 2000)
        assert (await one.answer())[0] in (400, 431)
        assert await one.closed()


async def test_what_is_thrown_away_of_an_unknown_senders_body_is_limited(running: Front) -> None:
    size = 200 * DISCARDED_BYTES
    head = post("fmsgk_wrong", b"").replace(b"Content-Length: 0", b"Content-Length: %d" % size)
    async with wire(running) as one:
        await one.say(head)
        assert (await one.answer())[0] == 401
        sent = 0

        async def go_on() -> None:
            nonlocal sent
            while sent < size:
                one.writer.write(b"x" * DISCARDED_BYTES)
                await one.writer.drain()
                sent += DISCARDED_BYTES

        with pytest.raises(ConnectionError):
            await go_on()
        assert sent < size / 2


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
