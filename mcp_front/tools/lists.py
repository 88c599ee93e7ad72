"""``list_messages`` and ``list_sent``: pages of what was received and of what was sent, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fmsg.delivery import CODES, Outcome, outcomes
from fmsg.message import Message, Page
from mcp_front import schemas
from mcp_front.framing import STATEMENT, Report, quoted, visible
from mcp_front.render import Fields, headline, message_item, shown_address, utc
from mcp_front.tools.context import ToolContext
from mcp_front.tools.paging import Collected, collect
from mcp_front.tools.tool import Tool, ToolResult, define

DEFAULT_LIMIT = 20
"""FMSG-007, list_messages."""
MOST = 100
"""The most a host gives in one page (FMSG-003)."""
LAST_OFFSET = 2**31 - 1
"""Beyond any list, and every host can read the number."""


def delivery_items(message: Message) -> list[Fields]:
    """``{addr, status, time, code, via}`` for every recipient, with the code's name and what to do where it has one."""
    items = []
    for outcome in outcomes(message):
        item: Fields = {
            "addr": visible(outcome.addr),
            "status": outcome.status,
            "time": utc(outcome.time),
            "code": outcome.code,
            "via": outcome.via,
        }
        meaning = CODES.get(outcome.code) if outcome.code is not None and outcome.status != "delivered" else None
        if meaning is not None:
            item |= {"meaning": meaning.name, "advice": meaning.advice}
        items.append(item)
    return items


def shown_delivery(outcome: Outcome) -> str:
    """The delivery to one recipient in a line of text."""
    who = shown_address(outcome.addr) + (" (added)" if outcome.via == "add_to" else "")
    if outcome.status == "delivered":
        return f"{who} delivered {utc(outcome.time) or ''}".rstrip()
    if outcome.code is None or outcome.code == 200:
        return f"{who} {outcome.status}"
    meaning = CODES.get(outcome.code)
    return f"{who} {outcome.status}, code {outcome.code}" + (f" {meaning.name}: {meaning.advice}" if meaning else "")


async def _list_messages(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    reactions, unread_only = arguments.get("include_reactions", False), arguments.get("unread_only", False)

    def shown(message: Message) -> bool:
        return (
            not message.is_draft
            and (reactions or not message.is_reaction)
            and not (unread_only and message.read is True)
        )

    async def fetch(limit: int, offset: int) -> Page:
        return await context.caller.api.list_received(limit=limit, offset=offset)

    page = await collect(fetch, shown, **_bounds(arguments))
    return _page_result(page, "received" if not unread_only else "unread", delivery=False)


async def _list_sent(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    reactions = arguments.get("include_reactions", False)

    def shown(message: Message) -> bool:
        return not message.is_draft and (reactions or not message.is_reaction)

    async def fetch(limit: int, offset: int) -> Page:
        return await context.caller.api.list_sent(limit=limit, offset=offset)

    return _page_result(await collect(fetch, shown, **_bounds(arguments)), "sent", delivery=True)


def _bounds(arguments: Mapping[str, Any]) -> dict[str, int]:
    return {"limit": arguments.get("limit", DEFAULT_LIMIT), "offset": arguments.get("offset", 0)}


def _page_result(page: Collected, kind: str, *, delivery: bool) -> ToolResult:
    items = [
        message_item(message) | ({"delivery": delivery_items(message)} if delivery else {}) for message in page.messages
    ]
    fields: Fields = {"messages": items, "count": len(items), "next_offset": page.next_offset}
    report = Report()
    for message, item in zip(page.messages, items, strict=True):
        beginning = item["preview"]
        # Whether one has read what one sent oneself is nothing to tell.
        told = headline(msgspec.structs.replace(message, read=None) if delivery else message)
        report.cite(told + (f": {quoted(beginning)}" if beginning else ""))
        if delivery:
            report.cite("  " + "; ".join(shown_delivery(outcome) for outcome in outcomes(message)))
    more = f"More: offset {page.next_offset}." if page.next_offset is not None else "No more."
    report.say(f"{len(items)} {kind} message{'s' if len(items) != 1 else ''}, newest first. {more}")
    return ToolResult(structured={"notice": STATEMENT, **fields} if items else fields, text=report.text())


_PAGING = {
    "limit": schemas.whole("How many", default=DEFAULT_LIMIT, least=1, most=MOST),
    "offset": schemas.whole("next_offset of the page before", default=0, least=0, most=LAST_OFFSET),
    "include_reactions": schemas.flag("Also messages that are reactions"),
}
DELIVERY = schemas.array(
    schemas.record(
        {"meaning": schemas.TEXT, "advice": schemas.TEXT},
        addr=schemas.TEXT,
        status={"type": "string", "enum": ["delivered", "pending", "failed"]},
        time=schemas.TEXT_OR_NULL,
        code=schemas.WHOLE_OR_NULL,
        via={"type": "string", "enum": ["to", "add_to"]},
    )
)
"""The delivery array of ``list_sent`` and ``delivery_status``."""

LIST_MESSAGES = Tool(
    definition=define(
        "list_messages",
        "Received messages, newest first, with previews. Marks nothing as read.",
        takes=schemas.closed(**_PAGING, unread_only=schemas.flag("Only messages not marked read")),
        gives=schemas.result(
            schemas.NOTICE,
            messages=schemas.array(schemas.message_item()),
            count=schemas.WHOLE,
            next_offset=schemas.WHOLE_OR_NULL,
        ),
        reads=True,
    ),
    run=_list_messages,
)

LIST_SENT = Tool(
    definition=define(
        "list_sent",
        "Messages you sent, newest first, with the delivery to each recipient.",
        takes=schemas.closed(**_PAGING),
        gives=schemas.result(
            schemas.NOTICE,
            messages=schemas.array(schemas.message_item(delivery=DELIVERY)),
            count=schemas.WHOLE,
            next_offset=schemas.WHOLE_OR_NULL,
        ),
        reads=True,
    ),
    run=_list_sent,
)
