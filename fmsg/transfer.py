"""Bodies and attachments on their way: what a download is, and the multipart form of an upload."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable

import msgspec

from fmsg.errors import BadInput
from fmsg.redact import quoted

MAX_FILENAME_BYTES = 255
"""The longest name that the protocol has. A current host hangs on a longer one (FMSG-003, Routes)."""

CHUNK_BYTES = 64 * 1024
"""An upload's progress is watched by chunks. One of this size gets through a slow line within the idle deadline."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(?:[ \t]*;[\x20-\x7e]{0,256})?", re.ASCII)


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a message body; ``truncated`` when there were more than asked for."""

    data: bytes
    truncated: bool


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment being fetched. ``chunks`` raises `HostUnreachable` when nothing comes or it ends early."""

    size: int | None
    content_type: str
    chunks: AsyncIterator[bytes]


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A multipart body: its ``Content-Type``, its length where known, its bytes (which can be read once)."""

    content_type: str
    size: int | None
    chunks: AsyncIterator[bytes]


def media_type(header: str | None) -> str:
    """A ``Content-Type`` that a host gave, ``application/octet-stream`` where it is none."""
    return header if header is not None and _MEDIA_TYPE.fullmatch(header) else "application/octet-stream"


def check_filename(filename: str, *, name: str = "filename") -> str:
    """The file name, if it can be sent to a host and fetched again. Raises `BadInput` naming the argument."""
    fault = _filename_fault(filename)
    if fault is None:
        return filename
    raise BadInput(f"{name}: {quoted(filename)} cannot name an attachment ({fault}). Choose another, like report.pdf.")


def check_stored_name(filename: str, *, name: str = "filename") -> str:
    """The file name, if it can stand in a request for an attachment that another host has named. Raises `BadInput`."""
    if filename in ("", ".", ".."):
        raise BadInput(f"{name}: {quoted(filename)} is no file's name. Pass one of the names that the message lists.")
    return filename.encode("utf-8", "replace").decode()


def meant_name(asked: str, names: Iterable[str], *, shown: Callable[[str], str] = str) -> str | None:
    """The one of a message's attachments that is meant, None where none or more than one fits.

    The exact name comes first, then the name as results show it (``shown``), then the only one that looks the same:
    models repeat names in another Unicode form, with other kinds of blanks or none at the end.
    """
    listed = set(names)
    if asked in listed:
        return asked
    fitting = [name for name in listed if shown(name) == asked] or [
        name for name in listed if _look(asked) in (_look(name), _look(shown(name)))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _look(name: str) -> str:
    """What names have in common that look the same."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def check_media_type(text: str, *, name: str = "content_type") -> str:
    """The media type, if it is one (RFC 9110, 8.3.1). Raises `BadInput` naming the argument."""
    if not _MEDIA_TYPE.fullmatch(text):
        raise BadInput(
            f"{name}: {quoted(text)} is not a media type. Write a type and a subtype, like text/markdown or "
            "application/pdf."
        )
    return text


def _filename_fault(filename: str) -> str | None:
    if filename in ("", ".", ".."):
        return "it is no file's name"
    if _CONTROL.search(filename):
        return "it contains a control character"
    try:
        size = len(filename.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return f"it is longer than {MAX_FILENAME_BYTES} bytes" if size > MAX_FILENAME_BYTES else None


def file_form(filename: str, data: bytes | AsyncIterable[bytes], *, content_type: str) -> Form:
    """A form with the one field ``file`` (RFC 7578). Raises `BadInput` for a name or type that cannot be sent."""
    check_filename(filename)
    check_media_type(content_type)
    boundary = f"fmsg-{secrets.token_hex(16)}"
    escaped = filename.replace("\\", "\\\\").replace('"', '\\"')
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{escaped}"\r\n'
        f"Content-Type: {content_type}\r\n\r\n"
    ).encode()
    tail = f"\r\n--{boundary}--\r\n".encode()
    known = len(head) + len(data) + len(tail) if isinstance(data, bytes) else None
    return Form(
        content_type=f"multipart/form-data; boundary={boundary}",
        size=known,
        chunks=_framed(head, data, tail),
    )


async def _framed(head: bytes, data: bytes | AsyncIterable[bytes], tail: bytes) -> AsyncIterator[bytes]:
    yield head
    if isinstance(data, bytes):
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]
    else:
        async for chunk in data:
            yield chunk
    yield tail
