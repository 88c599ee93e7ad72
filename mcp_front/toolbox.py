"""What an MCP server offers, as the server object needs it. `mcp_front.offer` has the product's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import mcp_types

from mcp_front.tools.context import ToolContext

Profile = Literal["stdio", "http"]
"""The deployment profiles of FMSG-007."""


class Toolbox(Protocol):
    """Definitions, which need no configuration and do not change while the process runs, and what is behind them."""

    def instructions(self, address: str | None) -> str | None:
        """What an agent is told at the start of a session; ``address`` where it is known already."""
        ...

    def tools(self, profile: Profile) -> Sequence[mcp_types.Tool]:
        """The tools as clients of a profile see them."""
        ...

    def resources(self) -> Sequence[mcp_types.Resource]:
        """The resources that can be listed."""
        ...

    def templates(self) -> Sequence[mcp_types.ResourceTemplate]:
        """The resource templates."""
        ...

    def prompts(self) -> Sequence[mcp_types.Prompt]:
        """The prompts."""
        ...

    def holds(self, tool: str) -> bool:
        """Whether calls of the tool wait for something to happen, and are counted as waits."""
        ...

    async def call_tool(
        self, context: ToolContext, name: str, arguments: Mapping[str, Any] | None
    ) -> mcp_types.CallToolResult:
        """Call one of the tools. Failures in its domain are results with ``isError``."""
        ...

    async def read_resource(self, context: ToolContext, uri: str) -> mcp_types.ReadResourceResult:
        """Read a resource. Raises `MCPError` for a URI that names none."""
        ...

    async def get_prompt(
        self, context: ToolContext, name: str, arguments: Mapping[str, str] | None
    ) -> mcp_types.GetPromptResult:
        """Fill in one of the prompts. Raises `MCPError` for a name that is none."""
        ...

    async def complete(self, context: ToolContext, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        """Suggest values for an argument."""
        ...
