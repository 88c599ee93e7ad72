"""``download_attachment``: the bytes inline up to a cap, or into a file in the stdio profile (FMSG-007, Downloads)."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

import mcp_types
from msgspec import Meta

from fmsg.errors import NotFound
from fmsg.reference import format_reference, parse_reference
from fmsg.transfer import Download
from mcp_front import schemas
from mcp_front.bodies import decoded
from mcp_front.failures import ToolFailure, failure_of
from mcp_front.framing import STATEMENT, Report, quoted, visible
from mcp_front.render import media_type, shown_size, text_like
from mcp_front.tools.arguments import Arguments, Filled, Reference
from mcp_front.tools.context import ToolContext
from mcp_front.tools.saving import Target
from mcp_front.tools.tool import Block, ToolResult, define

INLINE_BYTES = 1024 * 1024
"""Given inline unless the caller allows more: base64 of it is what hosts still take into a conversation."""
MOST_INLINE_BYTES = 32 * 1024 * 1024
"""Held in memory, several times over, by a process that serves others too."""

SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that models see; other images go as resources."""

UNKNOWN_TYPE = "application/octet-stream"


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
    try:
        return await _downloaded(context, arguments)
    except NotFound as error:
        failure = failure_of(error)
        failure.next_step = "Check id and filename; get_message names the attachments of a message."
        raise failure from None


async def _downloaded(context: ToolContext, arguments: DownloadAttachment) -> ToolResult:
    message_id = parse_reference(arguments.id)
    save_to = arguments.save_to if isinstance(arguments, DownloadOrSave) else None
    below = context.settings.download_dir
    filename = await _stored_name(context, message_id, arguments.filename)
    if save_to is None or below is None:
        most = arguments.max_inline_bytes
        async with context.caller.api.attachment(message_id, filename) as download:
            data = await _inline(download, most, transport=context.caller.transport)
        return _shown(message_id, filename, _type_of(filename, download), data)
    with closing(Target(save_to, within=below)) as target:
        async with context.caller.api.attachment(message_id, filename) as download:
            size = await target.write(download)
        return _saved(message_id, filename, _type_of(filename, download), size, target.path)


async def _stored_name(context: ToolContext, message_id: int, filename: str) -> str:
    """The name as the host has it: results show ``<U+202E>`` for what would not show, and a caller gives that back."""
    if "<U+" not in filename:
        return filename
    message = await context.caller.api.message(message_id)
    names = [info.filename for info in message.attachments or ()]
    if filename in names:
        return filename
    return next((name for name in names if visible(name) == filename), filename)


async def _inline(download: Download, most_bytes: int, *, transport: str) -> bytes:
    size = download.size
    chunks: list[bytes] = []
    held = 0
    if size is None or size <= most_bytes:
        async for chunk in download.chunks:
            held += len(chunk)
            if held > most_bytes:
                break
            chunks.append(chunk)
        else:
            return b"".join(chunks)
    ways = f"Pass a larger max_inline_bytes (at most {MOST_INLINE_BYTES})"
    raise ToolFailure(
        "refused_here",
        f"The attachment is {f'{size} bytes' if size is not None else 'larger'}, max_inline_bytes is {most_bytes}.",
        next_step=f"{ways} or save_to." if transport == "stdio" else f"{ways}.",
        size=size,
    )


def _type_of(filename: str, download: Download) -> str:
    """Hosts store every attachment as ``application/octet-stream``: then the name tells, as where it is no type."""
    stated = download.content_type.partition(";")[0].strip().lower()
    if stated != UNKNOWN_TYPE and media_type(stated):
        return stated
    return mimetypes.guess_type(filename)[0] or UNKNOWN_TYPE


def _shown(message_id: int, filename: str, content_type: str, data: bytes) -> ToolResult:
    report = Report()
    report.cite(f"Attachment {quoted(filename)} of message {message_id}: {content_type}, {shown_size(len(data))}.")
    blocks: tuple[Block, ...] = ()
    fields = _fields(message_id, filename, content_type, len(data), saved_to=None)
    text = _as_text(content_type, data)
    if text is not None:
        report.fence(text)
        fields["text"] = text
    elif content_type in SHOWN_IMAGES:
        blocks = (mcp_types.ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=content_type),)
    else:
        blocks = (
            mcp_types.EmbeddedResource(
                type="resource",
                resource=mcp_types.BlobResourceContents(
                    uri=f"fmsg://message/{message_id}/attachment/{quote(filename, safe='')}",
                    mime_type=content_type,
                    blob=base64.b64encode(data).decode(),
                ),
            ),
        )
    return ToolResult(structured=fields, text=report.text(), blocks=blocks)


def _as_text(content_type: str, data: bytes) -> str | None:
    """The attachment as text, if it is some: of a text-like type and valid UTF-8."""
    if not text_like(content_type):
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return decoded(data, more=False)


def _saved(message_id: int, filename: str, content_type: str, size: int, path: str) -> ToolResult:
    report = Report()
    report.cite(
        f"Saved attachment {quoted(filename)} of message {message_id} ({content_type}, {shown_size(size)}) to {path}."
    )
    return ToolResult(structured=_fields(message_id, filename, content_type, size, saved_to=path), text=report.text())


def _fields(message_id: int, filename: str, content_type: str, size: int, *, saved_to: str | None) -> dict[str, Any]:
    return {
        "notice": STATEMENT,
        "id": format_reference(message_id),
        "filename": visible(filename),
        "size": size,
        "content_type": visible(content_type),
        "saved_to": saved_to,
    }


_GIVES = schemas.result(
    schemas.NOTICE | {"text": schemas.TEXT},
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
    "An attachment's content: text as text, images as images, the rest as an embedded resource.",
    takes=DownloadAttachment,
    gives=_GIVES,
    reads=True,
)
DOWNLOAD_OR_SAVE = define(
    _download_attachment,
    "download_attachment",
    "Get or save an attachment",
    "An attachment's content: text as text, images as images, the rest as an embedded resource. Or save_to writes it "
    "to a new file.",
    takes=DownloadOrSave,
    gives=_GIVES,
    reads=False,
)
"""It writes files, so it is not read-only: offered only where the operator has named a directory."""
