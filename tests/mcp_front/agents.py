"""Agents for tests: the tools called in process, against real sandbox hosts, every result checked on its way."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import jsonschema
import mcp_types

from fmsg.directory import Directory
from fmsg.http import HostHttp
from fmsg.tokens import AccessToken
from fmsg.webapi import WebApi
from ledger.port import Store
from ledger.store import MemoryStore
from ledger.values import CallerKey, caller_key
from mcp_front.framing import STATEMENT
from mcp_front.schemas import Schema
from mcp_front.settings import FrontSettings
from mcp_front.tools.context import Progress, ToolContext
from mcp_front.tools.registry import call_tool, tools_for
from mcp_front.tools.tool import Tool
from mcp_front.waiting.request import WaitSettings
from mcp_front.waiting.wait import Waiting
from sandbox.control import Control
from sandbox.host import SandboxHost, serve
from sandbox.switches import Switches
from tests.key_tokens import KeyTokens

Transport = Literal["stdio", "http"]

CREDENTIAL = re.compile(r"fmsgk_[A-Za-z0-9]|eyJ[A-Za-z0-9_-]{8,}\.eyJ")
"""What must never be in a result."""


class Answer:
    """A tool's result. ``fields`` is the structured content, ``text`` the first block."""

    def __init__(self, result: mcp_types.CallToolResult) -> None:
        self.result = result
        first = result.content[0]
        assert isinstance(first, mcp_types.TextContent)
        self.text = first.text
        self.fields: dict[str, Any] = result.structured_content
        self.is_error = bool(result.is_error)

    @property
    def error(self) -> dict[str, Any]:
        """What a failure says of itself."""
        assert self.is_error, self.text
        found: dict[str, Any] = self.fields["error"]
        return found

    def __getitem__(self, name: str) -> Any:
        assert not self.is_error, self.text
        return self.fields[name]

    def size_bytes(self) -> int:
        """Of the whole result, as it goes over the wire."""
        return len(self.result.model_dump_json(by_alias=True, exclude_none=True).encode())


class SandboxCaller:
    """A caller whose key a sandbox host made; see `mcp_front.caller.Caller`."""

    def __init__(self, http: HostHttp, address: str, key: str, transport: Transport) -> None:
        self.address = address
        self.api_url = http.api_url
        self.transport: Transport = transport
        self.key: CallerKey = caller_key(http.api_url, address)
        self._tokens = KeyTokens(http, key)
        self.api = WebApi(http, self._tokens)

    async def token(self) -> AccessToken:
        return await self._tokens.token()

    async def confirm(self, *, within_s: float = 60.0, ahead_s: float = 0.0) -> None:
        await self._tokens.token()


class Agent:
    """Somebody with an address at a sandbox host, and the tools."""

    def __init__(self, host: Control, context: ToolContext) -> None:
        self.host = host
        self.context = context
        self.address = context.caller.address

    async def call(self, name: str, /, **arguments: Any) -> Answer:
        """Call a tool; a trailing ``_`` of an argument's name is dropped (``from_``)."""
        given = {key.removesuffix("_"): value for key, value in arguments.items()}
        return await self.call_with(name, given)

    async def call_with(self, name: str, arguments: dict[str, Any] | None) -> Answer:
        """Call a tool with these arguments as they are."""
        tool = tools_for(self.context.settings)[name]
        result = await call_tool(self.context, tool, arguments)
        check_result(tool, result)
        return Answer(result)

    async def send(self, to: str | Agent, body: str = "hello", *, topic: str = "A topic", **more: Any) -> str:
        """Send a message that must get out; its id."""
        address = to.address if isinstance(to, Agent) else to
        sent = await self.call("send_message", to=[address], topic=topic, body=body, **more)
        return str(sent["id"])

    async def newest(self, *, reactions: bool = False) -> dict[str, Any]:
        """The newest received message item."""
        page = await self.call("list_messages", limit=1, include_reactions=reactions)
        found: dict[str, Any] = page["messages"][0]
        return found


def check_result(tool: Tool, result: mcp_types.CallToolResult) -> None:
    """What holds for every result of every tool, whatever a test is about."""
    strict = tool.gives
    first = result.content[0]
    assert isinstance(first, mcp_types.TextContent)
    assert first.text
    fields = result.structured_content
    jsonschema.validate(fields, tool.definition.output_schema or {})
    jsonschema.validate(fields, sealed(strict) if not result.is_error else strict)
    whole = result.model_dump_json(by_alias=True, exclude_none=True)
    assert not CREDENTIAL.search(whole), "a credential is in the result"
    for key, value in _leaves(fields):
        if key in {"id", "pid"} or key.endswith("_id"):
            assert value is None or isinstance(value, str), f"{key} is no string"
        if key.endswith(("time", "_at")):
            assert value is None or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,6}Z", value), value
    if "notice" in fields:
        assert next(iter(fields)) == "notice"
        assert fields["notice"] == STATEMENT
    assert STATEMENT not in first.text or first.text.startswith(STATEMENT)
    json.dumps(fields, allow_nan=False)


def sealed(schema: Schema) -> Schema:
    """The schema with nothing allowed that it does not name."""
    return {**schema, "additionalProperties": False}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, "")
    else:
        yield key, value


def names_below(directory: Path) -> list[str]:
    """The names of everything below a directory, sorted."""
    return sorted(path.name for path in directory.rglob("*"))


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until the condition holds; the test's timeout ends what never does."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens in code that rings no bell for tests
        await asyncio.sleep(0)


class World:
    """Two federated sandbox hosts, ``here.test`` and ``there.test``, and agents at them."""

    def __init__(self, stack: AsyncExitStack, hosts: dict[str, tuple[SandboxHost, HostHttp]], store: Store) -> None:
        self._stack = stack
        self._hosts = hosts
        self.store = store
        self._waiting: Waiting | None = None
        self.drain = asyncio.Event()
        self.progress: Progress | None = None

    @property
    def here(self) -> Control:
        """Steers the first host."""
        return self._hosts["here.test"][0].control

    @property
    def there(self) -> Control:
        """Steers the second host."""
        return self._hosts["there.test"][0].control

    def requests(self, domain: str = "here.test") -> dict[str, int]:
        """Requests a host got so far, by route."""
        return dict(self._hosts[domain][0].core.faults.requests)

    def agent(
        self,
        name: str,
        domain: str = "here.test",
        *,
        transport: Transport = "http",
        settings: FrontSettings | None = None,
        directory: Directory | None = None,
        progress: Progress | None = None,
    ) -> Agent:
        """An agent with a fresh key for ``@name@domain``."""
        host, http = self._hosts[domain]
        address = f"@{name}@{domain}"
        caller = SandboxCaller(http, address, host.control.create_key(address), transport)
        context = ToolContext(
            caller=caller,
            settings=settings or FrontSettings(transport=transport, api_url=http.api_url),
            store=self.store,
            waiting=self.waiting,
            directory=Directory() if directory is None else directory,
            progress=progress,
            drain=self.drain,
        )
        return Agent(host.control, context)

    @property
    def waiting(self) -> Waiting:
        """The one of this process."""
        if self._waiting is None:
            self._waiting = Waiting(self.store, settings=WaitSettings(poll_s=0.1))
        return self._waiting


@asynccontextmanager
async def running_world(switches: Switches | None = None, *, store: Store | None = None) -> AsyncIterator[World]:
    """A world for one test."""
    async with AsyncExitStack() as stack:
        hosts = {domain: SandboxHost(domain, switches=switches or Switches()) for domain in ("here.test", "there.test")}
        for one, other in itertools.combinations(hosts.values(), 2):
            one.federate(other)
        reached: dict[str, tuple[SandboxHost, HostHttp]] = {}
        for domain, host in hosts.items():
            url = await stack.enter_async_context(serve(host))
            reached[domain] = (host, await stack.enter_async_context(HostHttp(url)))
        kept: Store = MemoryStore() if store is None else store
        yield World(stack, reached, kept)
