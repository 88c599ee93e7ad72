"""Tools without fmsg, and a front around it on a real port, for the tests of the serving half."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from fmsg.errors import BadInput
from fmsg.http import HostHttp
from ledger.store import MemoryStore
from mcp_front.http.serve import serve_http
from mcp_front.settings import Budgets, FrontSettings, HttpSettings
from mcp_front.tools.arguments import Arguments
from mcp_front.tools.context import ToolContext
from mcp_front.tools.tool import Tool, ToolResult, define
from mcp_front.waiting.request import WaitSettings
from mcp_front.waiting.wait import Waiting
from sandbox.host import SandboxHost, serve

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
MUCH = 20_000_000
"""More than the buffers between a server and a client take."""
ANSWER_S = 10.0
"""Longest wait for anything a test expects."""


class Anything(Arguments, frozen=True, kw_only=True):
    """What the fake tools take."""

    data: str = ""
    secret: str = ""
    to: str = ""


class FakeToolbox:
    """``who`` answers at once, ``hold`` once it is released or drained; ``fail`` raises; ``much`` is a lot.

    ``upstream`` raises ``error`` where it is set, else it asks the host. ``bad`` fails.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.release = asyncio.Event()
        self.holding = 0
        """Calls of ``hold`` running now."""
        self.cancelled = 0
        """Calls of ``hold`` that were cancelled."""
        self.changed = asyncio.Event()
        """Set whenever one of the two changes."""
        runs = (self._who, self._hold, self._fail, self._upstream, self._size, self._much, self._bad)
        self.tools = {run.__name__[1:]: fake_tool(run) for run in runs}

    async def _who(self, context: ToolContext, arguments: Anything) -> ToolResult:
        return text_result(context.caller.address)

    async def _upstream(self, context: ToolContext, arguments: Anything) -> ToolResult:
        if self.error is not None:
            raise self.error
        page = await context.caller.api.list_received(limit=1)
        return text_result(str(len(page.messages)))

    async def _size(self, context: ToolContext, arguments: Anything) -> ToolResult:
        return text_result(str(len(arguments.data)))

    async def _much(self, context: ToolContext, arguments: Anything) -> ToolResult:
        return text_result("x" * MUCH)

    async def _fail(self, context: ToolContext, arguments: Anything) -> ToolResult:
        raise RuntimeError("fmsgk_secret_in_an_error")

    async def _bad(self, context: ToolContext, arguments: Anything) -> ToolResult:
        raise BadInput("data: is bad.")

    async def _hold(self, context: ToolContext, arguments: Anything) -> ToolResult:
        self.holding += 1
        self.changed.set()
        if context.progress is not None:
            await context.progress(0.0, None, "waiting")
        waits = [asyncio.ensure_future(event.wait()) for event in (self.release, context.drain)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.holding -= 1
            self.changed.set()
            for wait in waits:
                wait.cancel()
        return text_result("drained" if context.drain.is_set() else "released")

    async def until(self, *, holding: int | None = None, cancelled: int | None = None) -> None:
        """Wait until so many calls are held and were cancelled."""
        async with asyncio.timeout(ANSWER_S):
            while (holding is not None and self.holding != holding) or (
                cancelled is not None and self.cancelled != cancelled
            ):
                self.changed.clear()
                await self.changed.wait()


def fake_tool(run: Callable[[ToolContext, Anything], Awaitable[ToolResult]]) -> Tool:
    """A tool that is named as its function is, without the underscore."""
    name = run.__name__[1:]
    return define(run, name, name, name, takes=Anything, gives=OBJECT, reads=True, holds=name == "hold")


def text_result(text: str) -> ToolResult:
    """A result that is one text."""
    return ToolResult(structured={"text": text}, text=text)


class Front:
    """A front on a port, the host behind it, and a plain HTTP client."""

    def __init__(self, url: str, host: SandboxHost, toolbox: FakeToolbox, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.host = host
        self.toolbox = toolbox
        self.http = http
        self.stop = asyncio.Event()
        self.store = MemoryStore()
        self.api_url = ""
        """The host's URL."""
        self.ended = asyncio.Event()
        """Set once the front has drained and left."""

    @property
    def endpoint(self) -> str:
        """The MCP endpoint."""
        return f"{self.url}/mcp"

    @property
    def port(self) -> int:
        """The port."""
        return int(self.url.rpartition(":")[2])

    def key(self, address: str = "@alice@a.test") -> str:
        """A new API key."""
        return self.host.control.create_key(address)


def settings(api_url: str, *, budgets: Budgets | None = None, **http: Any) -> FrontSettings:
    """Settings with short times."""
    return FrontSettings(
        transport="http",
        api_url=api_url,
        budgets=budgets or Budgets(),
        http=HttpSettings(**{"port": 0, "sse_after_s": 0.2, "drain_s": 5.0, **http}),
    )


@asynccontextmanager
async def front(
    *,
    budgets: Budgets | None = None,
    store_ready: Callable[[], Awaitable[bool]] | None = None,
    clock: Callable[[], float] = time.time,
    product: bool = False,
    **http_settings: Any,
) -> AsyncIterator[Front]:
    """A front over a sandbox host, on a free port. ``product``: with the product's tools instead of fake ones."""
    host = SandboxHost("a.test")
    toolbox = FakeToolbox()
    async with (
        serve(host) as api_url,
        HostHttp(api_url) as http,
        MemoryStore() as store,
        aiohttp.ClientSession() as session,
        asyncio.TaskGroup() as tasks,
    ):
        running = Front("", host, toolbox, session)
        running.store, running.api_url = store, api_url
        up = asyncio.Event()

        def started(bound: str, port: int) -> None:
            running.url = f"http://{bound}:{port}"
            up.set()

        async def run() -> None:
            await serve_http(
                settings(api_url, budgets=budgets, **http_settings),
                store,
                http,
                stop=running.stop,
                started=started,
                tools=None if product else toolbox.tools,
                waiting=None if product else Waiting(store, settings=WaitSettings(poll_s=0.05)),
                store_ready=store_ready,
                clock=clock,
            )
            running.ended.set()

        serving = tasks.create_task(run())
        waiter = asyncio.ensure_future(up.wait())
        async with asyncio.timeout(ANSWER_S):
            await asyncio.wait([waiter, serving], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        try:
            yield running
        finally:
            running.stop.set()


def request(method: str, params: dict[str, Any] | None = None, *, id_: Any = 1) -> dict[str, Any]:
    """A JSON-RPC request of the older era."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "method": method}
    if params is not None:
        message["params"] = params
    return message


def call(name: str, *, id_: Any = 1, token: Any = None, **arguments: Any) -> dict[str, Any]:
    """A ``tools/call`` of the older era."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return request("tools/call", params, id_=id_)


def heads(key: str | None, **more: str) -> dict[str, str]:
    """Headers of a request of the older era."""
    found = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    if key is not None:
        found["Authorization"] = f"Bearer {key}"
    return found
