"""The tools, resources and prompts that the official MCP conformance runner calls by name, beside the product's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from mcp_front import prompts
from mcp_front.server import Ctx
from mcp_front.settings import FrontSettings
from mcp_front.tools.arguments import Arguments
from mcp_front.tools.context import ToolContext
from mcp_front.tools.registry import tools_for
from mcp_front.tools.tool import Tool, ToolResult

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
MISSING_CAPABILITY = -32021
"""The code for a capability that the client does not declare (MCP 2026-07-28)."""

_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
_PLAIN = (
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_tool_with_logging",
)
_BY_HEADER = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
        "verbose": {"type": "boolean", "x-mcp-header": "Verbose"},
        "query": {"type": "string"},
    },
}
_SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class _Nothing(Arguments, frozen=True, kw_only=True):
    """Fixtures are answered before anybody reads their arguments."""


async def _run(context: ToolContext, arguments: _Nothing) -> ToolResult:
    raise AssertionError("a fixture is answered by `with_fixtures`")


def _fixture(name: str, schema: dict[str, Any]) -> Tool:
    definition = types.Tool(name=name, description=name, input_schema=schema)
    return Tool(definition=definition, takes=_Nothing, gives=_OBJECT, run=_run, holds=False)


def tools_with_fixtures() -> dict[str, Tool]:
    """The runner's fixtures first: it calls the first tool listed without arguments. Then the product's tools."""
    headed: dict[str, dict[str, Any]] = {"test_x_mcp_header": _BY_HEADER, "json_schema_2020_12_tool": _SCHEMA_2020}
    schemas: dict[str, dict[str, Any]] = dict.fromkeys(_PLAIN, _OBJECT) | headed
    return {name: _fixture(name, schema) for name, schema in schemas.items()} | tools_for(FrontSettings())


def with_fixtures(server: Server[Any]) -> Server[Any]:
    """The server, with the runner's fixtures beside its own tools, prompts and resources."""

    def beside(method: str, params: type[Any], fixture: Callable[[Ctx, Any], Awaitable[Any]]) -> None:
        entry = server.get_request_handler(method)
        assert entry is not None
        answered = entry.handler

        async def handler(ctx: Ctx, asked: Any) -> Any:
            found = await fixture(ctx, asked)
            return await answered(ctx, asked) if found is None else found

        server.add_request_handler(method, params, handler)

    async def list_prompts(ctx: Ctx, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[*prompts.prompts(), *_PROMPTS])

    beside("tools/call", types.CallToolRequestParams, _call_tool)
    beside("prompts/list", types.PaginatedRequestParams, list_prompts)
    beside("prompts/get", types.GetPromptRequestParams, _get_prompt)
    beside("resources/read", types.ReadResourceRequestParams, _read_resource)
    return server


async def _call_tool(ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult | None:
    name = params.name
    if name == "test_missing_capability":
        require_sampling(ctx.session.client_capabilities)
    blocks = _blocks(name)
    if name == "test_tool_with_progress":
        for done in (0.0, 50.0, 100.0):
            await ctx.session.report_progress(done, 100.0, f"Completed step {done:.0f} of 100")
            await asyncio.sleep(0.05)
        blocks = [types.TextContent(text="done")]
    return None if blocks is None else types.CallToolResult(content=blocks, is_error=name == "test_error_handling")


async def _read_resource(ctx: Ctx, params: types.ReadResourceRequestParams) -> types.ReadResourceResult | None:
    uri = str(params.uri)
    contents: list[types.TextResourceContents | types.BlobResourceContents]
    if uri == "test://static-text":
        text = "This is the content of the static text resource."
        contents = [types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)]
    elif uri == "test://static-binary":
        contents = [types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)]
    elif uri.startswith("test://template/"):
        number = uri.split("/")[3]
        text = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        contents = [types.TextResourceContents(uri=uri, mime_type="application/json", text=text)]
    else:
        return None
    return types.ReadResourceResult(contents=contents)


async def _get_prompt(ctx: Ctx, params: types.GetPromptRequestParams) -> types.GetPromptResult | None:
    name, given = params.name, params.arguments or {}
    if name == "test_simple_prompt":
        return _said(types.TextContent(text="This is a simple prompt for testing."))
    if name == "test_prompt_with_arguments":
        text = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        return _said(types.TextContent(text=text))
    if name == "test_prompt_with_embedded_resource":
        resource = _embedded(given.get("resourceUri", "test://x"), text="Embedded resource content for testing.")
        return _said(resource, types.TextContent(text="Please process the embedded resource above."))
    if name == "test_prompt_with_image":
        image = types.ImageContent(data=PNG, mime_type="image/png")
        return _said(image, types.TextContent(text="Please analyze the image above."))
    return None


def require_sampling(capabilities: types.ClientCapabilities | None) -> None:
    """What ``test_missing_capability`` is about: refuse a client that does not declare sampling."""
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            MISSING_CAPABILITY,
            "Missing required client capability",
            {"requiredCapabilities": {"sampling": {}}},
        )


def _blocks(name: str) -> list[types.ContentBlock] | None:
    """The content of a fixture; None for what is none, or has to be made."""
    text = types.TextContent
    fixed: dict[str, list[types.ContentBlock]] = {
        "test_simple_text": [text(text="This is a simple text response for testing.")],
        "test_image_content": [types.ImageContent(data=PNG, mime_type="image/png")],
        "test_audio_content": [types.AudioContent(data=WAV, mime_type="audio/wav")],
        "test_embedded_resource": [_embedded("test://embedded-resource")],
        "test_multiple_content_types": [
            text(text="Multiple content types test:"),
            types.ImageContent(data=PNG, mime_type="image/png"),
            _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ],
        "test_error_handling": [text(text="This tool intentionally returns an error for testing")],
    }
    other = (*_PLAIN, "test_x_mcp_header", "json_schema_2020_12_tool")
    return fixed.get(name, [text(text="ok")] if name in other and name != "test_tool_with_progress" else None)


def _embedded(
    uri: str, mime_type: str = "text/plain", text: str = "This is an embedded resource content."
) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _needs(name: str) -> types.PromptArgument:
    return types.PromptArgument(name=name, required=True)


_PROMPTS = [
    types.Prompt(name="test_simple_prompt", description="d"),
    types.Prompt(name="test_prompt_with_arguments", description="d", arguments=[_needs("arg1"), _needs("arg2")]),
    types.Prompt(name="test_prompt_with_embedded_resource", description="d", arguments=[_needs("resourceUri")]),
    types.Prompt(name="test_prompt_with_image", description="d"),
]


def _said(*blocks: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])
