from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest
from prometheus_client import REGISTRY

from fmsg.errors import BadInput
from fmsg.http import HostHttp
from ledger.store import MemoryStore
from mcp_front.http.admission import BindRefused
from mcp_front.http.serve import (
    KEPT_FILES,
    KERNEL_SHARES_OUT,
    address_of,
    bind,
    prepare,
    product_version,
    raise_file_limit,
    reserve_port,
    serve_http,
    sibling_socket,
)
from mcp_front.settings import Budgets, FrontSettings, HttpSettings
from tests.mcp_front.fakes import ANSWER_S, Front, call, front, heads
from tests.mcp_front.raw import post, wire
from tests.within import within


async def start(settings: FrontSettings) -> None:
    """Serve with settings that must not be served."""
    async with HostHttp("http://127.0.0.1:9") as http, MemoryStore() as store:
        await within(serve_http(settings, store, http, stop=asyncio.Event()), ANSWER_S)


@pytest.mark.parametrize(
    ("http", "names"),
    [
        (HttpSettings(host="0.0.0.0", port=0), "FMSG_MCP_ALLOWED_HOSTS"),
        (HttpSettings(port=0, allowed_origins=("*",)), "FMSG_MCP_ALLOWED_ORIGINS"),
        (HttpSettings(port=0, trusted_proxies=("lb",)), "FMSG_MCP_TRUSTED_PROXIES"),
    ],
)
async def test_settings_that_must_not_be_served_are_not(http: HttpSettings, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        await start(FrontSettings(http=http))
    assert issubclass(BindRefused, ValueError)


async def test_a_directory_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="FMSG_DIRECTORY"):
        await start(FrontSettings(http=HttpSettings(port=0), directory=tmp_path / "none.json"))


async def test_an_address_in_use_is_told_at_once(running: Front) -> None:
    with pytest.raises(OSError, match="in use"):
        await start(FrontSettings(http=HttpSettings(port=running.port)))


async def test_every_request_has_its_own_caller_and_the_processs_means(running: Front) -> None:
    for address in ("@ann@a.test", "@bob@a.test"):
        async with running.http.post(running.endpoint, json=call("who"), headers=heads(running.key(address))) as answer:
            assert address in await answer.text()


def test_clients_are_told_the_version() -> None:
    assert product_version()[0].isdecimal()


async def test_operators_see_how_many_waits_may_be_held(running: Front) -> None:
    assert REGISTRY.get_sample_value("fmsg_mcpd_waits_budget") == Budgets().max_waits


async def ended(running: Front) -> None:
    """Wait until the front has left."""
    await within(running.ended.wait(), ANSWER_S)


@pytest.mark.parametrize("sse_after_s", [0.0, 60.0])
async def test_held_calls_are_answered_at_the_end_and_the_connection_is_closed(sse_after_s: float) -> None:
    async with front(sse_after_s=sse_after_s) as running:
        key = running.key()

        async def held() -> str:
            async with running.http.post(running.endpoint, json=call("hold"), headers=heads(key)) as answer:
                return await answer.text()

        holding = [asyncio.ensure_future(held()) for _ in range(5)]
        await running.toolbox.until(holding=5)
        running.stop.set()
        for text in await asyncio.gather(*holding):
            assert '"drained"' in text
        await ended(running)
        assert running.toolbox.cancelled == 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await held()


async def test_an_answer_at_the_end_says_that_the_connection_closes() -> None:
    async with front(sse_after_s=60.0) as running, wire(running) as one, wire(running) as idle:
        key = running.key()
        await idle.say(post(key, call("who")))
        await idle.answer()
        await one.say(post(key, call("hold")))
        await running.toolbox.until(holding=1)
        running.stop.set()
        _, headers, body = await one.answer()
        assert headers["connection"] == "close"
        assert b"drained" in body
        assert await one.closed()
        assert await idle.closed()
        await ended(running)


async def test_it_is_unready_before_it_is_deaf() -> None:
    async with front(drain_notice_s=0.5, sse_after_s=60.0) as running:
        key = running.key()
        async with running.http.get(f"{running.url}/readyz") as answer:
            assert answer.status == 200
        running.stop.set()
        async with asyncio.timeout(ANSWER_S):
            while True:
                async with running.http.get(f"{running.url}/readyz") as answer:
                    if answer.status == 503:
                        break
        async with running.http.get(f"{running.url}/healthz") as answer:
            assert answer.status == 200
        async with running.http.post(running.endpoint, json=call("who"), headers=heads(key)) as answer:
            assert json.loads(await answer.text())["result"]["isError"] is False
        await ended(running)


async def test_what_does_not_end_by_itself_is_cut_after_a_while() -> None:
    async with front(drain_s=1.0) as running:
        key = running.key()
        never = asyncio.Event()

        async def body() -> object:
            yield b"{"
            await never.wait()

        async def stuck() -> None:
            async with running.http.post(running.endpoint, data=body(), headers=heads(key)) as answer:
                await answer.read()

        sending = asyncio.ensure_future(stuck())
        async with running.http.post(running.endpoint, json=call("who"), headers=heads(key)):
            running.stop.set()
        await ended(running)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it, and only this one can")
async def test_a_client_that_takes_nothing_of_its_answer_is_dropped() -> None:
    async with front(budgets=Budgets(write_stall_s=0.5)) as running, wire(running) as one:
        await one.say(post(running.key(), call("much")))
        assert await within(one.reader.readexactly(12), ANSWER_S) == b"HTTP/1.1 200"
        transport = one.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        async with asyncio.timeout(ANSWER_S):
            while _established(running.port):  # noqa: ASYNC110 - the kernel does not tell
                await asyncio.sleep(0.05)


def _established(port: int) -> int:
    """Connections that the front has open."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def test_a_socket_is_bound_and_what_it_accepts_inherits_its_limits() -> None:
    settings = FrontSettings(http=HttpSettings(port=0), budgets=Budgets(write_stall_s=7.0))
    sockets = bind(settings)
    try:
        prepare(sockets, settings)
        host, port = address_of(sockets)
        assert (host, port > 0) == ("127.0.0.1", True)
        with socket.create_connection((host, port)):
            sockets[0].setblocking(True)
            accepted, _ = sockets[0].accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                if sys.platform == "linux":
                    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000
        with pytest.raises(OSError, match=rf"127\.0\.0\.1 port {port} cannot be bound: .* in use"):
            bind(FrontSettings(http=HttpSettings(port=port)))
    finally:
        for listening in sockets:
            listening.close()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "set_to", "usable"),
    [
        (256, 100_000, 5000, 5000 + KEPT_FILES, 5000),
        (256, 4096, 50_000, 4096, 4096 - KEPT_FILES),
        (100_000, 100_000, 5000, None, 5000),
        (512, 512, 5000, 512, 1),
        (256, -1, 5000, 5000 + KEPT_FILES, 5000),
        (-1, -1, 5000, None, 5000),
    ],
)
def test_connections_leave_files_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, set_to: int | None, usable: int
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr("resource.setrlimit", lambda which, limits: calls.append(limits))
    assert raise_file_limit(wanted) == usable
    assert calls == ([] if set_to is None else [(set_to, hard)])


@pytest.mark.skipif(not KERNEL_SHARES_OUT, reason="the kernel does not share connections out")
def test_a_reserved_port_is_shared_by_sockets_that_listen_and_by_no_other_server() -> None:
    settings = FrontSettings(api_url="http://host.test", http=HttpSettings(port=0))
    with reserve_port(settings) as reserved:
        address = address_of([reserved])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with sibling_socket(reserved) as one, sibling_socket(reserved) as other:
            assert address_of([one]) == address_of([other]) == address
            one.listen()
            other.listen()
            taken = msgspec.structs.replace(settings, http=HttpSettings(port=address[1]))
            for take in (reserve_port, bind):
                with pytest.raises(OSError, match="cannot be bound"):
                    take(taken)
            other.close()
            for _ in range(20):
                socket.create_connection(address).close()
