"""All tools, by name: their definitions for ``tools/list`` and the one way to call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import mcp_types

from mcp_front.tools.context import ToolContext
from mcp_front.tools.tool import Tool

TOOLS: Mapping[str, Tool] = {}
"""Every tool, in the order ``tools/list`` gives them."""


def tool_definitions(transport: Literal["stdio", "http"]) -> list[mcp_types.Tool]:
    """The tools as clients of a deployment profile see them; complete without any configuration."""
    raise NotImplementedError


async def call_tool(context: ToolContext, name: str, arguments: Mapping[str, Any] | None) -> mcp_types.CallToolResult:
    """Call a tool. Every failure in its domain is a result with ``isError``.

    Raises `MCPError` (invalid params) for a name that is no tool, and nothing else but cancellation.
    """
    raise NotImplementedError
