"""``add_recipients``, ``react`` and ``delivery_status``: who gets a message, and what they make of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from fmsg.delivery import outcomes
from fmsg.reference import format_reference, parse_reference
from mcp_front import schemas
from mcp_front.framing import STATEMENT, Report, visible
from mcp_front.render import Fields, digest, reference, rfc3339, shown_addresses
from mcp_front.sending.compose import refuse_terminal
from mcp_front.tools.arguments import Arguments, Names, Reference
from mcp_front.tools.context import ToolContext
from mcp_front.tools.lists import DELIVERY, delivery_items, shown_delivery
from mcp_front.tools.names import resolve_all
from mcp_front.tools.tool import ToolResult, define


class AddRecipients(Arguments, frozen=True, kw_only=True):
    """Whom to add to which message."""

    id: Annotated[Reference, Meta(description="Message id")]
    add_to: Names
    aliases: ClassVar[Mapping[str, str]] = {"recipients": "add_to"}


class React(Arguments, frozen=True, kw_only=True):
    """What to make of which message."""

    id: Annotated[Reference, Meta(description="Message id")]
    emoji: Annotated[str | None, Meta(description="One emoji")]


class DeliveryStatus(Arguments, frozen=True, kw_only=True):
    """Which sent message."""

    id: Annotated[Reference, Meta(description="Sent message")]


async def _add_recipients(context: ToolContext, arguments: AddRecipients) -> ToolResult:
    message_id = parse_reference(arguments.id)
    names = resolve_all(context.directory, arguments.add_to, argument="add_to")
    add_to = names.addresses
    api = context.caller.api
    refuse_terminal(await api.message(message_id), "recipients")
    added = await api.add_recipients(message_id, add_to)
    fields: Fields = {"id": format_reference(message_id), "added": added.added, "add_to": list(add_to)}
    fields |= names.fields()
    fields |= digest(added.sha256)
    return ToolResult(
        structured=fields, text=f"Added {shown_addresses(add_to)} to message {message_id} ({added.added} added)."
    )


async def _react(context: ToolContext, arguments: React) -> ToolResult:
    message_id = parse_reference(arguments.id)
    emoji = arguments.emoji or None
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


async def _delivery_status(context: ToolContext, arguments: DeliveryStatus) -> ToolResult:
    message_id = parse_reference(arguments.id)
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


ADD_RECIPIENTS = define(
    _add_recipients,
    "add_recipients",
    "Add recipients",
    "Add recipients to a sent message; they get it with its thread. Takes effect at once. A sent fmsg message cannot "
    "be edited or recalled, and recipients cannot be removed.",
    takes=AddRecipients,
    gives=schemas.result(
        {"sha256": schemas.TEXT, "resolved": schemas.ANYTHING},
        id=schemas.TEXT,
        added=schemas.WHOLE,
        add_to=schemas.TEXTS,
    ),
    reads=False,
    destructive=True,
)

REACT = define(
    _react,
    "react",
    "React with an emoji",
    "React to a message with one emoji, replacing your former reaction; null or empty clears it. Sends at once to all "
    "participants.",
    takes=React,
    gives=schemas.result(id=schemas.TEXT, reaction_id=schemas.TEXT_OR_NULL, cleared=schemas.FLAG),
    reads=False,
    repeatable=True,
)

DELIVERY_STATUS = define(
    _delivery_status,
    "delivery_status",
    "Check delivery",
    "Whether a message you sent reached each recipient, added ones included, and what to do where not.",
    takes=DeliveryStatus,
    gives=schemas.result(schemas.NOTICE, id=schemas.TEXT, sent_at=schemas.TEXT_OR_NULL, recipients=DELIVERY),
    reads=True,
)
