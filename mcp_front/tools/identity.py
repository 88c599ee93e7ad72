"""``whoami`` and ``resolve_address``: who the caller is, and what a name stands for. Neither sends anything."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mcp_front import schemas
from mcp_front.tools.arguments import Arguments
from mcp_front.tools.context import ToolContext
from mcp_front.tools.names import resolve
from mcp_front.tools.tool import ToolResult, define


class Whoami(Arguments, frozen=True, kw_only=True):
    """There are none."""


class ResolveAddress(Arguments, frozen=True, kw_only=True):
    """The name."""

    name: Annotated[str, Meta(min_length=1, description="Short name or @user@domain")]


async def _whoami(context: ToolContext, _arguments: Whoami) -> ToolResult:
    caller = context.caller
    fields = {
        "address": caller.address.lower(),
        "api_url": context.settings.api_public_url or caller.api_url,
        "transport": caller.transport,
    }
    return ToolResult(
        structured=fields,
        text=f"You are {fields['address']}, served by {fields['api_url']} over {fields['transport']}.",
    )


async def _resolve_address(context: ToolContext, arguments: ResolveAddress) -> ToolResult:
    found = resolve(context.directory, arguments.name, argument="name")
    how = {"literal": "as given", "directory": "from the directory", "default_domain": "with the default domain"}
    return ToolResult(
        structured={"address": found.address, "resolution": found.resolution},
        text=f"{found.address} ({how[found.resolution]}). Nothing was sent or checked with a host.",
    )


WHOAMI = define(
    _whoami,
    "whoami",
    "Show my address",
    "The fmsg address you act as.",
    takes=Whoami,
    gives=schemas.result(address=schemas.TEXT, api_url=schemas.TEXT, transport=schemas.TEXT),
    reads=True,
    open_world=False,
)

RESOLVE_ADDRESS = define(
    _resolve_address,
    "resolve_address",
    "Resolve a name",
    "The full address that a short name stands for. Sends nothing and does not check that the user exists.",
    takes=ResolveAddress,
    gives=schemas.result(address=schemas.TEXT, resolution=schemas.TEXT),
    reads=True,
    open_world=False,
)
