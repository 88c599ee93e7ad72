"""``send_message`` and ``reply``: what goes out, at once and for good (FMSG-007, Core tools, Behavioural Rules)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from fmsg.reference import format_reference, parse_reference
from mcp_front import schemas
from mcp_front.failures import ToolFailure
from mcp_front.framing import visible
from mcp_front.render import Fields, addresses, attachment_items, reference, rfc3339, shown_addresses, shown_size
from mcp_front.sending.answering import parent_of, refuse_no_reply, refuse_terminal, reply_all
from mcp_front.sending.deliver import Delivered, Post, Steps
from mcp_front.sending.once import Once, Repeated, content_hash
from mcp_front.sending.outgoing import DEFAULT_TYPE, Outgoing, compose
from mcp_front.sending.uploads import Uploads, refuse_credential, take_uploads
from mcp_front.tools.arguments import Arguments, Filled, Names, Reference
from mcp_front.tools.context import ToolContext
from mcp_front.tools.names import resolve_all
from mcp_front.tools.tool import Tool, ToolResult, define
from mcp_front.topics import TOPICS

Prepare = Callable[[Uploads], Awaitable[Outgoing]]
"""Makes the message; may ask the host, but changes nothing there."""


class Attachment(Arguments, frozen=True, kw_only=True):
    """A file in the arguments."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "path": "works only with a server that the user runs locally (stdio) and that has FMSG_MCP_UPLOAD_DIR set. "
        "Use data_base64."
    }

    filename: Annotated[Filled, Meta(description="Bare name")]
    data_base64: Annotated[str, Meta(description="Content")]
    content_type: Annotated[Filled, Meta(description="Media type")] | None = None


class LocalAttachment(Arguments, frozen=True, kw_only=True):
    """A file in the arguments, or one below the operator's upload directory."""

    filename: Annotated[Filled, Meta(description="Bare name")] | None = None
    data_base64: Annotated[str, Meta(description="Content")] | None = None
    content_type: Annotated[Filled, Meta(description="Media type")] | None = None
    path: (
        Annotated[Filled, Meta(description="Instead of data_base64: a file in the operator's upload directory")] | None
    ) = None


class Sending(Arguments, frozen=True, kw_only=True):
    """What both ways of sending take."""

    body: Annotated[str, Meta(description="Text")]
    type: Annotated[Filled, Meta(description="Media type of the body")] = DEFAULT_TYPE
    important: Annotated[bool, Meta(description="Mark as important")] = False
    no_reply: Annotated[bool, Meta(description="Ask for no reply")] = False
    attachments: tuple[Attachment, ...] | tuple[LocalAttachment, ...] = ()
    idempotency_key: (
        Annotated[
            Filled, Meta(max_length=200, description="For safe retries: within a day the same key never sends twice")
        ]
        | None
    ) = None


class NewThread(Sending, frozen=True, kw_only=True):
    """A new thread."""

    to: Names
    topic: Annotated[str, Meta(description="Subject")] = ""


class SendMessage(NewThread, frozen=True, kw_only=True):
    """A new thread, with files in the arguments."""

    attachments: tuple[Attachment, ...] = ()


class SendMessageLocally(NewThread, frozen=True, kw_only=True):
    """A new thread, with files by path."""

    attachments: tuple[LocalAttachment, ...] = ()


class Answer(Sending, frozen=True, kw_only=True):
    """An answer."""

    id: Annotated[Reference, Meta(description="Message replied to")]
    recipients: Annotated[Names, Meta(description="Default: everybody who takes part in the message")] | None = None
    allow_no_reply: Annotated[bool, Meta(description="Reply although the message asks for none")] = False


class Reply(Answer, frozen=True, kw_only=True):
    """An answer, with files in the arguments."""

    attachments: tuple[Attachment, ...] = ()


class ReplyLocally(Answer, frozen=True, kw_only=True):
    """An answer, with files by path."""

    attachments: tuple[LocalAttachment, ...] = ()


async def _send_message(context: ToolContext, arguments: NewThread) -> ToolResult:
    to = resolve_all(context.directory, arguments.to, argument="to")

    async def prepare(uploads: Uploads) -> Outgoing:
        return compose(
            from_=context.caller.address,
            to=to,
            topic=arguments.topic,
            uploads=tuple(uploads.items),
            **_common(arguments),
        )

    return await _sent(context, arguments, prepare, about=("send_message", to))


async def _reply(context: ToolContext, arguments: Answer) -> ToolResult:
    parent_id = parse_reference(arguments.id)
    chosen = resolve_all(context.directory, arguments.recipients or (), argument="recipients")
    caller = context.caller

    async def prepare(uploads: Uploads) -> Outgoing:
        parent = await caller.api.message(parent_id)
        refuse_terminal(parent, "reply")
        refuse_no_reply(parent, allowed=arguments.allow_no_reply)
        to = chosen or reply_all(parent, caller.address)
        if not to:
            raise ToolFailure(
                "refused_here",
                f"Nobody but you takes part in message {parent_id}.",
                next_step="Pass recipients.",
                id=str(parent_id),
            )
        return compose(
            from_=caller.address,
            to=to,
            parent=parent_of(parent, caller.address),
            parent_id=parent_id,
            uploads=tuple(uploads.items),
            **_common(arguments),
        )

    return await _sent(context, arguments, prepare, about=("reply", parent_id, chosen))


def _common(arguments: Sending) -> dict[str, Any]:
    refuse_credential(arguments.type, argument="type")
    return {
        "body": arguments.body,
        "type_": arguments.type,
        "important": arguments.important,
        "no_reply": arguments.no_reply,
    }


def _topic(arguments: Sending) -> str:
    return arguments.topic if isinstance(arguments, NewThread) else ""


async def _sent(context: ToolContext, arguments: Sending, prepare: Prepare, *, about: tuple[Any, ...]) -> ToolResult:
    """Everything about the message is checked before a draft exists; then it goes out, or nothing is left of it."""
    caller = context.caller
    post = Post(api=caller.api, deferred=context.store.deferred, caller=caller.key)
    with await _uploads(context, arguments) as uploads:
        key = arguments.idempotency_key
        if key is None:
            outgoing = await prepare(uploads)
            return _result(context, outgoing, await post.deliver(outgoing))

        made: list[Outgoing] = []

        async def deliver(steps: Steps) -> Delivered:
            made.append(await prepare(uploads))
            return await post.deliver(made[0], steps)

        content = content_hash(caller.key, key, await _content(arguments, about, uploads))
        outcome = await Once(context.store.documents, post, key, content).run(deliver)
        if isinstance(outcome, Delivered):
            return _result(context, made[0], outcome)
        return await _repeated(context, arguments, outcome, parent_id=about[1] if about[0] == "reply" else None)


async def _uploads(context: ToolContext, arguments: Sending) -> Uploads:
    given = [msgspec.structs.asdict(item) for item in arguments.attachments]
    if any(item.get("path") for item in given) or not given:
        return take_uploads(given, within=context.settings.upload_dir)
    return await asyncio.to_thread(take_uploads, given, within=context.settings.upload_dir)


async def _content(arguments: Sending, about: tuple[Any, ...], uploads: Uploads) -> list[Any]:
    """What makes a message the same message, in one order."""
    files = [[upload.filename, upload.content_type, await upload.digest()] for upload in uploads.items]
    return [list(about), _topic(arguments), _common(arguments), files]


def _result(context: ToolContext, outgoing: Outgoing, delivered: Delivered) -> ToolResult:
    if outgoing.parent_id is None:
        TOPICS.put(context.caller.key, delivered.id, outgoing.topic)  # Its answers wake the caller next.
    fields: Fields = {
        "id": format_reference(delivered.id),
        "time": rfc3339(delivered.time_s),
        "from": outgoing.from_.lower(),
        "to": addresses(outgoing.to),
        "topic": outgoing.topic,
        "parent_id": reference(outgoing.parent_id),
        "attachments": attachment_items(delivered.attachments),
        "redactions": outgoing.redactions,
    }
    return _told("Sent", fields, no_reply=outgoing.no_reply)


async def _repeated(
    context: ToolContext, arguments: Sending, outcome: Repeated, *, parent_id: int | None
) -> ToolResult:
    """The first call's outcome, its details from the message on the host: no store keeps them."""
    message = await context.caller.api.message(outcome.id)
    known = compose(from_="", to=(), topic=_topic(arguments), body=arguments.body)
    fields: Fields = {
        "id": format_reference(outcome.id),
        "time": rfc3339(outcome.time_s),
        "from": visible(message.from_.lower()),
        "to": addresses(message.to),
        "topic": visible(message.topic or ""),
        "parent_id": reference(parent_id),
        "attachments": attachment_items(message.attachments),
        "redactions": known.redactions,
        "repeated": True,
    }
    return _told("This idempotency_key was used: a former call sent", fields, no_reply=message.no_reply)


def _told(verb: str, fields: Fields, *, no_reply: bool) -> ToolResult:
    text = _said(verb, fields)
    if not no_reply:
        # A wait without a position begins now: an answer that was faster than the next call would be missed.
        position = f'the after_id of your last wait, or "{fields["id"]}" without one'
        fields["next"] = f"Next, for an answer: wait_for_message with {position}."
        text += f" {fields['next']}"
    return ToolResult(structured=fields, text=text)


def _said(verb: str, fields: Fields) -> str:
    topic = f' "{visible(fields["topic"])}"' if fields["topic"] else ""
    parent = f" in reply to {fields['parent_id']}" if fields["parent_id"] else ""
    text = f"{verb} message {fields['id']}{topic}{parent} to {shown_addresses(fields['to'])} at {fields['time']}."
    if fields["attachments"]:
        files = ", ".join(f"{item['filename']} ({shown_size(item['size'])})" for item in fields["attachments"])
        text += f" Attached: {files}."
    if fields["redactions"]:
        text += f" Credentials replaced before sending: {fields['redactions']}."
    return text


_GIVES = schemas.result(
    {"repeated": schemas.FLAG, "next": schemas.TEXT},
    id=schemas.TEXT,
    time=schemas.TEXT,
    from_=schemas.TEXT,
    to=schemas.TEXTS,
    topic=schemas.TEXT,
    parent_id=schemas.TEXT_OR_NULL,
    attachments=schemas.ATTACHMENTS,
    redactions=schemas.WHOLE,
)
_FINAL = "A sent fmsg message cannot be edited or recalled."
"""FMSG-007, Annotations: said in the description of every tool that sends."""


def _send(takes: type[NewThread]) -> Tool:
    return define(
        _send_message,
        "send_message",
        "Send a message",
        f"Start a new thread; sends at once. {_FINAL}",
        takes=takes,
        gives=_GIVES,
        reads=False,
        destructive=True,
    )


def _answer(takes: type[Answer]) -> Tool:
    return define(
        _reply,
        "reply",
        "Reply to a message",
        f"Reply to a message; sends at once. {_FINAL}",
        takes=takes,
        gives=_GIVES,
        reads=False,
        destructive=True,
    )


SEND_MESSAGE, SEND_MESSAGE_LOCALLY = _send(SendMessage), _send(SendMessageLocally)
REPLY, REPLY_LOCALLY = _answer(Reply), _answer(ReplyLocally)
