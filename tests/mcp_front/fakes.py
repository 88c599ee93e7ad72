"""A toolbox without fmsg, and a front around it on a real port, for the tests of the serving half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import mcp_types as types
from mcp.shared.exceptions import MCPError

from fmsg.http import HostHttp
from ledger.store import MemoryStore
from mcp_front.http.serve import serve_http
from mcp_front.settings import Budgets, FrontSettings, HttpSettings
from mcp_front.toolbox import Profile
from mcp_front.tools.context import ToolContext
from mcp_front.waiting.request import WaitSettings
from sandbox.host import SandboxHost, serve

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
MUCH = 20_000_000
"""More than the buffers between a server and a client take."""
ANSWER_S = 10.0
"""Longest wait for anything a test expects."""


class FakeToolbox:
    """``who`` answers at once, ``hold`` once it is released or drained; ``fail`` raises; ``much`` is a lot."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.holding = 0
        """Calls of ``hold`` running now."""
        self.cancelled = 0
        """Calls of ``hold`` that were cancelled."""
        self.changed = asyncio.Event()
        """Set whenever one of the two changes."""

    def instructions(self, address: str | None) -> str | None:
        return f"You are {address}."

    def tools(self, profile: Profile) -> Sequence[types.Tool]:
        names = ("who", "hold", "fail", "upstream", "size", "much")
        return [types.Tool(name=name, description=f"{name} over {profile}", input_schema=OBJECT) for name in names]

    def resources(self) -> Sequence[types.Resource]:
        return [types.Resource(uri="fmsg://inbox", name="inbox")]

    def templates(self) -> Sequence[types.ResourceTemplate]:
        return [types.ResourceTemplate(uri_template="fmsg://message/{id}", name="message")]

    def prompts(self) -> Sequence[types.Prompt]:
        return [types.Prompt(name="chat", arguments=[types.PromptArgument(name="thread", required=True)])]

    def holds(self, tool: str) -> bool:
        return tool == "hold"

    async def call_tool(
        self, context: ToolContext, name: str, arguments: Mapping[str, Any] | None
    ) -> types.CallToolResult:
        if name == "who":
            return text_result(context.caller.address)
        if name == "upstream":
            page = await context.caller.api.list_received(limit=1)
            return text_result(str(len(page.messages)))
        if name == "size":
            return text_result(str(len((arguments or {}).get("data", ""))))
        if name == "much":
            return text_result("x" * MUCH)
        if name == "fail":
            raise RuntimeError("fmsgk_secret_in_an_error")
        return await self._hold(context)

    async def _hold(self, context: ToolContext) -> types.CallToolResult:
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

    async def read_resource(self, context: ToolContext, uri: str) -> types.ReadResourceResult:
        if uri != "fmsg://inbox":
            raise MCPError(types.INVALID_PARAMS, "Unknown resource")
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="text/markdown", text=context.caller.address)]
        )

    async def get_prompt(
        self, context: ToolContext, name: str, arguments: Mapping[str, str] | None
    ) -> types.GetPromptResult:
        if name != "chat":
            raise RuntimeError("secret detail")
        content = types.TextContent(text=f"{context.caller.address} {(arguments or {}).get('thread')}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    async def complete(self, context: ToolContext, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[context.caller.address]))


def text_result(text: str) -> types.CallToolResult:
    """A result that is one text."""
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={"text": text})


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


class _NoWaiting:
    settings = WaitSettings()


@asynccontextmanager
async def front(
    *,
    budgets: Budgets | None = None,
    store_ready: Callable[[], Awaitable[bool]] | None = None,
    **http_settings: Any,
) -> AsyncIterator[Front]:
    """A front over a sandbox host, on a free port."""
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
                toolbox=toolbox,
                waiting=cast("Any", _NoWaiting()),
                store_ready=store_ready,
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
