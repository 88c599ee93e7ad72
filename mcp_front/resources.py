"""The resources of FMSG-007: a message and a thread by reference, as framed Markdown; and the newest of the inbox.

None of them is enumerated: ``resources/list`` names the inbox alone. What is wrong with a request, and what the host
says to it, is an error of the protocol here (`MCPError`).
"""

from __future__ import annotations

import mcp_types
from mcp.shared.exceptions import MCPError

from fmsg.errors import BadInput, FmsgError, HostRefused
from fmsg.message import Message, Page
from fmsg.reference import parse_reference
from mcp_front.bodies import body_text
from mcp_front.failures import failure_of, failure_text
from mcp_front.framing import Report, quoted
from mcp_front.render import headline, preview
from mcp_front.tools.context import ToolContext
from mcp_front.tools.lists import collect
from mcp_front.tools.read import (
    MESSAGE_BODY_BYTES,
    THREAD_BODY_BYTES,
    THREAD_MESSAGES,
    show_message,
    show_thread,
    shown_thread,
)

MARKDOWN = "text/markdown"
MESSAGE_TEMPLATE = "fmsg://message/{id}"
THREAD_TEMPLATE = "fmsg://thread/{id}"
INBOX = "fmsg://inbox"
"""A client can subscribe to it and is told when something arrived."""

INBOX_MESSAGES = 20
"""Shown of the inbox, as list_messages does by default."""


def resources() -> list[mcp_types.Resource]:
    """The one resource with a fixed name."""
    return [mcp_types.Resource(uri=INBOX, name="inbox", description="The newest received messages", mime_type=MARKDOWN)]


def resource_templates() -> list[mcp_types.ResourceTemplate]:
    """The templates of FMSG-007."""
    return [
        mcp_types.ResourceTemplate(
            uri_template=MESSAGE_TEMPLATE, name="message", description="One message", mime_type=MARKDOWN
        ),
        mcp_types.ResourceTemplate(
            uri_template=THREAD_TEMPLATE,
            name="thread",
            description="The conversation that led to a message, root first",
            mime_type=MARKDOWN,
        ),
    ]


async def read_resource(context: ToolContext, uri: str) -> mcp_types.ReadResourceResult:
    """The resource's text. Raises `MCPError`: invalid params for a bad URI or an id the host refuses, else internal."""
    report = Report(markdown=True)
    try:
        kind, message_id = _parsed(uri)
        if kind == "inbox":
            await _inbox(report, context)
        elif kind == "message":
            message = await context.caller.api.message(message_id)
            body = await body_text(context.caller.api, message, max_bytes=MESSAGE_BODY_BYTES)
            show_message(report, message, body)
        else:
            thread = await shown_thread(context, message_id, most=THREAD_MESSAGES, most_bytes=THREAD_BODY_BYTES)
            show_thread(report, thread)
    except FmsgError as error:
        refused = isinstance(error, BadInput) or (isinstance(error, HostRefused) and error.status in (400, 403, 404))
        code = mcp_types.INVALID_PARAMS if refused else mcp_types.INTERNAL_ERROR
        raise MCPError(code=code, message=failure_text(failure_of(error))) from error
    text = mcp_types.TextResourceContents(uri=uri, mime_type=MARKDOWN, text=report.text())
    return mcp_types.ReadResourceResult(contents=[text])


def _parsed(uri: str) -> tuple[str, int]:
    """What a URI names: the kind and the id (0 for the inbox). Raises `BadInput`."""
    if uri == INBOX:
        return "inbox", 0
    for kind in ("message", "thread"):
        prefix = f"fmsg://{kind}/"
        if uri.startswith(prefix):
            return kind, parse_reference(uri[len(prefix) :], name=f"{prefix}{{id}}")
    raise BadInput(f"uri: there is no such resource. Use {MESSAGE_TEMPLATE}, {THREAD_TEMPLATE} or {INBOX}.")


async def _inbox(report: Report, context: ToolContext) -> None:
    def shown(message: Message) -> bool:
        return not message.is_draft and not message.is_reaction

    async def fetch(limit: int, offset: int) -> Page:
        return await context.caller.api.list_received(limit=limit, offset=offset)

    page = await collect(fetch, shown, limit=INBOX_MESSAGES, offset=0)
    for message in page.messages:
        beginning = preview(message)
        report.cite(f"- {headline(message)}" + (f": {quoted(beginning)}" if beginning else ""))
    report.say(f"The newest {len(page.messages)} messages; list_messages has them all.")
