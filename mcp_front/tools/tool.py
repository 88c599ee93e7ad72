"""A tool, and the result of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types
import msgspec

from mcp_front.schemas import shortened
from mcp_front.tools.arguments import Arguments, schema_of

if TYPE_CHECKING:
    from mcp_front.tools.context import ToolContext

Block = (
    mcp_types.TextContent
    | mcp_types.ImageContent
    | mcp_types.AudioContent
    | mcp_types.EmbeddedResource
    | mcp_types.ResourceLink
)


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """A success. ``text`` and ``structured`` say the same, each completely; ``blocks`` follow the text."""

    structured: dict[str, Any]
    text: str
    blocks: tuple[Block, ...] = ()


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients see it, the type of its arguments, and the coroutine function behind it."""

    definition: mcp_types.Tool
    takes: type[Arguments]
    gives: dict[str, Any]
    """The schema of a result with all it promises; clients get a shorter one."""
    run: Callable[[ToolContext, Any], Awaitable[ToolResult]]
    holds: bool
    """Whether a call waits for something to happen. Such calls are counted as waits, and not timed."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name


def define(
    run: Callable[[ToolContext, Any], Awaitable[ToolResult]],
    name: str,
    title: str,
    description: str,
    *,
    takes: type[Arguments],
    gives: dict[str, Any],
    reads: bool,
    destructive: bool = False,
    repeatable: bool = False,
    open_world: bool = True,
    holds: bool = False,
) -> Tool:
    """A tool with its annotations (FMSG-007, Annotations).

    ``reads``: it changes nothing. ``destructive``: what it does cannot be undone. ``repeatable``: a second call changes
    nothing more. ``open_world``: it calls the fmsg host. Hints that equal the defaults of MCP are left out.
    """
    definition = mcp_types.Tool(
        name=name,
        title=title,
        description=description,
        input_schema=schema_of(takes),
        output_schema=shortened(gives),
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=None if reads else destructive,
            idempotent_hint=True if repeatable else None,
            open_world_hint=None if open_world else False,
        ),
    )
    return Tool(definition=definition, takes=takes, gives=gives, run=run, holds=holds)
