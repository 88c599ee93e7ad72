"""``get_message``, ``get_thread`` and ``mark_read``: one message, its lineage, and the mark that it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from fmsg.errors import FmsgError, HostRefused
from fmsg.message import Message, ReadMark, ThreadMessage
from fmsg.reference import format_reference, parse_reference
from ledger.port import LedgerError
from mcp_front import schemas
from mcp_front.bodies import NO_TEXT, BodyText, body_text
from mcp_front.failures import failure_of
from mcp_front.framing import STATEMENT, Report, visible
from mcp_front.gather import gather_bounded
from mcp_front.lineage import Lineage, lineage, to_message
from mcp_front.render import (
    Fields,
    addresses,
    attachment_items,
    batch_items,
    digest,
    headline,
    message_item,
    reference,
    rfc3339,
    shown_addresses,
    shown_size,
    shown_type,
)
from mcp_front.tools.arguments import Arguments, Reference
from mcp_front.tools.context import ToolContext
from mcp_front.tools.tool import ToolResult, define
from mcp_front.waiting.threads import held_root

MESSAGE_BODY_BYTES = 65_536
"""Shown of one message unless the caller wants more or less: some 16,000 tokens, a fraction of a model's context."""
THREAD_BODY_BYTES = 4_096
"""Shown of each message of a thread: what people write fits; what they paste is cut."""
MOST_BODY_BYTES = 16 * 1024 * 1024
"""Above the host's default of 10 MB for a body: who wants all of it gets it."""
THREAD_MESSAGES = 20
"""Shown of a lineage: the root and the newest, at most 80 kB of text by default, some 20,000 tokens."""
MOST_THREAD_MESSAGES = 200
"""As many as a walked lineage can have."""
MOST_MARKED = 100
"""Each is a request to the host; a page of a list has no more."""


class GetMessage(Arguments, frozen=True, kw_only=True):
    """Which message, and how much of it."""

    id: Annotated[Reference, Meta(description="Message id")]
    max_body_bytes: Annotated[int, Meta(ge=0, le=MOST_BODY_BYTES, description="Cut the body here")] = MESSAGE_BODY_BYTES


class GetThread(Arguments, frozen=True, kw_only=True):
    """Which thread, and how much of it."""

    aliases: ClassVar[Mapping[str, str]] = {"max_body_bytes_per_message": "max_body_bytes"}

    id: Annotated[Reference, Meta(description="Message the thread leads to")]
    max_messages: Annotated[int, Meta(ge=1, le=MOST_THREAD_MESSAGES, description="Show the root and the newest")] = (
        THREAD_MESSAGES
    )
    max_body_bytes: Annotated[int, Meta(ge=0, le=MOST_BODY_BYTES, description="Cut each body here")] = THREAD_BODY_BYTES


class MarkRead(Arguments, frozen=True, kw_only=True):
    """Which messages."""

    ids: Annotated[
        tuple[Annotated[Reference, Meta(description="Message id")], ...], Meta(min_length=1, max_length=MOST_MARKED)
    ]


async def _get_message(context: ToolContext, arguments: GetMessage) -> ToolResult:
    message_id = parse_reference(arguments.id)
    message = await context.caller.api.message(message_id)
    most = arguments.max_body_bytes
    body = await body_text(context.caller.api, message, max_bytes=most, room=context.answer)
    report = Report()
    show_message(report, message, body)
    return ToolResult(
        structured={
            "notice": STATEMENT,
            "message": message_item(message, with_preview=False, caller=context.caller.address.lower()),
            "body": body.text,
            "body_truncated": body.truncated,
        },
        text=report.text(),
    )


def show_message(report: Report, message: Message, body: BodyText) -> None:
    """A whole message in a text block."""
    report.cite(f"Message {headline(message)}; {shown_type(message.type)}, {shown_size(message.size)}")
    for name, value in digest(message.sha256).items():
        report.say(f"{name} {value}")
    show_body(report, body, message.size)


def show_body(report: Report, body: BodyText, size_bytes: int) -> None:
    """A body in a text block, with what there is to know about what is missing of it."""
    if body.text is None:
        report.say(f"The body is no text ({shown_size(size_bytes)}).")
    elif body.text or body.truncated:
        report.fence(body.text)
    else:
        report.say("The body is empty.")
    if body.unread:
        report.say("Some bytes are no text in the character set that the type declares; they stand as \ufffd.")
    if body.truncated:
        report.say(f"Cut: the body has {size_bytes} bytes; get_message with a larger max_body_bytes gives more.")


async def _get_thread(context: ToolContext, arguments: GetThread) -> ToolResult:
    thread = await shown_thread(
        context,
        parse_reference(arguments.id),
        most=arguments.max_messages,
        most_bytes=arguments.max_body_bytes,
    )
    found = thread.lineage
    target = format_reference(found.trigger.id)
    fields: Fields = {
        "notice": STATEMENT,
        "root_id": format_reference(found.root_id),
        "trigger_id": target,
        "complete": found.complete and not thread.omitted,
        "participants": addresses(thread.participants),
        "reply_target_id": None if found.trigger.terminal else target,
        "terminal": found.trigger.terminal,
        "no_reply": found.trigger.no_reply,
        "thread_topic": found.topic,
        "messages": [thread_item(message, body) for message, body in thread.shown],
    }
    report = Report()
    show_thread(report, thread)
    return ToolResult(structured=fields, text=report.text())


class ShownThread(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a lineage: some of its messages with their bodies, and who takes part besides the caller."""

    lineage: Lineage
    shown: tuple[tuple[ThreadMessage, BodyText], ...]
    participants: tuple[str, ...]

    @property
    def omitted(self) -> int:
        """How many messages are left out."""
        return len(self.lineage.messages) - len(self.shown)


async def shown_thread(context: ToolContext, message_id: int, *, most: int, most_bytes: int) -> ShownThread:
    """The lineage of a message, ``most`` messages of it, ``most_bytes`` of each body."""

    async def look_up_root() -> int:
        try:
            return await held_root(context.store.ledger, context.caller.key, message_id)
        except LedgerError:
            return 0

    found = await lineage(context.caller.api, message_id, most=most, look_up_root=look_up_root)
    messages = newest_and_root(found.messages, most)
    bodies = await thread_bodies(context, messages, most_bytes)
    return ShownThread(
        lineage=found,
        shown=tuple(zip(messages, bodies, strict=True)),
        participants=found.participants_but(context.caller.address),
    )


def newest_and_root(messages: Sequence[ThreadMessage], most: int) -> list[ThreadMessage]:
    """The root (it has the topic) and the newest of a lineage, ``most`` in all."""
    if len(messages) <= most:
        return list(messages)
    return [messages[0], *messages[len(messages) - most + 1 :]] if most > 1 else [messages[-1]]


async def thread_bodies(context: ToolContext, shown: Sequence[ThreadMessage], most_bytes: int) -> list[BodyText]:
    """The bodies of messages of a lineage; those the answer did not hold are fetched."""

    async def one(message: ThreadMessage) -> BodyText:
        if not message.visible:
            return NO_TEXT
        return await body_text(context.caller.api, to_message(message), max_bytes=most_bytes, room=context.answer)

    return await gather_bounded(one, shown)


def thread_item(message: ThreadMessage, body: BodyText) -> Fields:
    """One message of a lineage; of an invisible one nothing but its id is known."""
    plain = to_message(message)
    item: Fields = {
        "id": format_reference(message.id),
        "pid": reference(message.pid),
        "visible": message.visible,
        "from": visible(message.from_.lower()) if message.visible else None,
        "to": addresses(message.to),
        "time": rfc3339(message.time),
        "topic": visible(message.topic or ""),
        "type": visible(plain.type),
        "size": plain.size,
        "body": body.text,
        "body_truncated": body.truncated,
        "attachments": attachment_items(message.attachments),
    }
    if message.add_to:
        item["added"] = batch_items(message.add_to)
    item |= {name: True for name in ("important", "no_reply", "terminal") if getattr(message, name)}
    return item | digest(message.message_sha256)


def show_thread(report: Report, thread: ShownThread) -> None:
    """A thread in a text block."""
    found = thread.lineage
    report.cite(
        f"Thread {found.root_id} up to message {found.trigger.id}, with {shown_addresses(thread.participants)}."
    )
    if found.trigger.terminal:
        report.say("The message is terminal: nobody can reply, react or add recipients to it.")
    elif found.trigger.no_reply:
        report.say(f"Message {found.trigger.id} asks for no reply; reply takes allow_no_reply: true for it.")
    else:
        report.say(f'To answer: reply with id "{found.trigger.id}".')
    if thread.omitted or found.skipped:
        count = "Some" if found.skipped else thread.omitted
        report.say(f"{count} messages after the root are left out; max_messages gives more.")
    elif not found.complete:
        report.say("Some messages are not visible to you.")
    for message, body in thread.shown:
        show_thread_message(report, message, body)


def show_thread_message(report: Report, message: ThreadMessage, body: BodyText) -> None:
    """One message of a lineage in a text block."""
    if not message.visible:
        report.say(f"{message.id}: not visible to you")
        return
    report.cite(headline(to_message(message)))
    show_body(report, body, to_message(message).size)


async def _mark_read(context: ToolContext, arguments: MarkRead) -> ToolResult:
    ids = list(dict.fromkeys(parse_reference(each, name=f"ids[{n}]") for n, each in enumerate(arguments.ids)))
    api = context.caller.api

    async def mark(message_id: int) -> ReadMark | FmsgError:
        try:
            return await api.mark_read(message_id)
        except FmsgError as error:
            return error

    outcomes = await gather_bounded(mark, ids)
    by_id = dict(zip(ids, outcomes, strict=True))
    failed = {message_id: error for message_id, error in by_id.items() if isinstance(error, FmsgError)}
    marked = {message_id: mark for message_id, mark in by_id.items() if isinstance(mark, ReadMark)}
    if not marked and len({type(error) for error in failed.values()}) == 1:
        raise next(iter(failed.values()))
    report = Report()
    report.say(f"Marked as read: {', '.join(map(str, marked)) or 'none'}.")
    reasons: list[Fields] = []
    for message_id, error in failed.items():
        reason = error.reason if isinstance(error, HostRefused) else failure_of(error).text
        report.say(f"Not marked: {message_id}, because:")
        report.fence(reason)
        reasons.append({"id": format_reference(message_id), "reason": reason})
    fields: Fields = {"marked": [_marked_item(*each) for each in marked.items()], "failed": reasons}
    return ToolResult(structured={"notice": STATEMENT, **fields} if reasons else fields, text=report.text())


def _marked_item(message_id: int, mark: ReadMark) -> Fields:
    return {"id": format_reference(message_id), "time_read": rfc3339(mark.time_read)}


GET_MESSAGE = define(
    _get_message,
    "get_message",
    "Read a message",
    "One message with its body (null where it is no text). Does not mark it read.",
    takes=GetMessage,
    gives=schemas.result(
        schemas.NOTICE, message=schemas.message_item(), body=schemas.TEXT_OR_NULL, body_truncated=schemas.FLAG
    ),
    reads=True,
)

GET_THREAD = define(
    _get_thread,
    "get_thread",
    "Read a thread",
    "The conversation that led to a message, root first, and who takes part. No side branches.",
    takes=GetThread,
    gives=schemas.result(
        schemas.NOTICE,
        root_id=schemas.TEXT,
        trigger_id=schemas.TEXT,
        complete=schemas.FLAG,
        participants=schemas.TEXTS,
        reply_target_id=schemas.TEXT_OR_NULL,
        terminal=schemas.FLAG,
        no_reply=schemas.FLAG,
        thread_topic=schemas.TEXT_OR_NULL,
        messages=schemas.array(schemas.THREAD_ITEM),
    ),
    reads=True,
)

MARK_READ = define(
    _mark_read,
    "mark_read",
    "Mark as read",
    "Mark received messages as read. Each id ends in marked or in failed.",
    takes=MarkRead,
    gives=schemas.result(
        schemas.NOTICE,
        marked=schemas.array(schemas.record(id=schemas.TEXT, time_read=schemas.TEXT_OR_NULL)),
        failed=schemas.array(schemas.record(id=schemas.TEXT, reason=schemas.TEXT)),
    ),
    reads=False,
    repeatable=True,
)
