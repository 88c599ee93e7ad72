"""The server object by itself: its boundary, its log, and what it makes once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from fmsg.errors import Forbidden, HostUnreachable, NotFound
from ledger.values import CallerKey
from mcp_front.limits import HeldCalls
from mcp_front.server import Ctx, NotConfigured, build_server
from mcp_front.settings import Budgets
from mcp_front.tools.context import Progress, ToolContext
from tests.mcp_front.fakes import FakeToolbox

MODES = ("legacy", "2026-07-28")


class NoHost:
    """A Web API that only fails."""

    error: Exception = HostUnreachable("https://x: no answer")

    async def list_received(self, *, limit: int, offset: int) -> None:
        raise self.error


class Nobody:
    """A caller with a name only."""

    key = CallerKey("0123456789abcdef")
    address = "@ann@a.test"

    def __init__(self) -> None:
        self.api = NoHost()
        self.confirmed = 0

    async def confirm(self, *, within_s: float = 60.0, ahead_s: float = 0.0) -> None:
        self.confirmed += 1


class Requests:
    """See `mcp_front.server.Requests`; ``error`` is raised where it is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.progress: Progress | None = None
        self.caller = Nobody()

    async def context(self, ctx: Ctx, progress: Progress | None) -> ToolContext:
        self.progress = progress
        if self.error is not None:
            raise self.error
        unused: Any = None
        return ToolContext(
            caller=cast("Any", self.caller),
            settings=unused,
            store=unused,
            waiting=unused,
            directory=unused,
            progress=progress,
            drain=asyncio.Event(),
        )

    async def address(self, ctx: Ctx) -> str | None:
        return None if self.error else Nobody.address

    def may_write(self, ctx: Ctx) -> bool:
        return True

    def name(self, ctx: Ctx) -> str:
        return "r-1"


def server(
    requests: Requests | None = None, toolbox: FakeToolbox | None = None, *, traced: bool = False
) -> Server[Any]:
    return build_server(
        (toolbox or FakeToolbox()).tools,
        requests or Requests(),
        held_calls=HeldCalls(Budgets(max_waits_per_caller=1)),
        version="1.2.3",
        listen=None,
        traced=traced,
    )


@pytest.mark.parametrize("mode", MODES)
async def test_one_line_is_logged_per_tool_call_and_it_tells_no_contents(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mcp_front.audit"):
        async with Client(server(), mode=mode) as client:
            await client.call_tool("who", {"secret": "in the arguments"})
            await client.call_tool("bad", {})
            await client.call_tool("fail", {})
            with pytest.raises(MCPError):
                await client.call_tool("no_such", {})
    lines = [record for record in caplog.records if record.name == "mcp_front.audit"]
    assert [(line.__dict__["tool"], line.__dict__["outcome"]) for line in lines] == [
        ("who", "ok"),
        ("bad", "error"),
        ("fail", "error"),
    ]
    for line in lines:
        assert line.__dict__["caller"] == Nobody.key
        assert line.__dict__["request_id"] == "r-1"
        assert line.__dict__["duration_s"] >= 0
        assert "secret" not in repr(line.__dict__)
        assert Nobody.address not in repr(line.__dict__)


async def test_a_cancelled_call_is_logged_as_such(caplog: pytest.LogCaptureFixture) -> None:
    toolbox = FakeToolbox()
    with caplog.at_level(logging.INFO, "mcp_front.audit"):
        async with Client(server(toolbox=toolbox), mode="2026-07-28") as client:
            call = asyncio.ensure_future(client.call_tool("hold", {}))
            await toolbox.until(holding=1)
            refused = await client.call_tool("hold", {})
            assert refused.is_error
            call.cancel()
            await toolbox.until(cancelled=1)
            await asyncio.gather(call, return_exceptions=True)
    outcomes = [record.__dict__["outcome"] for record in caplog.records if record.name == "mcp_front.audit"]
    assert outcomes == ["over_budget", "cancelled"]


@pytest.mark.parametrize("mode", MODES)
async def test_missing_variables_are_named_by_every_call(mode: str) -> None:
    requests = Requests(NotConfigured(["FMSG_API_URL", "FMSG_API_KEY"]))
    async with Client(server(requests), mode=mode) as client:
        assert len((await client.list_tools()).tools) == 7
        result = await client.call_tool("who", {})
        assert result.is_error
        assert "FMSG_API_URL and FMSG_API_KEY are not set" in cast("types.TextContent", result.content[0]).text
        with pytest.raises(MCPError, match="FMSG_API_URL and FMSG_API_KEY"):
            await client.read_resource("fmsg://inbox")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (NotFound(404, "message not found"), -32602, "message not found"),
        (Forbidden(403, "access denied"), -32602, "access denied"),
        (HostUnreachable("https://x: no answer"), -32603, "no answer"),
        (ValueError("a secret detail"), -32603, "The server failed"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
async def test_failures_are_told_in_the_same_words_everywhere(
    error: Exception, code: int, words: str, mode: str
) -> None:
    requests = Requests()
    async with Client(server(requests, FakeToolbox(error)), mode=mode) as client:
        requests.caller.api.error = error
        with pytest.raises(MCPError, match=words) as told:
            await client.read_resource("fmsg://inbox")
        assert told.value.code == code
        result = await client.call_tool("upstream", {})
        assert result.is_error
        assert words in cast("types.TextContent", result.content[0]).text
        assert "secret" not in repr(told.value) + repr(result)


@pytest.mark.parametrize("mode", MODES)
async def test_lists_are_made_once(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resources() -> list[types.Resource]:
        asked.append("resources")
        return [types.Resource(uri="fmsg://inbox", name="inbox")]

    monkeypatch.setattr("mcp_front.resources.resources", resources)
    async with Client(server(), mode=mode) as client:
        first = await client.list_resources(cache_mode="bypass")
        second = await client.list_resources(cache_mode="bypass")
        assert first.resources == second.resources
        with pytest.raises(MCPError, match="Unknown cursor"):
            await client.list_resources(cursor="2", cache_mode="bypass")
    assert asked == ["resources"]


async def test_progress_is_reported_where_it_was_asked_for() -> None:
    requests, toolbox = Requests(), FakeToolbox()
    heard: list[str | None] = []
    wanted: list[bool] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with Client(server(requests, toolbox), mode="legacy") as client:
        toolbox.release.set()
        await client.call_tool("hold", {})
        wanted.append(requests.progress is not None)
        await client.call_tool("hold", {}, progress_callback=on_progress)
        wanted.append(requests.progress is not None)
    assert heard == ["waiting"]
    assert wanted == [False, True]


async def test_what_it_says_of_itself() -> None:
    async with Client(server(), mode="legacy") as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("fmsg-mcpd", "1.2.3")
        assert client.instructions is not None
        assert "You act as @ann@a.test." in client.instructions
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.resources is not None
        assert capabilities.prompts is not None
        assert capabilities.completions is not None
        assert capabilities.logging is None
