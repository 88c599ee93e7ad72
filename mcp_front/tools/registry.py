"""All tools, by name, and the one way to call them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types

from fmsg.redact import scrub, suspicious
from mcp_front.failures import failure_of, failure_result
from mcp_front.framing import Clean
from mcp_front.settings import FrontSettings
from mcp_front.tools.arguments import read_arguments
from mcp_front.tools.context import ToolContext
from mcp_front.tools.download import DOWNLOAD_ATTACHMENT, DOWNLOAD_OR_SAVE
from mcp_front.tools.identity import RESOLVE_ADDRESS, WHOAMI
from mcp_front.tools.lists import LIST_MESSAGES, LIST_SENT
from mcp_front.tools.people import ADD_RECIPIENTS, DELIVERY_STATUS, REACT
from mcp_front.tools.read import GET_MESSAGE, GET_THREAD, MARK_READ
from mcp_front.tools.send import (
    REPLY,
    REPLY_HOSTED,
    REPLY_LOCALLY,
    SEND_MESSAGE,
    SEND_MESSAGE_HOSTED,
    SEND_MESSAGE_LOCALLY,
)
from mcp_front.tools.subscriptions import WAIT_SUBSCRIPTIONS
from mcp_front.tools.tool import Tool, ToolResult
from mcp_front.tools.wait import WAIT_FOR_MESSAGE
from telemetry import metrics

log = logging.getLogger(__name__)


def tools_for(settings: FrontSettings) -> dict[str, Tool]:
    """The tools by name, in the order ``tools/list`` gives them. They need no configuration.

    Only over stdio, and only where the operator has named a directory, they take and write files.
    """
    local = settings.transport == "stdio"
    uploads, downloads = local and settings.upload_dir is not None, local and settings.download_dir is not None
    tools = (
        WHOAMI,
        WAIT_FOR_MESSAGE,
        LIST_MESSAGES,
        GET_MESSAGE,
        GET_THREAD,
        SEND_MESSAGE_LOCALLY if uploads else SEND_MESSAGE if local else SEND_MESSAGE_HOSTED,
        REPLY_LOCALLY if uploads else REPLY if local else REPLY_HOSTED,
        REACT,
        ADD_RECIPIENTS,
        MARK_READ,
        LIST_SENT,
        DELIVERY_STATUS,
        DOWNLOAD_OR_SAVE if downloads else DOWNLOAD_ATTACHMENT,
        RESOLVE_ADDRESS,
        WAIT_SUBSCRIPTIONS,
    )
    return {tool.name: tool for tool in tools}


async def call_tool(context: ToolContext, tool: Tool, arguments: Mapping[str, Any] | None) -> mcp_types.CallToolResult:
    """Call a tool. Every failure in its domain is a result with ``isError``. Only cancellation is raised."""
    started_s = time.monotonic()
    outcome = "cancelled"
    try:
        result = await _answered(context, tool, arguments)
        outcome = "error" if result.is_error else "ok"
        return result
    finally:
        metrics.TOOL_CALLS.labels(tool=tool.name, outcome=outcome).inc()
        if not tool.holds:  # How long a wait lasts is the caller's choice, and would drown the others.
            metrics.TOOL_DURATION.labels(tool=tool.name).observe(time.monotonic() - started_s)


async def _answered(context: ToolContext, tool: Tool, arguments: Mapping[str, Any] | None) -> mcp_types.CallToolResult:
    try:
        return _success(await tool.run(context, read_arguments(tool.name, tool.takes, arguments)))
    except Exception as error:  # The boundary: what escapes it shows its text to the client.
        failure = failure_of(error)
        if failure.kind == "internal":
            log.exception(
                "tool failed", extra={"action": "tool_failed", "tool": tool.name, "caller": context.caller.key}
            )
        return failure_result(failure)


def _success(result: ToolResult) -> mcp_types.CallToolResult:
    """Foreign text was scrubbed where it was framed; the rest of the structured content is scrubbed here."""
    unclean: list[str] = []
    _collect_unclean([result.structured], unclean)
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=result.text), *result.blocks],
        structured_content=_scrubbed(result.structured) if suspicious("\n".join(unclean)) else result.structured,
    )


def _collect_unclean(values: Iterable[Any], unclean: list[str]) -> None:
    """Add the texts that were not yet looked at for credentials."""
    for value in values:
        if isinstance(value, str):
            if not isinstance(value, Clean):
                unclean.append(value)
        elif isinstance(value, dict):
            _collect_unclean(value.values(), unclean)
        elif isinstance(value, list):
            _collect_unclean(value, unclean)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Clean) else scrub(value)
    if isinstance(value, dict):
        return {name: _scrubbed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    return value
