"""Routes that read: token, lists, message, body, lineage."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from sandbox.http import caller, core_of, source_ip
from sandbox.mail import lineage
from sandbox.records import Record
from sandbox.render import lineage_text
from sandbox.state import page
from sandbox.wire import Refused, answer, page_window


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
        raise Refused(422, f"thread is deeper than {core.limits.thread_messages} messages", code="thread_too_deep")
    messages: list[dict[str, Any]] = []
    text_bytes = 0
    for item in line:
        shown, size = core.renderer.thread_message(item) if core.sees(item, viewer) else _hidden(item)
        messages.append(shown)
        text_bytes += size
    if text_bytes > core.limits.thread_text_bytes:
        raise Refused(413, f"thread text is over {core.limits.thread_text_bytes} bytes", code="thread_too_large")
    complete = all(message["visible"] for message in messages)
    return answer({"root_id": line[0].id, "trigger_id": record.id, "complete": complete, "messages": messages})


def _hidden(record: Record) -> tuple[dict[str, Any], int]:
    return {"id": record.id, "visible": False}, 0
