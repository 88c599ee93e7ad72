"""``whoami`` and ``resolve_address``: who the caller is, and what a name stands for. Neither sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_front import schemas
from mcp_front.tools.context import ToolContext
from mcp_front.tools.names import resolve
from mcp_front.tools.tool import Tool, ToolResult, define


async def _whoami(context: ToolContext, _arguments: Mapping[str, Any]) -> ToolResult:
    caller = context.caller
    fields = {"address": caller.address.lower(), "api_url": caller.api_url, "transport": caller.transport}
    return ToolResult(
        structured=fields,
        text=f"You are {fields['address']}, served by {fields['api_url']} over {fields['transport']}.",
    )


async def _resolve_address(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    found = resolve(context.directory, arguments["name"], argument="name")
    how = {"literal": "as given", "directory": "from the directory", "default_domain": "with the default domain"}
    return ToolResult(
        structured={"address": found.address, "resolution": found.resolution},
        text=f"{found.address} ({how[found.resolution]}). Nothing was sent or checked with a host.",
    )


WHOAMI = Tool(
    definition=define(
        "whoami",
        "The fmsg address you act as.",
        takes=schemas.closed(),
        gives=schemas.result(
            address=schemas.TEXT, api_url=schemas.TEXT, transport={"type": "string", "enum": ["stdio", "http"]}
        ),
        reads=True,
        open_world=False,
    ),
    run=_whoami,
)

RESOLVE_ADDRESS = Tool(
    definition=define(
        "resolve_address",
        "The full address that a short name stands for. Sends nothing and does not check that the user exists.",
        takes=schemas.closed(("name",), name=schemas.text("Short name or @user@domain")),
        gives=schemas.result(
            address=schemas.TEXT,
            resolution={"type": "string", "enum": ["literal", "directory", "default_domain"]},
        ),
        reads=True,
        open_world=False,
    ),
    run=_resolve_address,
)
