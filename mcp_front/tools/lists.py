"""``list_messages`` and ``list_sent``: pages of what was received and of what was sent, newest first.

The host knows nothing of what is left out here. So an offset is always one of the host's list, and ``next_offset`` is
where the message after the last one looked at stands: full pages, nothing skipped, nothing twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from fmsg.delivery import CODES, Outcome, outcomes
from fmsg.message import Message, Page
from mcp_front import schemas
from mcp_front.framing import STATEMENT, Report, quoted, visible
from mcp_front.render import Fields, headline, message_item, shown_address, utc
from mcp_front.tools.arguments import Arguments
from mcp_front.tools.context import ToolContext
from mcp_front.tools.tool import ToolResult, define

DEFAULT_LIMIT = 20
"""FMSG-007, list_messages."""
MOST = 100
"""The most a host gives in one page; more is clamped silently (FMSG-003)."""
LAST_OFFSET = 2**31 - 1
"""Beyond any list, and every host can read the number."""

HEADROOM = 5
"""Asked for above what is wanted: a few reactions among the newest then cost no second request."""

MOST_PAGES = 10
"""Of the host's per call: a thousand messages. A caller whose unread ones lie deeper goes on with ``next_offset``."""

Fetch = Callable[[int, int], Awaitable[Page]]
"""The host's page for a limit and an offset."""


class ListSent(Arguments, frozen=True, kw_only=True):
    """Which page of a list."""

    limit: Annotated[int, Meta(ge=1, le=MOST, description="How many")] = DEFAULT_LIMIT
    offset: Annotated[int, Meta(ge=0, le=LAST_OFFSET, description="next_offset of the page before")] = 0
    include_reactions: Annotated[bool, Meta(description="Also messages that are reactions")] = False


class ListMessages(ListSent, frozen=True, kw_only=True):
    """Which page of the received messages."""

    unread_only: Annotated[bool, Meta(description="Only messages not marked read")] = False


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """Messages to show, and the host's offset at which the next page begins (None: the list ends here)."""

    messages: tuple[Message, ...]
    next_offset: int | None


async def collect(fetch: Fetch, shown: Callable[[Message], bool], *, limit: int, offset: int) -> Collected:
    """At most ``limit`` messages that are to be shown, from the host's ``offset`` on.

    Fewer only where the list ends or after `MOST_PAGES` pages. The next page begins right after the last message shown,
    so that what is left out now (a draft) and shown later is not passed over. A message that arrives between two
    requests moves the list by one: what is met again is shown once.
    """
    found: dict[int, Message] = {}
    position = ended_at = offset
    asked = min(MOST, limit + HEADROOM)
    for _ in range(MOST_PAGES):
        page = (await fetch(asked, position)).messages
        for message in page:
            position += 1
            if message.id in found or not shown(message):
                continue
            if len(found) == limit:
                return Collected(messages=tuple(found.values()), next_offset=ended_at)
            found[message.id] = message
            ended_at = position
        if len(page) < asked:
            return Collected(messages=tuple(found.values()), next_offset=None)
        if len(found) == limit:
            return Collected(messages=tuple(found.values()), next_offset=ended_at)
        asked = MOST
    return Collected(messages=tuple(found.values()), next_offset=position)


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


async def _list_messages(context: ToolContext, arguments: ListMessages) -> ToolResult:
    reactions, unread_only = arguments.include_reactions, arguments.unread_only

    def shown(message: Message) -> bool:
        return (
            not message.is_draft
            and (reactions or not message.is_reaction)
            and not (unread_only and message.read is True)
        )

    async def fetch(limit: int, offset: int) -> Page:
        return await context.caller.api.list_received(limit=limit, offset=offset)

    page = await collect(fetch, shown, limit=arguments.limit, offset=arguments.offset)
    return _page_result(page, "received" if not unread_only else "unread", caller=context.caller.address)


async def _list_sent(context: ToolContext, arguments: ListSent) -> ToolResult:
    reactions = arguments.include_reactions

    def shown(message: Message) -> bool:
        return not message.is_draft and (reactions or not message.is_reaction)

    async def fetch(limit: int, offset: int) -> Page:
        return await context.caller.api.list_sent(limit=limit, offset=offset)

    page = await collect(fetch, shown, limit=arguments.limit, offset=arguments.offset)
    return _page_result(page, "sent", caller=context.caller.address, delivery=True)


def _page_result(page: Collected, kind: str, *, caller: str, delivery: bool = False) -> ToolResult:
    caller = caller.lower()
    items = [
        message_item(message, caller=caller) | ({"delivery": delivery_items(message)} if delivery else {})
        for message in page.messages
    ]
    fields: Fields = {"messages": items, "count": len(items), "next_offset": page.next_offset}
    report = Report()
    for message, item in zip(page.messages, items, strict=True):
        beginning = item["preview"]
        told = headline(msgspec.structs.replace(message, read=item["read"]))
        report.cite(told + (f": {quoted(beginning)}" if beginning else ""))
        if delivery:
            report.cite("  " + "; ".join(shown_delivery(outcome) for outcome in outcomes(message)))
    more = f"More: offset {page.next_offset}." if page.next_offset is not None else "No more."
    report.say(f"{len(items)} {kind} message{'s' if len(items) != 1 else ''}, newest first. {more}")
    return ToolResult(structured={"notice": STATEMENT, **fields} if items else fields, text=report.text())


DELIVERY = schemas.array(
    schemas.record(
        {"meaning": schemas.TEXT, "advice": schemas.TEXT},
        addr=schemas.TEXT,
        status=schemas.TEXT,
        time=schemas.TEXT_OR_NULL,
        code=schemas.WHOLE_OR_NULL,
        via=schemas.TEXT,
    )
)
"""The delivery array of ``list_sent`` and ``delivery_status``."""

LIST_MESSAGES = define(
    _list_messages,
    "list_messages",
    "List received messages",
    "Received messages, newest first, with previews. Marks nothing as read.",
    takes=ListMessages,
    gives=schemas.result(
        schemas.NOTICE,
        messages=schemas.array(schemas.message_item()),
        count=schemas.WHOLE,
        next_offset=schemas.WHOLE_OR_NULL,
    ),
    reads=True,
)

LIST_SENT = define(
    _list_sent,
    "list_sent",
    "List sent messages",
    "Messages you sent, newest first, with the delivery to each recipient.",
    takes=ListSent,
    gives=schemas.result(
        schemas.NOTICE,
        messages=schemas.array(schemas.message_item(delivery=DELIVERY)),
        count=schemas.WHOLE,
        next_offset=schemas.WHOLE_OR_NULL,
    ),
    reads=True,
)
