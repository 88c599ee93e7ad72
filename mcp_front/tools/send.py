"""``send_message`` and ``reply``: what goes out, at once and for good (FMSG-007, Core tools, Behavioural Rules)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

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
from mcp_front.tools.context import ToolContext
from mcp_front.tools.names import resolve_all
from mcp_front.tools.tool import Tool, ToolResult, define
from mcp_front.topics import TOPICS

Prepare = Callable[[Uploads], Awaitable[Outgoing]]
"""Makes the message; may ask the host, but changes nothing there."""


async def _send_message(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    to = resolve_all(context.directory, arguments["to"], argument="to")

    async def prepare(uploads: Uploads) -> Outgoing:
        return compose(
            from_=context.caller.address,
            to=to,
            topic=arguments.get("topic", ""),
            uploads=tuple(uploads.items),
            **_common(arguments),
        )

    return await _sent(context, arguments, prepare, about=("send_message", to))


async def _reply(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    parent_id = parse_reference(arguments["id"])
    chosen = resolve_all(context.directory, arguments.get("recipients", ()), argument="recipients")
    caller = context.caller

    async def prepare(uploads: Uploads) -> Outgoing:
        parent = await caller.api.message(parent_id)
        refuse_terminal(parent, "reply")
        refuse_no_reply(parent, allowed=arguments.get("allow_no_reply", False))
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


def _common(arguments: Mapping[str, Any]) -> dict[str, Any]:
    refuse_credential(arguments.get("type", ""), argument="type")
    return {
        "body": arguments["body"],
        "type_": arguments.get("type", DEFAULT_TYPE),
        "important": arguments.get("important", False),
        "no_reply": arguments.get("no_reply", False),
    }


async def _sent(
    context: ToolContext, arguments: Mapping[str, Any], prepare: Prepare, *, about: tuple[Any, ...]
) -> ToolResult:
    """Everything about the message is checked before a draft exists; then it goes out, or nothing is left of it."""
    caller = context.caller
    post = Post(api=caller.api, deferred=context.store.deferred, caller=caller.key)
    with await _uploads(context, arguments) as uploads:
        key = arguments.get("idempotency_key")
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


async def _uploads(context: ToolContext, arguments: Mapping[str, Any]) -> Uploads:
    given = arguments.get("attachments", ())
    if any("path" in item for item in given) or not given:
        return take_uploads(given, within=context.settings.upload_dir)
    return await asyncio.to_thread(take_uploads, given, within=context.settings.upload_dir)


async def _content(arguments: Mapping[str, Any], about: tuple[Any, ...], uploads: Uploads) -> list[Any]:
    """What makes a message the same message, in one order."""
    files = [[upload.filename, upload.content_type, await upload.digest()] for upload in uploads.items]
    return [list(about), arguments.get("topic", ""), _common(arguments), files]


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
    context: ToolContext, arguments: Mapping[str, Any], outcome: Repeated, *, parent_id: int | None
) -> ToolResult:
    """The first call's outcome, its details from the message on the host: no store keeps them."""
    message = await context.caller.api.message(outcome.id)
    known = compose(from_="", to=(), topic=arguments.get("topic", ""), body=arguments["body"])
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


_FILE: dict[str, schemas.Schema] = {
    "filename": schemas.text("Bare name"),
    "data_base64": schemas.text("Content"),
    "content_type": schemas.text("Media type"),
}


def _attachments(*, by_path: bool) -> schemas.Schema:
    if by_path:
        path = schemas.text("Instead of data_base64: a file in the operator's upload directory")
        return schemas.array(schemas.closed((), **_FILE, path=path))
    return schemas.array(schemas.closed(("filename", "data_base64"), **_FILE))


def _takes(required: tuple[str, ...], *, by_path: bool, **first: schemas.Schema) -> schemas.Schema:
    return schemas.closed(
        required,
        **first,
        type=schemas.text("Media type of the body", default=DEFAULT_TYPE),
        important=schemas.flag("Mark as important"),
        no_reply=schemas.flag("Ask for no reply"),
        attachments=_attachments(by_path=by_path),
        idempotency_key=schemas.text(
            "For safe retries: within a day the same key never sends twice", minLength=1, maxLength=200
        ),
    )


def _send_takes(*, by_path: bool) -> schemas.Schema:
    return _takes(
        ("to", "body"),
        by_path=by_path,
        to=schemas.array(schemas.ADDRESS, minItems=1),
        topic=schemas.text("Subject"),
        body=schemas.text("Text"),
    )


def _reply_takes(*, by_path: bool) -> schemas.Schema:
    return _takes(
        ("id", "body"),
        by_path=by_path,
        id=schemas.reference("Message replied to"),
        body=schemas.text("Text"),
        recipients=schemas.array(
            schemas.ADDRESS, minItems=1, description="Default: everybody who takes part in the message"
        ),
        allow_no_reply=schemas.flag("Reply although the message asks for none"),
    )


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


def _tool(name: str, description: str, takes: Callable[..., schemas.Schema], run: Any) -> Tool:
    def definition(*, by_path: bool) -> Any:
        return define(
            name, f"{description} {_FINAL}", takes=takes(by_path=by_path), gives=_GIVES, reads=False, destructive=True
        )

    return Tool(definition=definition(by_path=False), over_stdio=definition(by_path=True), run=run)


SEND_MESSAGE = _tool("send_message", "Start a new thread; sends at once.", _send_takes, _send_message)
REPLY = _tool("reply", "Reply to a message; sends at once.", _reply_takes, _reply)
