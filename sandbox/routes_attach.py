"""Attachments: upload (multipart), fetch, delete."""

from __future__ import annotations

import re
from urllib.parse import unquote

from aiohttp import BodyPartReader, web
from aiohttp.hdrs import CONTENT_DISPOSITION

from sandbox.core import Core
from sandbox.http import caller, core_of, hang
from sandbox.mail import require_draft
from sandbox.records import Attachment, Record
from sandbox.render import ATTACHMENT_TYPE
from sandbox.wire import Refused, answer

_QUOTED = re.compile(r'(?:^|;)\s*filename="((?:\\.|[^"\\])*)"', re.IGNORECASE)
_BARE = re.compile(r"(?:^|;)\s*filename=([^\";\s]+)", re.IGNORECASE)
_EXTENDED = re.compile(r"(?:^|;)\s*filename\*=utf-8''([^;\s]+)", re.IGNORECASE)
_ESCAPED = re.compile(r'\\(["\\])')


async def attach(request: web.Request) -> web.StreamResponse:
    """``POST /fmsg/{id}/attach``: a file for a draft of the caller. A file of the same name is replaced."""
    core = core_of(request)
    record = core.resolve(request.match_info["id"])
    require_draft(record, caller(request))
    given, data = await _file(request, core)
    if len(given.encode("utf-8", "surrogatepass")) > core.limits.filename_bytes:
        if core.switches.long_names_hang:
            await hang(request)
        raise Refused(400, "invalid filename")
    name = given.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise Refused(400, "invalid filename")
    kept = [item for item in record.attachments if item.filename != name]
    if len(record.data) + sum(len(item.data) for item in kept) + len(data) > core.limits.message_bytes:
        raise Refused(413, "message too large")
    if len(kept) == len(record.attachments):
        record.attachments.append(Attachment(filename=name, data=data))
    else:
        next(item for item in record.attachments if item.filename == name).data = data
    core.state.save(record)
    return answer({"filename": name, "size": len(data)}, status=201)


async def fetch(request: web.Request) -> web.Response:
    """``GET /fmsg/{id}/attach/{filename}``: the bytes."""
    core = core_of(request)
    record = core.readable(request.match_info["id"], caller(request))
    return web.Response(body=_stored(core, record, request).data, headers={"Content-Type": ATTACHMENT_TYPE})


async def detach(request: web.Request) -> web.Response:
    """``DELETE /fmsg/{id}/attach/{filename}``: take a file off a draft of the caller."""
    core = core_of(request)
    record = core.resolve(request.match_info["id"])
    require_draft(record, caller(request))
    record.attachments.remove(_stored(core, record, request))
    core.state.save(record)
    return web.Response(status=204)


def _stored(core: Core, record: Record, request: web.Request) -> Attachment:
    name = request.match_info["filename"]
    if not ("\\" in name and core.switches.backslash_names_lost):
        for item in record.attachments:
            if item.filename == name:
                return item
    raise Refused(404, "attachment not found")


async def _file(request: web.Request, core: Core) -> tuple[str, bytes]:
    if not request.content_type.startswith("multipart/"):
        raise Refused(400, "file is required")
    try:
        reader = await request.multipart()
        async for part in reader:
            if isinstance(part, BodyPartReader) and part.name == "file":
                return filename_in(part.headers.get(CONTENT_DISPOSITION, "")), await _bytes(part, core)
    except ValueError as error:
        raise Refused(400, f"invalid multipart body: {error}") from None
    raise Refused(400, "file is required")


async def _bytes(part: BodyPartReader, core: Core) -> bytes:
    data = bytearray()
    while chunk := await part.read_chunk(65_536):
        data += chunk
        if len(data) > core.limits.attachment_bytes:
            raise Refused(413, "attachment too large")
    return bytes(data)


def filename_in(disposition: str) -> str:
    r"""The file name as the client gave it: percent signs are kept, and backslashes but before ``"`` and ``\``."""
    if (found := _EXTENDED.search(disposition)) is not None:
        return unquote(found[1])
    if (found := _QUOTED.search(disposition)) is not None:
        return _ESCAPED.sub(r"\1", found[1])
    found = _BARE.search(disposition)
    return found[1] if found is not None else ""
