"""A small MCP client: the agent of the demo, the fleet run and the process tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

HTTP_TIMEOUT_S = 300.0
"""Above the longest wait of a front, so that the client never cuts one."""


class ToolFailed(Exception):
    """A tool answered with ``isError``. The text is what the agent would have read."""


class Agent:
    """One agent: a connected client that calls tools and gets their structured content."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; returns its structured content. ``from_`` becomes ``from``. Raises `ToolFailed`."""
        named = {key.rstrip("_"): value for key, value in arguments.items()}
        result = await self.client.call_tool(tool, named)
        if result.is_error or result.structured_content is None:
            raise ToolFailed(" ".join(getattr(block, "text", "") for block in result.content))
        return dict(result.structured_content)


@contextlib.asynccontextmanager
async def over_http(url: str, api_key: str) -> AsyncIterator[Agent]:
    """An agent at a front's ``/mcp`` URL."""
    headers = {"Authorization": f"Bearer {api_key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=HTTP_TIMEOUT_S) as http:
        transport = streamable_http_client(url, http_client=http)
        async with _connected(Client(transport)) as agent:
            yield agent


@contextlib.asynccontextmanager
async def _connected(client: Client) -> AsyncIterator[Agent]:
    """An agent. Errors of its user are raised as they are, not in the groups that the client's own tasks would make."""
    failure: Exception | None = None
    async with client:
        try:
            yield Agent(client)
        except Exception as error:  # noqa: BLE001 - raised again below
            failure = error
    if failure is not None:
        raise failure


@contextlib.asynccontextmanager
async def over_stdio(command: str, *args: str, env: Mapping[str, str]) -> AsyncIterator[Agent]:
    """An agent at a stdio server that it starts itself."""
    server = StdioServerParameters(command=command, args=list(args), env=dict(env))
    async with _connected(Client(server)) as agent:
        yield agent
