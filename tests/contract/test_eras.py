"""Real MCP clients of every era of the protocol, over both transports, through one conversation."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from sandbox.host import SandboxHost, serve
from tests.contract.town import Town, running_town, text_of

ANN, BOB = "@ann@here.test", "@bob@here.test"
NEWEST = "2026-07-28"
ERAS = [*HANDSHAKE_PROTOCOL_VERSIONS, NEWEST, "auto"]
"""Versions a client asks for; ``auto`` asks what there is and takes the newest."""
PATIENCE_S = 30.0
"""Longest anything takes here: a stdio server has to start and to open its feed."""

Transport = Literal["http", "stdio"]


class Party:
    """An MCP client, and the host behind its server."""

    def __init__(self, client: Client, host: SandboxHost, version: str) -> None:
        self.client = client
        self.host = host
        self.version = version


@asynccontextmanager
async def party(transport: Transport, era: str, patch: pytest.MonkeyPatch) -> AsyncIterator[Party]:
    """Ann's client, of one era over one transport."""
    handshake = era in HANDSHAKE_PROTOCOL_VERSIONS
    if handshake:
        patch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", era)
    mode = "legacy" if handshake else era
    version = NEWEST if era == "auto" else era
    async with asyncio.timeout(2 * PATIENCE_S):
        if transport == "http":
            async with running_town() as town, over_http(town, mode) as client:
                yield Party(client, town.here.host, version)
        else:
            host = SandboxHost("here.test")
            async with serve(host) as url, Client(stdio(host, url), mode=mode) as client:
                yield Party(client, host, version)


@asynccontextmanager
async def over_http(town: Town, mode: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {town.here.control.create_key(ANN)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
        Client(streamable_http_client(town.here.endpoint, http_client=http), mode=mode) as client,
    ):
        yield client


def stdio(host: SandboxHost, url: str) -> StdioServerParameters:
    """The product's stdio server as a client starts it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FMSG_")}
    environment |= {"FMSG_API_URL": url, "FMSG_API_KEY": host.control.create_key(ANN), "FMSG_LOG_LEVEL": "warning"}
    return StdioServerParameters(command=sys.executable, args=["-m", "fmsg_mcpd", "stdio"], env=environment)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", pytest.param("stdio", marks=pytest.mark.processes)])
async def test_a_conversation(transport: Transport, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with party(transport, era, monkeypatch) as ann:
        await _it_introduces_itself(ann, transport)
        await _it_lists_what_it_has(ann)
        newest = await _it_acts(ann, transport)
        await _it_waits(ann, after_id=newest)
        await _it_refuses(ann)


async def _it_introduces_itself(ann: Party, transport: Transport) -> None:
    client = ann.client
    assert client.protocol_version == ann.version
    if client.server_info is None:
        return  # A client that was told the version asks for nothing before its first call.
    assert client.server_info.name == "fmsg-mcpd"
    assert client.instructions is not None
    if transport == "http":
        assert ANN in client.instructions


async def _it_lists_what_it_has(ann: Party) -> None:
    tools = (await ann.client.list_tools()).tools
    assert {"whoami", "send_message", "reply", "wait_for_message"} <= {tool.name for tool in tools}
    assert {template.name for template in (await ann.client.list_resource_templates()).resource_templates} == {
        "message",
        "thread",
    }
    assert [resource.uri for resource in (await ann.client.list_resources()).resources] == ["fmsg://inbox"]
    assert {"chat", "reply"} <= {prompt.name for prompt in (await ann.client.list_prompts()).prompts}


async def _it_acts(ann: Party, transport: Transport) -> str:
    who = await ann.client.call_tool("whoami", {})
    assert who.structured_content is not None
    assert who.structured_content["address"] == ANN
    assert who.structured_content["transport"] == transport
    ann.host.control.create_address(BOB)
    sent = await ann.client.call_tool("send_message", {"to": [BOB], "topic": "Lunch?", "body": "Thursday at noon?"})
    assert sent.structured_content is not None, sent
    ann.host.control.set_next_id(2**62 + 1)
    message_id = ann.host.control.deliver(BOB, [ANN], topic="Big", body="A large id")
    read = await ann.client.read_resource(f"fmsg://message/{message_id}")
    assert "A large id" in text_of(read.contents[0])
    got = await ann.client.call_tool("get_message", {"id": str(message_id)})
    assert got.structured_content is not None
    assert got.structured_content["message"]["id"] == str(2**62 + 1)
    filled = await ann.client.get_prompt("reply", {"id": str(message_id)})
    assert filled.messages
    return str(message_id)


async def _it_waits(ann: Party, *, after_id: str) -> None:
    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        return

    arguments: dict[str, Any] = {"timeout_seconds": 25, "settle_seconds": 0, "after_id": after_id}
    waiting = asyncio.ensure_future(ann.client.call_tool("wait_for_message", arguments, progress_callback=on_progress))
    await _held(ann)
    ann.host.control.deliver(BOB, [ANN], topic="New", body="While you waited")
    result = await waiting
    assert result.structured_content is not None, result
    assert result.structured_content["status"] == "message"
    assert [message["body"] for message in result.structured_content["messages"]] == ["While you waited"]


async def _held(ann: Party) -> None:
    """Wait until a call looks at the host's list, as waits and streams do once they are held."""
    before = ann.host.core.faults.requests.get("list", 0)
    async with asyncio.timeout(PATIENCE_S):
        while ann.host.core.faults.requests.get("list", 0) <= before:  # noqa: ASYNC110 - the host does not tell
            await asyncio.sleep(0.02)


async def _it_refuses(ann: Party) -> None:
    with pytest.raises(MCPError) as unknown:
        await ann.client.call_tool("no_such_tool", {})
    assert unknown.value.code == types.INVALID_PARAMS
    with pytest.raises(MCPError) as nowhere:
        await ann.client.read_resource("fmsg://message/999999")
    assert nowhere.value.code == types.INVALID_PARAMS
    wrong = await ann.client.call_tool("get_message", {"id": 7})
    assert wrong.is_error


@pytest.mark.parametrize("era", ["2025-11-25", NEWEST])
async def test_a_call_given_up_is_a_call_ended(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with party("http", era, monkeypatch) as ann:
        waiting = asyncio.ensure_future(
            ann.client.call_tool("wait_for_message", {"timeout_seconds": 200, "after_id": "0"})
        )
        await _held(ann)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        who = await ann.client.call_tool("whoami", {})
        assert who.structured_content is not None


async def test_an_inbox_can_be_listened_to_in_the_newest_era(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_front.listen.POLL_LOOK_S", 0.1)
    async with (
        party("http", NEWEST, monkeypatch) as ann,
        ann.client.listen(resource_subscriptions=["fmsg://inbox"]) as events,
    ):
        await _held(ann)
        ann.host.control.deliver(BOB, [ANN], topic="New", body="Look")
        async with asyncio.timeout(PATIENCE_S):
            async for event in events:
                assert getattr(event, "uri", None) == "fmsg://inbox"
                break
