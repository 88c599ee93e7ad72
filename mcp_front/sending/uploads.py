"""Attachments on their way in: from base64 or from files below the operator's directory; checked before a draft."""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import mimetypes
import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fmsg.errors import BadInput
from fmsg.pieces import at_once, in_pieces
from fmsg.redact import redact
from fmsg.transfer import check_filename, check_media_type
from mcp_front.files import open_file
from mcp_front.shield import shielded

if TYPE_CHECKING:
    from fmsg.webapi import WebApi

CHUNK_BYTES = 256 * 1024
"""Read from a file at a time: few enough hops between threads, little enough memory."""

DIGEST_BYTES = 256 * 1024 * 1024
"""Of a file: more than hosts take, half a second of work. A file of a terabyte, which a sparse one is at no cost, would
be read for an hour before the host is asked and refuses it."""

STORED_NAME = "upload"
"""What an upload is called on its draft. The message that takes it gives it the name that recipients see."""

PIECE_CHARS = 256 * 1024
"""Of base64 decoded at once: less than a millisecond."""

UPLOAD_VARIABLE = "FMSG_MCP_UPLOAD_DIR"
"""The setting that allows attachments by path."""


class OnHost:
    """Content that was uploaded before: it rests on a draft of the caller's (`mcp_front.sending.stored`)."""

    def __init__(self, api: WebApi, draft_id: int) -> None:
        self.api = api
        self.draft_id = draft_id


class Upload:
    """One attachment: a name, a media type, and bytes at hand or an open file."""

    def __init__(self, filename: str, content_type: str, content: bytes | int | OnHost) -> None:
        self.filename = filename
        self.content_type = content_type
        self._content = content

    def content(self) -> bytes | AsyncIterator[bytes]:
        """The bytes, or the file's from its beginning."""
        if isinstance(self._content, OnHost):
            return _from_host(self._content)
        return self._content if isinstance(self._content, bytes) else _chunks(self._content)

    async def digest(self) -> str:
        """SHA-256 of the bytes, as hexadecimal digits; of a file beyond `DIGEST_BYTES`, of its size and beginning."""
        if isinstance(self._content, OnHost):
            return f"upload {self._content.draft_id}"
        if isinstance(self._content, bytes):
            return (await asyncio.to_thread(hashlib.sha256, self._content)).hexdigest()
        found, read = hashlib.sha256(), 0
        async with aclosing(_chunks(self._content)) as chunks:
            async for chunk in chunks:
                found.update(chunk)
                read += len(chunk)
                if read >= DIGEST_BYTES:
                    found.update(f"size {os.fstat(self._content).st_size}".encode())
                    break
        return found.hexdigest()

    def close(self) -> None:
        """Let go of the file."""
        if isinstance(self._content, int):
            os.close(self._content)


class Uploads(AbstractContextManager["Uploads"]):
    """The attachments of one message, in order; a context manager that closes their files."""

    def __init__(self) -> None:
        self.items: list[Upload] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for upload in self.items:
            upload.close()
        self.items.clear()


async def take_uploads(
    given: Sequence[Mapping[str, Any]], *, within: Path | None, on_host: Mapping[str, OnHost] | None = None
) -> Uploads:
    """The attachments of a call's arguments. Raises `BadInput` naming the item; then nothing stays open.

    ``within`` is the directory below which ``path`` may lie; None where no path is allowed. ``on_host`` has the uploads
    that the arguments name by handle.
    """
    uploads = Uploads()
    names: set[str] = set()
    try:
        for index, item in enumerate(given):
            upload = await _take(item, argument=f"attachments[{index}]", within=within, on_host=on_host or {})
            uploads.items.append(upload)
            if upload.filename in names:
                raise BadInput(
                    f"attachments[{index}].filename: {upload.filename[:60]!r} is named twice, and the host would keep "
                    "only the last. Give each attachment its own name."
                )
            names.add(upload.filename)
    except BaseException:
        uploads.__exit__(None, None, None)
        raise
    return uploads


async def _take(
    item: Mapping[str, Any], *, argument: str, within: Path | None, on_host: Mapping[str, OnHost]
) -> Upload:
    data: str | None = item.get("data_base64")
    path: str | None = item.get("path")
    handle: str | None = item.get("upload")
    if [data, path, handle].count(None) != 2:
        other = " or path" if within else " or upload" if "upload" in item else ""
        raise BadInput(f"{argument}.data_base64: the content is needed once: data_base64{other}.")
    filename = item.get("filename") or os.path.basename(path or "")
    _check_name(filename, argument=f"{argument}.filename")
    content_type = item.get("content_type") or mimetypes.guess_type(filename)[0] or "application/octet-stream"
    check_media_type(content_type, name=f"{argument}.content_type")
    refuse_credential(content_type, argument=f"{argument}.content_type")
    if handle is not None:
        return Upload(filename, content_type, on_host[handle])
    if path is None:
        return Upload(filename, content_type, await strict_base64(data or "", argument=f"{argument}.data_base64"))
    argument = f"{argument}.path"
    if within is None:
        raise BadInput(f"{argument}: {UPLOAD_VARIABLE} is not set, so no file may be sent by path. Use data_base64.")
    return Upload(filename, content_type, open_file(path, within=within, argument=argument, variable=UPLOAD_VARIABLE))


def _check_name(filename: str, *, argument: str) -> None:
    if "/" in filename or "\\" in filename:
        raise BadInput(f"{argument}: {filename[:60]!r} has path parts. Give the bare name of the file.")
    check_filename(filename, name=argument)
    refuse_credential(filename, argument=argument)


def refuse_credential(text: str, *, argument: str) -> None:
    """What goes out beside topic and body cannot have a part replaced. Raises `BadInput` naming the argument."""
    if redact(text)[1]:
        raise BadInput(f"{argument}: holds a credential, which cannot be recalled once it is sent. Write it without.")


async def strict_base64(text: str, *, argument: str) -> bytes:
    """The bytes of standard base64 with padding. Line breaks and blanks, as common tools print them, are passed over.

    Raises `BadInput` naming the argument.
    """
    work = _decoding(text)
    data = at_once(work) if len(text) <= PIECE_CHARS else await in_pieces(work)
    if data is None:
        raise BadInput(f"{argument}: is not standard base64 with padding (A-Z a-z 0-9 + / =, no data: prefix).")
    return data


def _decoding(text: str) -> Generator[None, None, bytes | None]:
    parts: list[bytes] = []
    left_over, ended = "", False
    for start in range(0, len(text), PIECE_CHARS):
        group = left_over + "".join(text[start : start + PIECE_CHARS].split())
        whole = len(group) - len(group) % 4
        piece, left_over = group[:whole], group[whole:]
        try:
            data = binascii.a2b_base64(piece.encode("ascii"), strict_mode=True)
        except (binascii.Error, UnicodeEncodeError):
            return None
        if (ended and piece) or not _canonical(piece, data):
            return None
        ended = piece.endswith("=") or (ended and not piece)
        parts.append(data)
        yield
    return None if left_over else b"".join(parts)


def _canonical(text: str, data: bytes) -> bool:
    """Whether encoding gives the text back: the last group decides, since only there bits are left over."""
    tail = len(data) % 3 or 3
    return len(text) == (len(data) + 2) // 3 * 4 and (
        not data or text[-4:] == binascii.b2a_base64(data[-tail:], newline=False).decode()
    )


async def _from_host(stored: OnHost) -> AsyncGenerator[bytes, None]:
    async with stored.api.attachment(stored.draft_id, STORED_NAME) as download:
        async for chunk in download.chunks:
            yield chunk


async def _chunks(fd: int) -> AsyncGenerator[bytes, None]:
    position = 0
    while chunk := await shielded(asyncio.to_thread(os.pread, fd, CHUNK_BYTES, position)):
        position += len(chunk)
        yield chunk
