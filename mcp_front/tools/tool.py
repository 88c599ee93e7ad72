"""What a tool is, and what it hands back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import mcp_types
import msgspec

if TYPE_CHECKING:
    from mcp_front.tools.context import ToolContext

Block = mcp_types.TextContent | mcp_types.ImageContent | mcp_types.AudioContent | mcp_types.EmbeddedResource


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """A success. ``text`` and ``structured`` say the same, each completely; ``blocks`` follow the text."""

    structured: dict[str, Any]
    text: str
    blocks: tuple[Block, ...] = ()


Run = Callable[["ToolContext", Mapping[str, Any]], Awaitable[ToolResult]]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients see it, and the coroutine function behind it, called with arguments that fit its schema."""

    definition: mcp_types.Tool
    run: Run
