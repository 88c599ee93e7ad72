"""Two federated hosts, a front at each, and MCP clients of them: the standard's tests look at it from outside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import httpx2
import mcp_types
from aiohttp import web
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from fmsg.http import HostHttp
from ledger.seal import SealKeys
from ledger.store import MemoryStore
from mcp_front.http.serve import serve_http
from mcp_front.settings import FrontSettings, HttpSettings
from mcp_front.tools.registry import tools_for
from sandbox.control import Control
from sandbox.host import SandboxHost, serve
from tests.mcp_front.agents import Answer, check_result

TOOLS = tools_for(FrontSettings())

START_S = 10.0
"""Longest a front takes to listen."""


class Site:
    """One host and its front."""

    def __init__(
        self, host: SandboxHost, api_url: str, url: str, store: MemoryStore, bearers: list[tuple[str, str]]
    ) -> None:
        self.bearers = bearers
        """Path and bearer of every request the host got."""
        self.host = host
        self.control: Control = host.control
        self.api_url = api_url
        self.url = url
        self.store = store

    @property
    def endpoint(self) -> str:
        """Where MCP is spoken."""
        return f"{self.url}/mcp"

    def requests(self) -> dict[str, int]:
        """Requests the host got so far, by route."""
        return dict(self.host.core.faults.requests)


class Resident:
    """Somebody with an address, connected to the front of his host."""

    def __init__(self, site: Site, address: str, key: str, client: Client) -> None:
        self.site = site
        self.address = address
        self.key = key
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        """Call a tool; a trailing ``_`` of an argument's name is dropped."""
        return await self.call_with(tool, {name.removesuffix("_"): value for name, value in arguments.items()})

    async def call_with(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a tool with these arguments as they are."""
        result = await self.client.call_tool(tool, dict(arguments))
        check_result(TOOLS[tool], result)
        return Answer(result)

    async def send(self, *to: str | Resident, body: str = "hello", topic: str = "A topic", **more: Any) -> str:
        """Send a message that must get out; its id."""
        addresses = [resident if isinstance(resident, str) else resident.address for resident in to]
        sent = await self.call("send_message", to=addresses, topic=topic, body=body, **more)
        return str(sent["id"])

    async def newest(self) -> dict[str, Any]:
        """The newest received message item."""
        page = await self.call("list_messages", limit=1)
        found: dict[str, Any] = page["messages"][0]
        return found


class Town:
    """The two sites, and who lives there."""

    def __init__(self, tasks: asyncio.TaskGroup, leaving: asyncio.Event, here: Site, there: Site) -> None:
        self._tasks = tasks
        self._leaving = leaving
        self.here = here
        self.there = there

    async def resident(self, name: str, *, far: bool = False) -> Resident:
        """A connected client for ``@name@here.test`` (``there.test`` where ``far``)."""
        site = self.there if far else self.here
        address = f"@{name}@{site.host.domain}"
        key = site.control.create_key(address)
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._tasks.create_task(self._stay(site.endpoint, key, ready))
        return Resident(site, address, key, await ready)

    async def _stay(self, endpoint: str, key: str, ready: asyncio.Future[Client]) -> None:
        """A client is opened and closed by one task, which a fixture and its teardown are not."""
        async with connected(endpoint, key) as client:
            ready.set_result(client)
            await self._leaving.wait()


@asynccontextmanager
async def connected(endpoint: str, key: str) -> AsyncIterator[Client]:
    """An MCP client of a front."""
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(endpoint, http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def running_town(**settings: Any) -> AsyncIterator[Town]:
    """A town for one test. ``settings`` go to both fronts."""
    async with AsyncExitStack() as stack:
        hosts = [SandboxHost("here.test"), SandboxHost("there.test")]
        hosts[0].federate(hosts[1])
        reached = []
        for host in hosts:
            bearers = _overheard(host)
            api_url = await stack.enter_async_context(serve(host))
            reached.append((host, await stack.enter_async_context(HostHttp(api_url)), bearers))
        leaving, stop = asyncio.Event(), asyncio.Event()
        fronts = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(stop.set)
        sites = []
        for host, http, bearers in reached:
            store = MemoryStore()
            url = await _front(fronts, FrontSettings(api_url=http.api_url, **settings), store, http, stop)
            sites.append(Site(host, http.api_url, url, store, bearers))
        clients = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(leaving.set)
        yield Town(clients, leaving, *sites)


def _overheard(host: SandboxHost) -> list[tuple[str, str]]:
    """Path and bearer of every request that the host will get."""
    seen: list[tuple[str, str]] = []
    make = host.application

    async def note(request: web.Request, _response: web.StreamResponse) -> None:
        seen.append((request.path, request.headers.get("Authorization", "")))

    def listening(**options: Any) -> web.Application:
        app = make(**options)
        app.on_response_prepare.append(note)
        return app

    host.application = listening  # type: ignore[method-assign]  # a host overheard for one test
    return seen


async def _front(
    tasks: asyncio.TaskGroup, settings: FrontSettings, store: MemoryStore, http: HostHttp, stop: asyncio.Event
) -> str:
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def started(bound: str, port: int) -> None:
        listening.set_result(f"http://{bound}:{port}")

    http_settings = HttpSettings(port=0, sse_after_s=0.2, drain_s=2.0)
    if settings.http == HttpSettings():
        settings = FrontSettings(**{**_fields(settings), "http": http_settings})
    seal = SealKeys.parse(SealKeys.generate())
    tasks.create_task(serve_http(settings, store, http, stop=stop, started=started, seal=seal))
    async with asyncio.timeout(START_S):
        return await listening


def _fields(settings: FrontSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


@asynccontextmanager
async def raw(key: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """A plain HTTP client that speaks to a front as an MCP client would."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with aiohttp.ClientSession(headers=headers) as session:
        yield session


def request(method: str, params: dict[str, Any] | None = None, *, id_: Any = 1) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, **({"params": params} if params is not None else {})}


class Heard(logging.Handler):
    """Everything logged while it is attached, at every level."""

    def __init__(self) -> None:
        super().__init__(level=logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record with all that hangs on it."""
        self.lines.append(f"{record.getMessage()} {record.__dict__!r}")


def text_of(content: Any) -> str:
    """The text of a text resource."""
    assert isinstance(content, mcp_types.TextResourceContents)
    return content.text
