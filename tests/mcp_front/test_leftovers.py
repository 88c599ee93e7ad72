"""Requests leave nothing behind that only a full garbage collection would free: those are rare in a front."""

from __future__ import annotations

import asyncio
import gc

import pytest
from mcp.server.runner import ServerRunner

from fmsg.http import HostHttp
from ledger.store import MemoryStore
from mcp_front.callers import KeyCaller
from mcp_front.connection import Connection
from mcp_front.exchange import Exchange
from mcp_front.listener import bind
from mcp_front.serve import serve_http
from mcp_front.settings import FrontSettings, HttpSettings
from ops.bench.client import BenchClient
from sandbox.host import SandboxHost, serve

KINDS = (Connection, Exchange, KeyCaller, ServerRunner)


def alive() -> dict[str, int]:
    """How many there are of what a request is made of."""
    objects = gc.get_objects()
    return {kind.__name__: sum(isinstance(each, kind) for each in objects) for kind in KINDS}


async def hardly_any_left(*, collecting: bool) -> dict[str, int]:
    """Give what is ending a moment; who is there then."""
    for _ in range(100):
        if collecting:
            gc.collect()
        if max(alive().values()) <= 1:
            break
        await asyncio.sleep(0.05)
    return alive()


async def call(port: int, key: str, tool: str, *, cut: bool) -> None:
    """Call a tool on a connection of its own; go away in the middle where ``cut``."""
    client = await BenchClient.connect("127.0.0.1", port, path="/mcp", api_key=key)
    answer = client.call(tool, {"timeout_seconds": 30, "settle_seconds": 0} if cut else {})
    if cut:
        await asyncio.wait([answer], timeout=0.3)
        client.close()
        await asyncio.wait([answer])
        assert answer.exception() is not None
    else:
        assert not (await answer).is_error
        client.close()


@pytest.mark.parametrize(("tool", "cut"), [("whoami", False), ("wait_for_message", True)])
async def test_a_request_that_is_over_is_gone(tool: str, cut: bool) -> None:
    host = SandboxHost("a.test")
    stop = asyncio.Event()
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with serve(host, 0) as url, MemoryStore() as store, HostHttp(url) as http, asyncio.TaskGroup() as group:
        key = host.control.create_key("@ann@a.test")
        settings = FrontSettings(api_url=url, http=HttpSettings(port=0))
        listening = bind(settings)
        group.create_task(
            serve_http(
                settings,
                store,
                http,
                stop=stop,
                sockets=listening,
                started=lambda _host, port: bound.set_result(port),
            )
        )
        port = await bound
        await call(port, key, tool, cut=cut)
        try:
            await hardly_any_left(collecting=True)
            gc.disable()
            for _ in range(5):
                await call(port, key, tool, cut=cut)
            # The event loop may still have the last one in hand.
            assert max((await hardly_any_left(collecting=False)).values()) <= 1
        finally:
            gc.enable()
            gc.unfreeze()
            stop.set()
            for each in listening:
                each.close()
