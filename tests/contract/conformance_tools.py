"""The tools, resources and prompts that the official MCP conformance runner calls by name, beside the product's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from mcp_front.offer import FmsgToolbox
from mcp_front.toolbox import Profile
from mcp_front.tools.context import ToolContext

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


class ConformanceToolbox(FmsgToolbox):
    """The product's toolbox, with the runner's fixtures first: it calls the first tool listed without arguments."""

    def tools(self, profile: Profile) -> Sequence[types.Tool]:
        """Fixtures, then ours."""
        fixtures = [types.Tool(name=name, description=name, input_schema=_OBJECT) for name in _PLAIN]
        fixtures.append(types.Tool(name="test_x_mcp_header", description="headers", input_schema=_BY_HEADER))
        fixtures.append(types.Tool(name="json_schema_2020_12_tool", description="schema", input_schema=_SCHEMA_2020))
        return [*fixtures, *super().tools(profile)]

    def prompts(self) -> Sequence[types.Prompt]:
        """Ours, then fixtures."""
        return [
            *super().prompts(),
            types.Prompt(name="test_simple_prompt", description="d"),
            types.Prompt(
                name="test_prompt_with_arguments", description="d", arguments=[_needs("arg1"), _needs("arg2")]
            ),
            types.Prompt(name="test_prompt_with_embedded_resource", description="d", arguments=[_needs("resourceUri")]),
            types.Prompt(name="test_prompt_with_image", description="d"),
        ]

    async def call_tool(
        self, context: ToolContext, name: str, arguments: Mapping[str, Any] | None
    ) -> types.CallToolResult:
        """A fixture, or one of ours."""
        blocks = _blocks(name)
        if name == "test_tool_with_progress":
            for done in (0.0, 50.0, 100.0):
                if context.progress is not None:
                    await context.progress(done, 100.0, f"Completed step {done:.0f} of 100")
                await asyncio.sleep(0.05)
            blocks = [types.TextContent(text="done")]
        if blocks is None:
            return await super().call_tool(context, name, arguments)
        return types.CallToolResult(content=blocks, is_error=name == "test_error_handling")

    async def read_resource(self, context: ToolContext, uri: str) -> types.ReadResourceResult:
        """A fixture, or one of ours."""
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
            return await super().read_resource(context, uri)
        return types.ReadResourceResult(contents=contents)

    async def get_prompt(
        self, context: ToolContext, name: str, arguments: Mapping[str, str] | None
    ) -> types.GetPromptResult:
        """A fixture, or one of ours."""
        given = arguments or {}
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
        return await super().get_prompt(context, name, arguments)


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


def _said(*blocks: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])
