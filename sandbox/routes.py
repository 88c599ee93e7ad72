"""The routes of the Web API. Before a route: who asks, and which fault strikes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from aiohttp import BodyPartReader, web
from aiohttp.hdrs import CONTENT_DISPOSITION

from sandbox import messages
from sandbox.accounts import Claims
from sandbox.core import Core
from sandbox.faults import Failure
from sandbox.messages import lineage, react, require_draft
from sandbox.records import Attachment, Record
from sandbox.render import ATTACHMENT_TYPE, lineage_text
from sandbox.store import page
from sandbox.wire import RouteRefused, answer, json_object, page_window

CORE: web.AppKey[Core] = web.AppKey("core", Core)
"""The host behind an application."""

CALLER: web.RequestKey[str] = web.RequestKey("caller", str)
"""The identity a request acts as."""

CLAIMS: web.RequestKey[Claims] = web.RequestKey("claims", Claims)
"""The claims of the request's token."""

CONTROL_PREFIX = "/_sandbox"
"""Below it is the control surface: no token, no faults, not counted."""

_HERE = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
"""How this machine is named in the Host header of a request that did not leave it."""

_LOOK_S = 0.25
"""How often a hanging request looks whether its client is still there."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def core_of(request: web.Request) -> Core:
    """The host that was asked."""
    return request.app[CORE]


def caller(request: web.Request) -> str:
    """The identity of the token."""
    return request[CALLER]


def source_ip(request: web.Request) -> str | None:
    """The client's IP address, as a proxy in front tells it."""
    forwarded = request.headers.get("X-Forwarded-For")
    return forwarded.partition(",")[0].strip() if forwarded is not None else request.remote


@web.middleware
async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count the request, let a fault strike, authorize, answer."""
    core = request.app[CORE]
    if request.path == "/" or request.path.startswith(CONTROL_PREFIX):
        return await _answer(request, handler, _refuse_other_sites)
    route = request.match_info.route.name or "unknown"
    core.faults.requests[route] += 1
    loses_answer = False
    if core.faults.armed:
        struck = await _strike(request, route)
        if struck is not None:
            return struck
        loses_answer = core.faults.loses_answer(route)
    response = await _answer(request, handler, _authorize)
    core.faults.statuses[f"{route} {response.status}"] += 1
    return _cut(request) if loses_answer else response


async def _answer(request: web.Request, handler: Handler, admit: Callable[[web.Request], None]) -> web.StreamResponse:
    try:
        admit(request)
        return await handler(request)
    except RouteRefused as refused:
        return refused.response()
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
        return web.Response(status=404, text="404 page not found")


def _refuse_other_sites(request: web.Request) -> None:
    """403 for what a page of another site sends: the control surface asks for no token.

    A site can also have its own name lead to this machine. On loopback the Host header therefore names the machine.
    """
    origin = request.headers.get("Origin")
    local = request.transport is not None and request.transport.get_extra_info("sockname")[0] in ("127.0.0.1", "::1")
    if (origin is not None and origin.partition("://")[2] != request.host) or (
        local and not _HERE.fullmatch(request.host)
    ):
        raise RouteRefused(403, "this surface answers only to its own page, and to programs on this machine")


def _authorize(request: web.Request) -> None:
    """Set the caller of a protected route. 401 or 403 for a token or key that is refused."""
    core, route = request.app[CORE], request.match_info.route.name
    if route is None or route == "token":
        return
    if request.headers.get("X-FMSG-Act-As", "").strip():
        raise RouteRefused(403, "act-as is only available with identity-provider authentication")
    leeway_s = core.switches.token_leeway_s
    claims = core.accounts.authorize(_authorization(request, route), source_ip=source_ip(request), leeway_s=leeway_s)
    request[CALLER] = claims.sub
    request[CLAIMS] = claims


def _authorization(request: web.Request, route: str) -> str | None:
    """The header, or for a socket the token in the query: a browser sets no headers there."""
    token = request.query.get("access_token") if route == "ws" else None
    return f"Bearer {token}" if token else request.headers.get("Authorization")


async def _strike(request: web.Request, route: str) -> web.StreamResponse | None:
    faults = request.app[CORE].faults
    delay_s = faults.delay_s(route)
    if delay_s > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await faults.released.wait()
    if faults.hangs(route):
        await hang(request)
        return _cut(request)
    failure = faults.failure(route)
    if failure is None:
        return None
    return _cut(request) if failure.cut else failed(failure)


def failed(failure: Failure) -> web.Response:
    """An armed answer as a client sees it."""
    if failure.html:
        page = f"<html><head><title>{failure.status}</title></head><body><h1>{failure.text}</h1></body></html>"
        response = web.Response(status=failure.status, text=page, content_type="text/html")
    else:
        response = RouteRefused(failure.status, failure.text, code=failure.code).response()
    if failure.retry_after_s is not None:
        response.headers["Retry-After"] = str(failure.retry_after_s)
    return response


async def hang(request: web.Request) -> None:
    """Wait until the client goes away or hanging requests are released."""
    released = request.app[CORE].faults.released
    while request.transport is not None and not request.transport.is_closing():
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await released.wait()
            return


def _cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without a byte. aiohttp wants a response object all the same."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def stamp_date(request: web.Request, response: web.StreamResponse) -> None:
    """Date answers by the host's own clock (FMSG-003, "Order")."""
    response.headers["Date"] = _http_date(int(request.app[CORE].clock()))


@lru_cache(maxsize=4)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)


async def token(request: web.Request) -> web.Response:
    """``POST /fmsg/token``: an API key for an access token."""
    core = core_of(request)
    life_s = core.token_life_s
    value, claims = core.accounts.exchange(
        request.headers.get("Authorization"), source_ip=source_ip(request), life_s=life_s
    )
    expires_at = datetime.fromtimestamp(claims.exp, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return answer({"access_token": value, "token_type": "Bearer", "expires_in": int(life_s), "expires_at": expires_at})


async def list_received(request: web.Request) -> web.Response:
    """``GET /fmsg``: what the caller received, id descending."""
    core = core_of(request)
    mailbox = core.state.mailbox(caller(request))
    return _page(request, mailbox.shown if core.switches.drafts_shown else mailbox.received)


async def list_sent(request: web.Request) -> web.Response:
    """``GET /fmsg/sent``: what the caller wrote, drafts included, id descending."""
    return _page(request, core_of(request).state.mailbox(caller(request)).sent)


def _page(request: web.Request, ids: list[int]) -> web.Response:
    core, viewer = core_of(request), caller(request)
    limit, offset = page_window(request)
    wanted = page(ids, limit=limit, offset=offset)
    records = [core.state.messages[message_id] for message_id in wanted]
    return answer([core.renderer.message(record, viewer) for record in records if core.sees(record, viewer)])


async def get_message(request: web.Request) -> web.Response:
    """``GET /fmsg/{id}``: one message, without its id."""
    core, viewer = core_of(request), caller(request)
    record = core.readable(request.match_info["id"], viewer)
    return answer(core.renderer.message(record, viewer, with_id=False))


async def get_data(request: web.Request) -> web.Response:
    """``GET /fmsg/{id}/data``: the body's bytes under its own media type."""
    record = core_of(request).readable(request.match_info["id"], caller(request))
    return web.Response(body=record.data, headers={"Content-Type": record.type})


async def get_thread(request: web.Request) -> web.Response:
    """``GET /fmsg/{id}/thread``: the lineage as text, however long."""
    core, viewer = core_of(request), caller(request)
    record = core.readable(request.match_info["id"], viewer)
    line = [(item, core.sees(item, viewer)) for item in lineage(core, record)]
    return web.Response(text=lineage_text(line), content_type="text/plain", charset="utf-8")


async def get_thread_messages(request: web.Request) -> web.Response:
    """``GET /fmsg/{id}/thread/messages``: the lineage as JSON, root first."""
    core, viewer = core_of(request), caller(request)
    if not core.switches.thread_messages:
        raise web.HTTPNotFound
    record = core.readable(request.match_info["id"], viewer)
    line = lineage(core, record)
    if len(line) > core.limits.thread_messages:
        raise RouteRefused(422, f"thread is deeper than {core.limits.thread_messages} messages", code="thread_too_deep")
    shown: list[dict[str, Any]] = []
    text_bytes = 0
    for item in line:
        fields, size = core.renderer.thread_message(item) if core.sees(item, viewer) else _hidden(item)
        shown.append(fields)
        text_bytes += size
    if text_bytes > core.limits.thread_text_bytes:
        raise RouteRefused(413, f"thread text is over {core.limits.thread_text_bytes} bytes", code="thread_too_large")
    complete = all(message["visible"] for message in shown)
    return answer({"root_id": line[0].id, "trigger_id": record.id, "complete": complete, "messages": shown})


def _hidden(record: Record) -> tuple[dict[str, Any], int]:
    return {"id": record.id, "visible": False}, 0


def _named(request: web.Request) -> Record:
    return core_of(request).resolve(request.match_info["id"])


async def create(request: web.Request) -> web.Response:
    """``POST /fmsg``."""
    fields = await json_object(request)
    record = messages.create_draft(core_of(request), caller(request), fields)
    return answer({"id": record.id}, status=201)


async def update(request: web.Request) -> web.Response:
    """``PUT /fmsg/{id}``."""
    fields = await json_object(request)
    record = messages.replace_draft(core_of(request), caller(request), _named(request), fields)
    return answer({"id": record.id})


async def delete(request: web.Request) -> web.Response:
    """``DELETE /fmsg/{id}``."""
    messages.delete_draft(core_of(request), caller(request), _named(request))
    return web.Response(status=204)


async def send(request: web.Request) -> web.Response:
    """``POST /fmsg/{id}/send``."""
    record = _named(request)
    core = core_of(request)
    fields = {"id": record.id, "time": messages.send(core, caller(request), record)}
    return answer(fields | {"sha256": record.sha256} if core.switches.hashes else fields)


async def read(request: web.Request) -> web.Response:
    """``POST /fmsg/{id}/read``."""
    record = _named(request)
    return answer({"id": record.id, "time_read": messages.mark_read(core_of(request), caller(request), record)})


async def add_to(request: web.Request) -> web.Response:
    """``POST /fmsg/{id}/add-to``."""
    core = core_of(request)
    fields = await json_object(request)
    record = _named(request)
    batch = messages.add_recipients(core, caller(request), record, fields)
    result: dict[str, Any] = {"id": record.id, "added": len(batch.to)}
    if core.switches.hashes:
        result |= {"batch_id": batch.batch_id, "sha256": batch.sha256}
    return answer(result)


async def react_to(request: web.Request) -> web.Response:
    """``POST /fmsg/{id}/react``."""
    core = core_of(request)
    if not core.switches.reactions:
        raise web.HTTPNotFound
    fields = await json_object(request)
    status, record = react(core, caller(request), _named(request), fields.get("emoji"))
    if record is None:
        return answer({"id": None, "time": None, "sha256": None}, status=status)
    return answer({"id": record.id, "time": record.time_s, "sha256": record.sha256}, status=status)


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
        raise RouteRefused(400, "invalid filename")
    name = given.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise RouteRefused(400, "invalid filename")
    kept = [item for item in record.attachments if item.filename != name]
    if len(record.data) + sum(len(item.data) for item in kept) + len(data) > core.limits.message_bytes:
        raise RouteRefused(413, "message too large")
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
    raise RouteRefused(404, "attachment not found")


async def _file(request: web.Request, core: Core) -> tuple[str, bytes]:
    if not request.content_type.startswith("multipart/"):
        raise RouteRefused(400, "file is required")
    try:
        reader = await request.multipart()
        async for part in reader:
            if isinstance(part, BodyPartReader) and part.name == "file":
                return filename_in(part.headers.get(CONTENT_DISPOSITION, "")), await _bytes(part, core)
    except ValueError as error:
        raise RouteRefused(400, f"invalid multipart body: {error}") from None
    raise RouteRefused(400, "file is required")


async def _bytes(part: BodyPartReader, core: Core) -> bytes:
    data = bytearray()
    while chunk := await part.read_chunk(65_536):
        data += chunk
        if len(data) > core.limits.attachment_bytes:
            raise RouteRefused(413, "attachment too large")
    return bytes(data)


def filename_in(disposition: str) -> str:
    r"""The file name as the client gave it: percent signs are kept, and backslashes but before ``"`` and ``\``."""
    if (found := _EXTENDED.search(disposition)) is not None:
        return unquote(found[1])
    if (found := _QUOTED.search(disposition)) is not None:
        return _ESCAPED.sub(r"\1", found[1])
    found = _BARE.search(disposition)
    return found[1] if found is not None else ""
