"""``send_message`` and ``reply``: what goes out, at once and for good (FMSG-007, Core tools, Behavioural Rules)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from fmsg.errors import FmsgError
from fmsg.message import Message
from fmsg.reference import format_reference, parse_reference
from mcp_front import schemas
from mcp_front.failures import ToolFailure
from mcp_front.framing import visible
from mcp_front.render import (
    Fields,
    addresses,
    attachment_items,
    reference,
    rfc3339,
    shown_address,
    shown_addresses,
    shown_size,
)
from mcp_front.sending.compose import (
    DEFAULT_TYPE,
    Outgoing,
    cleaned,
    compose,
    measured,
    parent_of,
    refuse_no_reply,
    refuse_terminal,
    reply_all,
)
from mcp_front.sending.deliver import Delivered, Post, Steps
from mcp_front.sending.once import Once, Repeated, content_hash
from mcp_front.sending.stored import find
from mcp_front.sending.uploads import OnHost, Uploads, take_uploads
from mcp_front.tools.arguments import Arguments, Filled, Names, Reference
from mcp_front.tools.context import ToolContext
from mcp_front.tools.lists import delivery_items
from mcp_front.tools.names import Recipients, resolve_all
from mcp_front.tools.tool import Tool, ToolResult, define
from mcp_front.topics import TOPICS

Prepare = Callable[[Uploads], Awaitable[Outgoing]]
"""Makes the message; may ask the host, but changes nothing there."""


class AttachmentArgument(Arguments, frozen=True, kw_only=True):
    """A file in the arguments."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "path": "works only with a server that the user runs locally (stdio) and that has FMSG_MCP_UPLOAD_DIR set. "
        "Use data_base64."
    }

    filename: Annotated[Filled, Meta(description="Bare name")]
    data_base64: Annotated[str, Meta(description="Content")]
    content_type: Annotated[Filled, Meta(description="Media type")] | None = None


class HostedAttachment(Arguments, frozen=True, kw_only=True):
    """A file in the arguments, or one that was uploaded before."""

    elsewhere: ClassVar[Mapping[str, str]] = AttachmentArgument.elsewhere

    filename: Annotated[Filled, Meta(description="Bare name")]
    data_base64: Annotated[str, Meta(description="Content")] | None = None
    content_type: Annotated[Filled, Meta(description="Media type")] | None = None
    upload: (
        Annotated[Filled, Meta(description="Instead of data_base64: what PUT <this server>/uploads gave")] | None
    ) = None


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
    attachments: tuple[AttachmentArgument, ...] | tuple[HostedAttachment, ...] | tuple[LocalAttachment, ...] = ()
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

    attachments: tuple[AttachmentArgument, ...] = ()


class SendMessageHosted(NewThread, frozen=True, kw_only=True):
    """A new thread, with files that were uploaded before."""

    attachments: tuple[HostedAttachment, ...] = ()


class SendMessageLocally(NewThread, frozen=True, kw_only=True):
    """A new thread, with files by path."""

    attachments: tuple[LocalAttachment, ...] = ()


class ReplyArguments(Sending, frozen=True, kw_only=True):
    """An answer."""

    id: Annotated[Reference, Meta(description="Message replied to")]
    recipients: Annotated[Names, Meta(description="Default: everybody who takes part in the message")] | None = None
    allow_no_reply: Annotated[bool, Meta(description="Reply although the message asks for none")] = False


class Reply(ReplyArguments, frozen=True, kw_only=True):
    """An answer, with files in the arguments."""

    attachments: tuple[AttachmentArgument, ...] = ()


class ReplyHosted(ReplyArguments, frozen=True, kw_only=True):
    """An answer, with files that were uploaded before."""

    attachments: tuple[HostedAttachment, ...] = ()


class ReplyLocally(ReplyArguments, frozen=True, kw_only=True):
    """An answer, with files by path."""

    attachments: tuple[LocalAttachment, ...] = ()


async def _send_message(context: ToolContext, arguments: NewThread) -> ToolResult:
    to = resolve_all(context.directory, arguments.to, argument="to")

    async def prepare(uploads: Uploads) -> Outgoing:
        return await compose(
            from_=context.caller.address,
            to=to.addresses,
            topic=arguments.topic,
            uploads=tuple(uploads.items),
            **_common(arguments),
        )

    return await _sent(context, arguments, prepare, to, about=("send_message", to.addresses), parent_id=None)


async def _reply(context: ToolContext, arguments: ReplyArguments) -> ToolResult:
    parent_id = parse_reference(arguments.id)
    chosen = resolve_all(context.directory, arguments.recipients or (), argument="recipients")
    caller = context.caller

    async def prepare(uploads: Uploads) -> Outgoing:
        parent = await caller.api.message(parent_id)
        refuse_terminal(parent, "reply")
        refuse_no_reply(parent, allowed=arguments.allow_no_reply)
        to = chosen.addresses or reply_all(parent, caller.address)
        if not to:
            raise ToolFailure(
                "refused_here",
                f"Nobody but you takes part in message {parent_id}.",
                next_step="Pass recipients.",
                id=str(parent_id),
            )
        return await compose(
            from_=caller.address,
            to=to,
            parent=parent_of(parent, caller.address),
            parent_id=parent_id,
            uploads=tuple(uploads.items),
            **_common(arguments),
        )

    about = ("reply", parent_id, chosen.addresses)
    return await _sent(context, arguments, prepare, chosen, about=about, parent_id=parent_id)


def _common(arguments: Sending) -> dict[str, Any]:
    return {
        "body": arguments.body,
        "type_": arguments.type,
        "important": arguments.important,
        "no_reply": arguments.no_reply,
    }


def _topic(arguments: Sending) -> str:
    return arguments.topic if isinstance(arguments, NewThread) else ""


async def _sent(
    context: ToolContext,
    arguments: Sending,
    prepare: Prepare,
    names: Recipients,
    *,
    about: tuple[Any, ...],
    parent_id: int | None,
) -> ToolResult:
    """Everything about the message is checked before a draft exists; then it goes out, or nothing is left of it."""
    caller = context.caller
    post = Post(api=caller.api, deferred=context.store.deferred, caller=caller.key)
    with await _uploads(context, arguments) as uploads:
        key = arguments.idempotency_key
        if key is None:
            outgoing = await prepare(uploads)
            return await _result(context, outgoing, await post.deliver(outgoing), names)

        made: list[Outgoing] = []

        async def deliver(steps: Steps) -> Delivered:
            made.append(await prepare(uploads))
            return await post.deliver(made[0], steps)

        content = content_hash(caller.key, key, await _content(arguments, about, uploads))
        outcome = await Once(context.store.documents, post, key, content).run(deliver)
        if isinstance(outcome, Delivered):
            return await _result(context, made[0], outcome, names)
        return await _repeated(context, arguments, outcome, names, parent_id=parent_id)


async def _uploads(context: ToolContext, arguments: Sending) -> Uploads:
    given = [msgspec.structs.asdict(item) for item in arguments.attachments]
    on_host = {
        item["upload"]: OnHost(
            context.caller.api,
            await find(context.caller.api, item["upload"], argument=f"attachments[{index}].upload"),
        )
        for index, item in enumerate(given)
        if item.get("upload")
    }
    return await take_uploads(given, within=context.settings.upload_dir, on_host=on_host)


async def _content(arguments: Sending, about: tuple[Any, ...], uploads: Uploads) -> list[Any]:
    """What makes a message the same message, in one order."""
    files = [[upload.filename, upload.content_type, await upload.digest()] for upload in uploads.items]
    _, body = await measured(arguments.body, argument="body")
    return [list(about), _topic(arguments), _common(arguments) | {"body": body}, files]


async def _result(context: ToolContext, outgoing: Outgoing, delivered: Delivered, names: Recipients) -> ToolResult:
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
    fields |= _redacted(outgoing.redacted) | names.fields()
    refused = await _refused_at_once(context, outgoing.to, delivered.id)
    return _told("Sent", fields, refused, no_reply=outgoing.no_reply)


async def _repeated(
    context: ToolContext, arguments: Sending, outcome: Repeated, names: Recipients, *, parent_id: int | None
) -> ToolResult:
    """The first call's outcome, its details from the message on the host: no store keeps them."""
    message = await context.caller.api.message(outcome.id)
    topic, body = await cleaned(_topic(arguments)), await cleaned(arguments.body)
    fields: Fields = {
        "id": format_reference(outcome.id),
        "time": rfc3339(outcome.time_s),
        "from": visible(message.from_.lower()),
        "to": addresses(message.to),
        "topic": visible(message.topic or ""),
        "parent_id": reference(parent_id),
        "attachments": attachment_items(message.attachments),
        "redactions": topic.count + body.count,
    }
    fields |= _redacted(topic.kinds | body.kinds) | names.fields() | {"repeated": True}
    verb = "This idempotency_key was used: a former call sent"
    return _told(verb, fields, _refused(message), no_reply=message.no_reply)


def _redacted(kinds: frozenset[str]) -> Fields:
    return {"redacted": sorted(kinds)} if kinds else {}


async def _refused_at_once(context: ToolContext, to: Sequence[str], message_id: int) -> list[Fields]:
    """Recipients that the caller's own host has refused already. It decides on its own addresses while it sends."""
    own_domain = context.caller.address.lower().rpartition("@")[2]
    if all(address.lower().rpartition("@")[2] != own_domain for address in to):
        return []
    try:
        return _refused(await context.caller.api.message(message_id))
    except FmsgError:
        return []  # The message is out, whatever the host says of it now.


def _refused(message: Message) -> list[Fields]:
    return [item for item in delivery_items(message) if item["status"] == "failed"]


def _told(verb: str, fields: Fields, refused: list[Fields], *, no_reply: bool) -> ToolResult:
    text = _said(verb, fields)
    if refused:
        fields["refused"] = refused
        told = "; ".join(
            f"{shown_address(item['addr'])}: code {item['code']} {item.get('meaning', '')}, {item.get('advice', '')}"
            for item in refused
        )
        text += f" The host refused {told}."
    following = f'delivery_status with id "{fields["id"]}" tells who got it.'
    if not no_reply:
        # A wait without a position begins now: an answer that was faster than the next call would be missed.
        position = f'the after_id of your last wait, or "{fields["id"]}" without one'
        following = f"For an answer: wait_for_message with {position}. {following}"
    fields["next"] = following
    return ToolResult(structured=fields, text=f"{text} {following}")


def _said(verb: str, fields: Fields) -> str:
    topic = f' "{visible(fields["topic"])}"' if fields["topic"] else ""
    parent = f" in reply to {fields['parent_id']}" if fields["parent_id"] else ""
    text = f"{verb} message {fields['id']}{topic}{parent} to {shown_addresses(fields['to'])} at {fields['time']}."
    if fields["attachments"]:
        files = ", ".join(f"{item['filename']} ({shown_size(item['size'])})" for item in fields["attachments"])
        text += f" Attached: {files}."
    if fields["redactions"]:
        text += f" Credentials replaced before sending: {fields['redactions']} ({', '.join(fields['redacted'])})."
    return text


_GIVES = schemas.result(
    {"repeated": schemas.FLAG, "redacted": schemas.TEXTS, "resolved": schemas.ANYTHING, "refused": schemas.ANYTHING},
    id=schemas.TEXT,
    time=schemas.TEXT,
    from_=schemas.TEXT,
    to=schemas.TEXTS,
    topic=schemas.TEXT,
    parent_id=schemas.TEXT_OR_NULL,
    attachments=schemas.ATTACHMENTS,
    redactions=schemas.WHOLE,
    next=schemas.TEXT,
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


def _answer(takes: type[ReplyArguments]) -> Tool:
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
SEND_MESSAGE_HOSTED, REPLY_HOSTED = _send(SendMessageHosted), _answer(ReplyHosted)
