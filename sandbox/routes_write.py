"""Routes that change something: drafts, send, read, add-to, react."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sandbox import mail
from sandbox.http import caller, core_of
from sandbox.reactions import react
from sandbox.records import Record
from sandbox.wire import answer, json_object


def _named(request: web.Request) -> Record:
    return core_of(request).resolve(request.match_info["id"])


async def create(request: web.Request) -> web.Response:
    """``POST /fmsg``."""
    fields = await json_object(request)
    record = mail.create_draft(core_of(request), caller(request), fields)
    return answer({"id": record.id}, status=201)


async def update(request: web.Request) -> web.Response:
    """``PUT /fmsg/{id}``."""
    fields = await json_object(request)
    record = mail.replace_draft(core_of(request), caller(request), _named(request), fields)
    return answer({"id": record.id})


async def delete(request: web.Request) -> web.Response:
    """``DELETE /fmsg/{id}``."""
    mail.delete_draft(core_of(request), caller(request), _named(request))
    return web.Response(status=204)


async def send(request: web.Request) -> web.Response:
    """``POST /fmsg/{id}/send``."""
    record = _named(request)
    core = core_of(request)
    fields = {"id": record.id, "time": mail.send(core, caller(request), record)}
    return answer(fields | {"sha256": record.sha256} if core.switches.hashes else fields)


async def read(request: web.Request) -> web.Response:
    """``POST /fmsg/{id}/read``."""
    record = _named(request)
    return answer({"id": record.id, "time_read": mail.mark_read(core_of(request), caller(request), record)})


async def add_to(request: web.Request) -> web.Response:
    """``POST /fmsg/{id}/add-to``."""
    core = core_of(request)
    fields = await json_object(request)
    record = _named(request)
    batch = mail.add_recipients(core, caller(request), record, fields)
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
