"""``download_attachment``: the bytes inline up to a cap, or into a file in the stdio profile (FMSG-007, Downloads)."""

from __future__ import annotations

import base64
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

import mcp_types
import msgspec
from msgspec import Meta

from fmsg.errors import FmsgError, NotFound
from fmsg.pieces import in_pieces
from fmsg.redact import redact_long
from fmsg.reference import format_reference, parse_reference
from fmsg.transfer import Download, meant_name
from mcp_front import schemas
from mcp_front.bodies import read_text
from mcp_front.failures import ToolFailure, failure_of
from mcp_front.files import Target
from mcp_front.framing import STATEMENT, Clean, Report, quoted, visible
from mcp_front.render import file_type, shown_size, text_like
from mcp_front.tools.arguments import Arguments, Filled, Reference
from mcp_front.tools.context import ToolContext
from mcp_front.tools.tool import Block, ToolResult, define

INLINE_BYTES = 1024 * 1024
"""Given inline unless the caller allows more: base64 of it is what hosts still take into a conversation."""
MOST_INLINE_BYTES = 32 * 1024 * 1024
"""Held in memory, several times over, by a process that serves others too."""

SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that models see; other images go as resources."""

MIRRORED_CHARS = 64 * 1024
"""A text up to this size is in the structured content as well, which is all that some hosts show to a model. A larger
one is in the embedded resource alone."""

SHOWN_NAMES = 20
"""Of a message's attachments, where the one that was asked for is not among them."""

BASE64_PIECE_BYTES = 3 * 256 * 1024
"""Encoded at once: about a millisecond. Three bytes are four characters."""


class DownloadAttachment(Arguments, frozen=True, kw_only=True):
    """Which attachment, and how much of it."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "save_to": "works only with a server that the user runs locally (stdio) and that has FMSG_MCP_DOWNLOAD_DIR "
        "set. Leave it out."
    }

    id: Annotated[Reference, Meta(description="Message id")]
    filename: Annotated[Filled, Meta(description="As its attachments list it")]
    max_inline_bytes: Annotated[int, Meta(ge=0, le=MOST_INLINE_BYTES, description="Refuse to inline more")] = (
        INLINE_BYTES
    )


class DownloadOrSave(DownloadAttachment, frozen=True, kw_only=True):
    """Which attachment, and where to."""

    save_to: (
        Annotated[Filled, Meta(description="Absolute path of a new file in the operator's download directory")] | None
    ) = None


async def _download_attachment(context: ToolContext, arguments: DownloadAttachment) -> ToolResult:
    message_id = parse_reference(arguments.id)
    try:
        return await _downloaded(context, arguments, message_id, arguments.filename)
    except NotFound as error:
        filename = await _stored_name(context, message_id, arguments.filename, error)
    return await _downloaded(context, arguments, message_id, filename)


async def _downloaded(
    context: ToolContext, arguments: DownloadAttachment, message_id: int, filename: str
) -> ToolResult:
    save_to = arguments.save_to if isinstance(arguments, DownloadOrSave) else None
    below = context.settings.download_dir
    if save_to is None or below is None:
        stated, data = await _fetched(context, message_id, filename, arguments)
        attachment = _Attachment(message_id, filename, file_type(filename, stated), len(data))
        link = attachment_url(context, message_id, filename)
        return await _shown(attachment, data, stated=stated, saves=isinstance(arguments, DownloadOrSave), link=link)
    with closing(Target(save_to, within=below)) as target:
        async with context.caller.api.attachment(message_id, filename) as download:
            size = await target.write(download.chunks)
        return _saved(_Attachment(message_id, filename, file_type(filename, download.content_type), size), target.path)


async def _fetched(
    context: ToolContext, message_id: int, filename: str, arguments: DownloadAttachment
) -> tuple[str, bytes]:
    """The type as the host states it and the bytes, whose memory is reserved before they are asked for."""
    reserved = most = arguments.max_inline_bytes
    await context.answer.reserve(reserved)
    try:
        async with context.caller.api.attachment(message_id, filename) as download:
            if download.size is not None and download.size < reserved:
                context.answer.return_unused(reserved - download.size)
                reserved = download.size
            link = attachment_url(context, message_id, filename)
            data = await _inline(download, most, saves=isinstance(arguments, DownloadOrSave), link=link)
    except BaseException:
        context.answer.return_unused(reserved)
        raise
    return download.content_type, data


async def _stored_name(context: ToolContext, message_id: int, given: str, missed: NotFound) -> str:
    """The name as the host has it, for one that a result shows or a model writes in another form.

    Raises `ToolFailure` that lists the names there are.
    """
    failure = failure_of(missed)
    failure.next_step = "Check id and filename; get_message names the attachments of a message."
    try:
        message = await context.caller.api.message(message_id)
    except FmsgError:
        raise failure from None
    names = [info.filename for info in message.attachments or ()]
    meant = meant_name(given, names, shown=visible)
    if meant is not None and meant != given:
        return meant
    shown = ", ".join(quoted(name) for name in names[:SHOWN_NAMES])
    failure.next_step = f"The message has {shown}." if names else "The message has no attachments."
    raise failure


async def _inline(download: Download, most_bytes: int, *, saves: bool, link: str | None) -> bytes:
    size = download.size
    data = bytearray()
    if size is None or size <= most_bytes:
        async for chunk in download.chunks:
            data += chunk
            if len(data) > most_bytes:
                break
        else:
            return bytes(data)
    ways = f"Pass a larger max_inline_bytes (at most {MOST_INLINE_BYTES})"
    raise ToolFailure(
        "refused_here",
        f"The attachment is {f'{size} bytes' if size is not None else 'larger'}, max_inline_bytes is {most_bytes}.",
        next_step=f"{ways} or save_to."
        if saves
        else f"{ways}, or let a program GET {link} with the same credentials."
        if link
        else f"{ways}.",
        size=size,
    )


class _Attachment(msgspec.Struct, frozen=True):
    message_id: int
    filename: str
    content_type: str
    size: int

    @property
    def uri(self) -> str:
        return f"fmsg://message/{self.message_id}/attachment/{quote(self.filename, safe='')}"

    def fields(self, *, saved_to: str | None) -> dict[str, Any]:
        return {
            "notice": STATEMENT,
            "id": format_reference(self.message_id),
            "filename": visible(self.filename),
            "size": self.size,
            "content_type": visible(self.content_type),
            "saved_to": saved_to,
        }


async def _shown(attachment: _Attachment, data: bytes, *, stated: str, saves: bool, link: str | None) -> ToolResult:
    report = Report()
    fields = attachment.fields(saved_to=None)
    report.cite(
        f"Attachment {quoted(attachment.filename)} of message {attachment.message_id}: {attachment.content_type}, "
        f"{shown_size(attachment.size)}; its content follows."
    )
    text = await _as_text(attachment.content_type, data, stated=stated)
    if text is None:
        encoded = await in_pieces(_base64(data))
        blob = mcp_types.BlobResourceContents(uri=attachment.uri, mime_type=attachment.content_type, blob=encoded)
        blocks: list[Block] = [mcp_types.EmbeddedResource(type="resource", resource=blob)]
        if attachment.content_type in SHOWN_IMAGES:
            image = mcp_types.ImageContent(type="image", data=encoded, mime_type=attachment.content_type)
            blocks.insert(0, image)
        return ToolResult(structured=fields, text=report.text(), blocks=(*blocks, *_links(attachment, link)))
    text, redactions = await redact_long(text)
    if redactions:
        fields["redactions"] = redactions
        unchanged = "A server with FMSG_MCP_DOWNLOAD_DIR can save them"
        if saves:
            unchanged = "save_to writes them unchanged"
        elif link is not None:
            unchanged = "The link gives them unchanged"
        report.say(f"Credentials replaced: {redactions}. These are not the file's own bytes. {unchanged}.")
    if len(text) <= MIRRORED_CHARS:
        fields["text"] = Clean(text)
    contents = mcp_types.TextResourceContents(uri=attachment.uri, mime_type=attachment.content_type, text=text)
    return ToolResult(
        structured=fields,
        text=report.text(),
        blocks=(mcp_types.EmbeddedResource(type="resource", resource=contents), *_links(attachment, link)),
    )


def attachment_url(context: ToolContext, message_id: int, filename: str) -> str | None:
    """Where a program gets the file itself, with the same credentials; None where the server knows no own URL."""
    endpoint = context.settings.endpoint_url
    if endpoint is None:
        return None
    return f"{endpoint}/attachments/{format_reference(message_id)}/{quote(filename, safe='')}"


def _links(attachment: _Attachment, link: str | None) -> tuple[Block, ...]:
    if link is None:
        return ()
    shown = mcp_types.ResourceLink(
        type="resource_link",
        uri=link,
        name=visible(attachment.filename),
        mime_type=attachment.content_type,
        size=attachment.size,
    )
    return (shown,)


async def _as_text(content_type: str, data: bytes, *, stated: str) -> str | None:
    """The attachment as text, if it is some: of a text-like type, in UTF-8 or in the stated character set."""
    found = await read_text(data, stated) if text_like(content_type) else None
    return None if found is None or found.unread else found.text


def _base64(data: bytes) -> Generator[None, None, str]:
    parts = []
    for start in range(0, len(data), BASE64_PIECE_BYTES):
        parts.append(base64.b64encode(data[start : start + BASE64_PIECE_BYTES]).decode())
        yield
    return "".join(parts)


def _saved(attachment: _Attachment, path: str) -> ToolResult:
    report = Report()
    report.cite(
        f"Saved attachment {quoted(attachment.filename)} of message {attachment.message_id} "
        f"({attachment.content_type}, {shown_size(attachment.size)}) to {path}."
    )
    return ToolResult(structured=attachment.fields(saved_to=path), text=report.text())


_GIVES = schemas.result(
    schemas.NOTICE | {"text": schemas.TEXT, "redactions": schemas.WHOLE},
    id=schemas.TEXT,
    filename=schemas.TEXT,
    size=schemas.WHOLE,
    content_type=schemas.TEXT,
    saved_to=schemas.TEXT_OR_NULL,
)

DOWNLOAD_ATTACHMENT = define(
    _download_attachment,
    "download_attachment",
    "Get an attachment",
    "An attachment's content as an embedded resource: text as text, the rest as base64; an image also as an image.",
    takes=DownloadAttachment,
    gives=_GIVES,
    reads=True,
)
DOWNLOAD_OR_SAVE = define(
    _download_attachment,
    "download_attachment",
    "Get or save an attachment",
    "An attachment's content as an embedded resource: text as text, the rest as base64; an image also as an image. "
    "Or save_to writes it to a new file.",
    takes=DownloadOrSave,
    gives=_GIVES,
    reads=False,
)
"""It writes files, so it is not read-only: offered only where the operator has named a directory."""
