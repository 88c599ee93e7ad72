"""The MCP server object: what the SDK calls, in both eras of the protocol and over both transports.

One boundary for exceptions: what a handler lets through would show its text to clients.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from fmsg.redact import scrub
from ledger.values import CallerKey
from mcp_front import prompts, resources
from mcp_front.failures import ToolFailure, failure_of, failure_result, not_configured
from mcp_front.instructions import instructions
from mcp_front.limits import HeldCalls, OverBudget
from mcp_front.tools.context import Progress, ToolContext
from mcp_front.tools.registry import call_tool
from mcp_front.tools.tool import Tool

log = logging.getLogger(__name__)
audit = logging.getLogger("mcp_front.audit")
"""One line per tool call: who (caller key), what, how it ended, how long it took. Never arguments or contents."""

Ctx = ServerRequestContext[Any, Any]
Params = TypeVar("Params")
Result = TypeVar("Result")

SERVER_NAME = "fmsg-mcpd"
SERVER_TITLE = "fmsg"

LIST_TTL_MS = 300_000
"""Lists change with a deploy only, and a client that holds an old one meets at most an unknown argument."""

CONFIRM_AHEAD_S = 30.0
"""A key is good for a minute after the host accepted it. In the second half of that minute a call has it confirmed in
the background, so an answer waits for the host only after half a minute without a call."""

LISTS = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list"})
"""Methods whose results are the same for everybody: made once per protocol version."""


class NotConfigured(Exception):
    """Variables are missing, so there is no caller (stdio). ``missing`` names them."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__(", ".join(missing))
        self.missing = missing


def client_name(ctx: Ctx) -> str:
    """The name the client gave itself; empty where the request does not say."""
    params = ctx.session.client_params
    return "" if params is None else params.client_info.name


class Requests(Protocol):
    """What the server has to know of a request; each transport has its own."""

    async def context(self, ctx: Ctx, progress: Progress | None) -> ToolContext:
        """The caller of a request, and what the request is served with. Raises `NotConfigured` or `FmsgError`."""
        ...

    async def address(self, ctx: Ctx) -> str | None:
        """The caller's address, where it is known and its key was accepted within the minute."""
        ...

    def name(self, ctx: Ctx) -> str:
        """The request's id in logs."""
        ...

    def may_write(self, ctx: Ctx) -> bool:
        """Whether the caller may do more than read."""
        ...


def build_server(
    tools: Mapping[str, Tool],
    requests: Requests,
    *,
    held_calls: HeldCalls,
    version: str,
    listen: Callable[[Ctx, types.SubscriptionsListenRequestParams], Awaitable[types.SubscriptionsListenResult]] | None,
    traced: bool = False,
) -> Server[Any]:
    """The server of one process, for every session and request of it.

    ``traced``: OpenTelemetry spans are exported.
    """
    schemas: dict[str, Mapping[str, Any]] = {name: tool.definition.input_schema for name, tool in tools.items()}

    async def list_tools(ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        _first_page(params)
        may_write = requests.may_write(ctx)
        shown = [tool.definition for tool in tools.values() if may_write or only_reads(tool)]
        return types.ListToolsResult(tools=shown)

    async def list_resources(ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        _first_page(params)
        return types.ListResourcesResult(resources=resources.resources())

    async def list_templates(
        ctx: Ctx, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        _first_page(params)
        return types.ListResourceTemplatesResult(resource_templates=resources.resource_templates())

    async def list_prompts(ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        _first_page(params)
        return types.ListPromptsResult(prompts=prompts.prompts())

    async def call(ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, "Unknown tool. tools/list names the tools there are.")
        started_s = time.monotonic()
        caller, outcome = CallerKey("-"), "cancelled"
        try:
            context = await requests.context(ctx, _progress(ctx))
            caller = context.caller.key
            if tool.holds:
                held_calls.take(caller)
            try:
                result = await call_tool(context, tool, params.arguments)
                if not tool.holds and not result.is_error:
                    await context.caller.confirm(ahead_s=CONFIRM_AHEAD_S)
            finally:
                if tool.holds:
                    held_calls.give_back(caller)
            outcome = "error" if result.is_error else "ok"
        except OverBudget as over:
            outcome = "over_budget"
            result = failure_result(failure_of(over))
        except NotConfigured as error:
            outcome = "not_configured"
            result = not_configured(error.missing)
        except MCPError:
            outcome = "error"
            raise
        except Exception as error:  # noqa: BLE001 - the boundary
            outcome = "error"
            result = failure_result(_known_or_logged(error, params.name))
        finally:
            audit.info(
                "tool call",
                extra={
                    "action": "tool_call",
                    "caller": caller,
                    "tool": params.name,
                    "outcome": outcome,
                    "duration_s": round(time.monotonic() - started_s, 4),
                    "request_id": requests.name(ctx),
                },
            )
        return result

    async def read_resource(ctx: Ctx, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        context = await requests.context(ctx, _progress(ctx))
        try:
            result = await resources.read_resource(context, uri)
            await context.caller.confirm(ahead_s=CONFIRM_AHEAD_S)
            return result
        except MCPError as error:
            if error.code == types.INVALID_PARAMS and error.data is None:
                raise MCPError(error.code, error.message, {"uri": scrub(uri)}) from None
            raise

    async def get_prompt(ctx: Ctx, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        context = await requests.context(ctx, _progress(ctx))
        result = await prompts.get_prompt(context, params.name, params.arguments)
        await context.caller.confirm(ahead_s=CONFIRM_AHEAD_S)
        return result

    async def complete(ctx: Ctx, params: types.CompleteRequestParams) -> types.CompleteResult:
        context = await requests.context(ctx, None)
        completion = await prompts.complete(context, params.ref, params.argument)
        await context.caller.confirm(ahead_s=CONFIRM_AHEAD_S)
        return types.CompleteResult(completion=completion)

    server: Server[Any] = Server(
        SERVER_NAME,
        version=version,
        title=SERVER_TITLE,
        get_tool_input_schema=schemas.get,
        cache_hints={
            "tools/list": CacheHint(LIST_TTL_MS, "public"),
            "resources/list": CacheHint(LIST_TTL_MS, "public"),
            "resources/templates/list": CacheHint(LIST_TTL_MS, "public"),
            "prompts/list": CacheHint(LIST_TTL_MS, "public"),
        },
        on_list_tools=list_tools,
        on_call_tool=call,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=_guarded(read_resource),
        on_list_prompts=list_prompts,
        on_get_prompt=_guarded(get_prompt),
        on_completion=_guarded(complete),
        on_subscriptions_listen=None if listen is None else _guarded(listen),
    )
    # The SDK's tracing middleware costs 55 µs a request and traces nothing unless an exporter is installed.
    tracing = [*server.middleware, _named_by(requests)] if traced else []
    server.middleware[:] = [*tracing, _Prepared(requests)]
    return server


def _named_by(requests: Requests) -> ServerMiddleware[Any]:
    """Writes the request's id into its span, so that a trace leads to the log lines and back."""
    from opentelemetry.trace import get_current_span

    async def named(ctx: Ctx, call_next: CallNext) -> HandlerResult:
        get_current_span().set_attribute("fmsg_mcpd.request_id", requests.name(ctx))
        return await call_next(ctx)

    return named


class _Prepared:
    """Answers lists from what was made once, and puts the caller's own instructions into the beginning of a session."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._lists: dict[tuple[str, str, bool], dict[str, Any]] = {}

    async def __call__(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        method = ctx.method
        if method in LISTS and ctx.request_id is not None and _plain(ctx.params):
            wanted = (method, ctx.protocol_version, self._requests.may_write(ctx))
            known = self._lists.get(wanted)
            if known is None:
                known = self._lists[wanted] = _wire(await call_next(ctx))
            return known
        result = await call_next(ctx)
        if method in ("initialize", "server/discover"):
            return {**_wire(result), "instructions": instructions(await self._requests.address(ctx))}
        return result


def only_reads(tool: Tool) -> bool:
    """Whether a tool changes nothing, by its own word (MCP, ``readOnlyHint``)."""
    annotations = tool.definition.annotations
    return annotations is not None and annotations.read_only_hint is True


def _plain(params: Mapping[str, Any] | None) -> bool:
    """Whether a list is asked for with nothing but metadata."""
    return not params or params.keys() <= {"_meta"}


def _wire(result: HandlerResult) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise TypeError(f"the SDK's chain gave {type(result).__name__} where it gives the wire form")
    return result


def _first_page(params: types.PaginatedRequestParams | None) -> None:
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "Unknown cursor: there is one page. Ask for it without a cursor.")


def _progress(ctx: Ctx) -> Progress | None:
    """The way to report progress, where the client asked for it."""
    if ctx.meta is None or ctx.meta.get("progress_token") is None:
        return None
    return ctx.session.report_progress


def _guarded(
    handler: Callable[[Ctx, Params], Awaitable[Result]],
) -> Callable[[Ctx, Params], Awaitable[Result]]:
    """The boundary of a handler whose failures are protocol errors."""

    async def guarded(ctx: Ctx, params: Params) -> Result:
        try:
            return await handler(ctx, params)
        except MCPError:
            raise
        except NotConfigured as error:
            raise MCPError(types.INTERNAL_ERROR, _text(not_configured(error.missing))) from None
        except Exception as error:  # noqa: BLE001 - the boundary
            failed = _known_or_logged(error, ctx.method)
        raise _protocol_error(failed)

    return guarded


def _protocol_error(failure: ToolFailure) -> MCPError:
    """A failure as text in a protocol error: the same words as in a tool result."""
    asked_wrongly = failure.kind in ("bad_argument", "host_refused", "refused_here")
    code = types.INVALID_PARAMS if asked_wrongly else types.INTERNAL_ERROR
    return MCPError(code, _text(failure_result(failure)))


def _text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def _known_or_logged(error: Exception, what: str) -> ToolFailure:
    failure = failure_of(error)
    if failure.kind == "internal":
        log.error("request failed", exc_info=error, extra={"action": "request_failed", "method": what})
    return failure
