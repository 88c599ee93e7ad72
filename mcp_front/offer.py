"""What this server offers: tools, resources and prompts of FMSG-007, as the server object wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types

from mcp_front import instructions, prompts, resources
from mcp_front.toolbox import Profile
from mcp_front.tools import registry
from mcp_front.tools.context import ToolContext

_HOLDING = frozenset({"wait_for_message"})
"""Tools whose calls last until something happens."""


class FmsgToolbox:
    """See `mcp_front.toolbox.Toolbox`."""

    def instructions(self, address: str | None) -> str | None:
        """See `Toolbox`."""
        return instructions.instructions(address)

    def tools(self, profile: Profile) -> Sequence[mcp_types.Tool]:
        """See `Toolbox`."""
        return registry.tool_definitions(profile)

    def resources(self) -> Sequence[mcp_types.Resource]:
        """See `Toolbox`."""
        return resources.resources()

    def templates(self) -> Sequence[mcp_types.ResourceTemplate]:
        """See `Toolbox`."""
        return resources.resource_templates()

    def prompts(self) -> Sequence[mcp_types.Prompt]:
        """See `Toolbox`."""
        return prompts.prompts()

    def holds(self, tool: str) -> bool:
        """See `Toolbox`."""
        return tool in _HOLDING

    async def call_tool(
        self, context: ToolContext, name: str, arguments: Mapping[str, Any] | None
    ) -> mcp_types.CallToolResult:
        """See `Toolbox`."""
        return await registry.call_tool(context, name, arguments)

    async def read_resource(self, context: ToolContext, uri: str) -> mcp_types.ReadResourceResult:
        """See `Toolbox`."""
        return await resources.read_resource(context, uri)

    async def get_prompt(
        self, context: ToolContext, name: str, arguments: Mapping[str, str] | None
    ) -> mcp_types.GetPromptResult:
        """See `Toolbox`."""
        return await prompts.get_prompt(context, name, arguments)

    async def complete(self, context: ToolContext, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        """See `Toolbox`."""
        return mcp_types.CompleteResult(completion=await prompts.complete(context, params.ref, params.argument))
