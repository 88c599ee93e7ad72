"""All tools, by name: their definitions for ``tools/list`` and the one way to call them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Literal

import mcp_types
import msgspec
from mcp.shared.exceptions import MCPError

from fmsg.errors import BadInput
from fmsg.redact import scrub, suspicious
from mcp_front.failures import failure_of, failure_result
from mcp_front.schemas import told
from mcp_front.tools import arguments as checked
from mcp_front.tools.context import ToolContext
from mcp_front.tools.download import DOWNLOAD_ATTACHMENT
from mcp_front.tools.identity import RESOLVE_ADDRESS, WHOAMI
from mcp_front.tools.lists import LIST_MESSAGES, LIST_SENT
from mcp_front.tools.people import ADD_RECIPIENTS, DELIVERY_STATUS, REACT
from mcp_front.tools.quick import Fits, quick
from mcp_front.tools.read import GET_MESSAGE, GET_THREAD, MARK_READ
from mcp_front.tools.send import REPLY, SEND_MESSAGE
from mcp_front.tools.subscriptions import WAIT_SUBSCRIPTIONS
from mcp_front.tools.tool import Tool, ToolResult
from mcp_front.tools.wait import WAIT_FOR_MESSAGE
from telemetry import metrics

log = logging.getLogger(__name__)

_ALL: tuple[Tool, ...] = (
    WHOAMI,
    WAIT_FOR_MESSAGE,
    LIST_MESSAGES,
    GET_MESSAGE,
    GET_THREAD,
    SEND_MESSAGE,
    REPLY,
    REACT,
    ADD_RECIPIENTS,
    MARK_READ,
    LIST_SENT,
    DELIVERY_STATUS,
    DOWNLOAD_ATTACHMENT,
    RESOLVE_ADDRESS,
    WAIT_SUBSCRIPTIONS,
)

TOOLS: Mapping[str, Tool] = {tool.definition.name: tool for tool in _ALL}
"""Every tool, in the order ``tools/list`` gives them."""

_UNTIMED = frozenset({"wait_for_message"})
"""Its duration is the caller's choice and would drown the others' in the histogram."""

_VALIDATORS: dict[tuple[str, str], tuple[Fits, checked.Validated]] = {}


def tool_definitions(transport: Literal["stdio", "http"]) -> list[mcp_types.Tool]:
    """The tools as clients of a deployment profile see them; complete without any configuration."""
    return [
        definition.model_copy(update={"output_schema": told(definition.output_schema or {})})
        for definition in (tool.definition_for(transport) for tool in TOOLS.values())
    ]


async def call_tool(context: ToolContext, name: str, arguments: Mapping[str, Any] | None) -> mcp_types.CallToolResult:
    """Call a tool. Every failure in its domain is a result with ``isError``.

    Raises `MCPError` (invalid params) for a name that is no tool, and nothing else but cancellation.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"Unknown tool: {scrub(str(name)[:100])}")
    started_s = time.monotonic()
    outcome = "cancelled"
    try:
        result = await _answered(context, tool, arguments)
        outcome = "error" if result.is_error else "ok"
        return result
    finally:
        metrics.TOOL_CALLS.labels(tool=name, outcome=outcome).inc()
        if name not in _UNTIMED:
            metrics.TOOL_DURATION.labels(tool=name).observe(time.monotonic() - started_s)


async def _answered(context: ToolContext, tool: Tool, arguments: Mapping[str, Any] | None) -> mcp_types.CallToolResult:
    name = tool.definition.name
    try:
        return _success(await tool.run(context, _checked(tool, context.caller.transport, arguments)))
    except Exception as error:  # The boundary: what escapes it shows its text to the client.
        failure = failure_of(error)
        if failure.kind == "internal":
            log.exception("tool failed", extra={"action": "tool_failed", "tool": name, "caller": context.caller.key})
        return failure_result(failure)


def _checked(tool: Tool, transport: Literal["stdio", "http"], arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    definition = tool.definition_for(transport)
    if transport == "http":
        _refuse_local(tool, arguments)
    known = _VALIDATORS.get((definition.name, transport))
    if known is None:
        schema = definition.input_schema
        known = _VALIDATORS[definition.name, transport] = quick(schema), checked.Validated(schema)
    fits, validator = known
    return checked.check(definition.name, validator, definition.input_schema, arguments, fits=fits)


def _refuse_local(tool: Tool, arguments: Mapping[str, Any] | None) -> None:
    """Arguments about files make sense where the server runs on the caller's own machine (FMSG-007, Downloads)."""
    if tool.over_stdio is None:
        return
    local = tool.over_stdio.input_schema["properties"].keys() - tool.definition.input_schema["properties"].keys()
    for name in sorted(local & (arguments or {}).keys()):
        raise BadInput(
            f"{name}: works only with a server that the user runs locally (stdio); this one is hosted. Leave it out."
        )


def _success(result: ToolResult) -> mcp_types.CallToolResult:
    """Foreign text was scrubbed where it was framed; the structured content is scrubbed here, string by string."""
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=result.text), *result.blocks],
        structured_content=_scrubbed(result.structured) if _suspicious(result.structured) else result.structured,
    )


def _suspicious(structured: dict[str, Any]) -> bool:
    """Whether any of its strings may hold a credential: one look instead of one per string."""
    try:
        return suspicious(msgspec.json.encode(structured).decode())
    except UnicodeEncodeError:
        return True


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {name: _scrubbed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    return value
