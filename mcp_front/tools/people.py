"""``add_recipients``, ``react`` and ``delivery_status``: who gets a message, and what they make of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fmsg.delivery import outcomes
from fmsg.reference import format_reference, parse_reference
from mcp_front import schemas
from mcp_front.framing import STATEMENT, Report, visible
from mcp_front.render import reference, rfc3339, shown_addresses
from mcp_front.sending.answering import refuse_terminal
from mcp_front.tools.context import ToolContext
from mcp_front.tools.lists import DELIVERY, delivery_items, shown_delivery
from mcp_front.tools.names import resolve_all
from mcp_front.tools.tool import Tool, ToolResult, define


async def _add_recipients(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    message_id = parse_reference(arguments["id"])
    add_to = resolve_all(context.directory, arguments["add_to"], argument="add_to")
    api = context.caller.api
    refuse_terminal(await api.message(message_id), "recipients")
    added = await api.add_recipients(message_id, add_to)
    fields = {"id": format_reference(message_id), "added": added.added, "add_to": list(add_to)}
    if added.sha256:
        fields["sha256"] = added.sha256
    return ToolResult(
        structured=fields, text=f"Added {shown_addresses(add_to)} to message {message_id} ({added.added} added)."
    )


async def _react(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    message_id = parse_reference(arguments["id"])
    emoji = arguments.get("emoji") or None
    api = context.caller.api
    refuse_terminal(await api.message(message_id), "reaction")
    reacted = await api.react(message_id, emoji)
    if emoji is not None:
        text = f"You react to message {message_id} with {visible(emoji)}."
    elif reacted.id is not None:
        text = f"Your reaction to message {message_id} is cleared."
    else:
        text = f"You had no reaction to message {message_id}; nothing was sent."
    return ToolResult(
        structured={
            "id": format_reference(message_id),
            "reaction_id": reference(reacted.id),
            "cleared": emoji is None,
        },
        text=text,
    )


async def _delivery_status(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    message_id = parse_reference(arguments["id"])
    message = await context.caller.api.message(message_id)
    report = Report()
    sent_at = rfc3339(message.time)
    report.say(
        f"Message {message_id} was sent {sent_at}." if sent_at else f"Message {message_id} is a draft: not sent."
    )
    for outcome in outcomes(message):
        report.cite(shown_delivery(outcome))
    return ToolResult(
        structured={
            "notice": STATEMENT,
            "id": format_reference(message_id),
            "sent_at": sent_at,
            "recipients": delivery_items(message),
        },
        text=report.text(),
    )


ADD_RECIPIENTS = Tool(
    definition=define(
        "add_recipients",
        "Add recipients to a sent message; they get it with its thread. Takes effect at once. A sent fmsg message "
        "cannot be edited or recalled, and recipients cannot be removed.",
        takes=schemas.closed(
            ("id", "add_to"),
            id=schemas.reference("Message id"),
            add_to=schemas.array(schemas.ADDRESS, minItems=1),
        ),
        gives=schemas.result({"sha256": schemas.TEXT}, id=schemas.TEXT, added=schemas.WHOLE, add_to=schemas.TEXTS),
        reads=False,
        destructive=True,
    ),
    run=_add_recipients,
)

REACT = Tool(
    definition=define(
        "react",
        "React to a message with one emoji, replacing your former reaction; null or empty clears it. Sends at once to "
        "all participants.",
        takes=schemas.closed(
            ("id", "emoji"),
            id=schemas.reference("Message id"),
            # Branches, not a list of types: clients that translate schemas for a model may refuse all tools for a list.
            emoji={"anyOf": [{"type": "string"}, {"type": "null"}], "description": "One emoji"},
        ),
        gives=schemas.result(id=schemas.TEXT, reaction_id=schemas.TEXT_OR_NULL, cleared=schemas.FLAG),
        reads=False,
        repeatable=True,
    ),
    run=_react,
)

DELIVERY_STATUS = Tool(
    definition=define(
        "delivery_status",
        "Whether a message you sent reached each recipient, added ones included, and what to do where not.",
        takes=schemas.closed(("id",), id=schemas.reference("Sent message")),
        gives=schemas.result(schemas.NOTICE, id=schemas.TEXT, sent_at=schemas.TEXT_OR_NULL, recipients=DELIVERY),
        reads=True,
    ),
    run=_delivery_status,
)
