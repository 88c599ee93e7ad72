"""Between a request and its route: who asks, what is counted, which fault strikes, how a refusal looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache

from aiohttp import web

from sandbox.accounts import Claims
from sandbox.core import Core
from sandbox.faults import Failure
from sandbox.wire import Refused

CORE: web.AppKey[Core] = web.AppKey("core", Core)
"""The host behind an application."""

CALLER: web.RequestKey[str] = web.RequestKey("caller", str)
"""The identity a request acts as."""

CLAIMS: web.RequestKey[Claims] = web.RequestKey("claims", Claims)
"""The claims of the request's token."""

CONTROL_PREFIX = "/_sandbox"
"""Below it is the control surface: no token, no faults, not counted."""

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
    """Where the request comes from, as a proxy in front would tell."""
    forwarded = request.headers.get("X-Forwarded-For")
    return forwarded.partition(",")[0].strip() if forwarded is not None else request.remote


@web.middleware
async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count, strike, authorize, answer."""
    core = request.app[CORE]
    if request.path.startswith(CONTROL_PREFIX):
        return await _control(request, handler)
    route = request.match_info.route.name or "unknown"
    core.faults.requests[route] += 1
    loses_answer = False
    if core.faults.armed:
        struck = await _strike(request, route)
        if struck is not None:
            return struck
        loses_answer = core.faults.loses_answer(route)
    response = await _answer(request, handler, route)
    core.faults.statuses[f"{route} {response.status}"] += 1
    return _cut(request) if loses_answer else response


async def _control(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        return refused.response()


async def _answer(request: web.Request, handler: Handler, route: str) -> web.StreamResponse:
    core = request.app[CORE]
    try:
        if route not in ("token", "unknown"):
            if request.headers.get("X-FMSG-Act-As", "").strip():
                raise Refused(403, "act-as is only available with identity-provider authentication")
            claims = core.accounts.authorize(
                _authorization(request, route),
                source_ip=source_ip(request),
                leeway_s=core.switches.token_leeway_s,
            )
            request[CALLER] = claims.sub
            request[CLAIMS] = claims
        return await handler(request)
    except Refused as refused:
        return refused.response()
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
        return web.Response(status=404, text="404 page not found")


def _authorization(request: web.Request, route: str) -> str | None:
    """The header. A socket may bring its token in the query instead: a browser cannot set headers there."""
    token = request.query.get("access_token") if route == "ws" else None
    return f"Bearer {token}" if token else request.headers.get("Authorization")


async def _strike(request: web.Request, route: str) -> web.StreamResponse | None:
    faults = request.app[CORE].faults
    delay_s = faults.delay_s(route)
    if delay_s > 0:
        with suppress(TimeoutError):
            await asyncio.wait_for(faults.released.wait(), delay_s)
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
        response = Refused(failure.status, failure.text, code=failure.code).response()
    if failure.retry_after_s is not None:
        response.headers["Retry-After"] = str(failure.retry_after_s)
    return response


async def hang(request: web.Request) -> None:
    """Wait until the client goes away or the host lets go what hangs."""
    released = request.app[CORE].faults.released
    while request.transport is not None and not request.transport.is_closing():
        with suppress(TimeoutError):
            await asyncio.wait_for(released.wait(), _LOOK_S)
            return


def _cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without a byte; the response object is only what aiohttp wants to hold."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def stamp_date(request: web.Request, response: web.StreamResponse) -> None:
    """Date answers by the host's own clock (FMSG-003, "Order")."""
    response.headers["Date"] = _http_date(int(request.app[CORE].clock()))


@lru_cache(maxsize=4)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)
