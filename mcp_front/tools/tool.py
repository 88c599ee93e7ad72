"""What a tool is, and what it hands back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

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
    over_stdio: mcp_types.Tool | None = None
    """The definition in the stdio profile where it offers more there (files on the caller's own machine)."""

    def definition_for(self, transport: Literal["stdio", "http"]) -> mcp_types.Tool:
        """The definition that clients of a deployment profile see."""
        return self.over_stdio if transport == "stdio" and self.over_stdio is not None else self.definition


def define(
    name: str,
    description: str,
    *,
    takes: dict[str, Any],
    gives: dict[str, Any],
    reads: bool,
    destructive: bool = False,
    repeatable: bool = False,
    open_world: bool = True,
) -> mcp_types.Tool:
    """A definition with its annotations (FMSG-007, Annotations).

    ``reads``: changes nothing. ``destructive``: what it does cannot be undone. ``repeatable``: doing it twice is as
    doing it once. ``open_world``: it meets the fmsg host. Hints that say what MCP takes for granted are left out.
    """
    return mcp_types.Tool(
        name=name,
        description=description,
        input_schema=takes,
        output_schema=gives,
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=None if reads else destructive,
            idempotent_hint=True if repeatable else None,
            open_world_hint=None if open_world else False,
        ),
    )
