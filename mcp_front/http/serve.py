"""`serve_http`: one front process over a store and a host, from listening to drained."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from fmsg.directory import Directory
from fmsg.http import HostHttp
from ledger.port import Store
from mcp_front.callers import Callers, Parking
from mcp_front.drain import Drain
from mcp_front.http.app import HttpFront, HttpRequest
from mcp_front.http.listener import Listener, address_of, bind, prepare
from mcp_front.http.sources import Guesses
from mcp_front.limits import HeldCalls
from mcp_front.listen import Inboxes
from mcp_front.server import Ctx, build_server
from mcp_front.settings import FrontSettings
from mcp_front.timer_wheel import TimerWheel
from mcp_front.tools.context import Progress, ToolContext
from mcp_front.tools.registry import tools_for
from mcp_front.tools.tool import Tool
from telemetry import metrics

if TYPE_CHECKING:
    from mcp_front.waiting.wait import Waiting


class HttpRequests:
    """See `mcp_front.server.Requests`: the caller was established before the request was read."""

    def __init__(
        self, settings: FrontSettings, store: Store, waiting: Waiting, directory: Directory, drain: Drain
    ) -> None:
        self._settings = settings
        self._store = store
        self._waiting = waiting
        self._directory = directory
        self._drain = drain

    async def context(self, ctx: Ctx, progress: Progress | None) -> ToolContext:
        """See `Requests`."""
        request = _request(ctx)
        return ToolContext(
            caller=request.caller,
            settings=self._settings,
            store=self._store,
            waiting=self._waiting,
            directory=self._directory,
            progress=progress if request.accepts_stream else None,
            drain=self._drain,
            answer=request.answer,
        )

    def address(self, ctx: Ctx) -> str | None:
        """See `Requests`."""
        return _request(ctx).caller.address

    def name(self, ctx: Ctx) -> str:
        """See `Requests`."""
        return _request(ctx).request_id


def _request(ctx: Ctx) -> HttpRequest:
    request = ctx.request
    if not isinstance(request, HttpRequest):
        raise TypeError("an HTTP request carries its caller")
    return request


async def serve_http(
    settings: FrontSettings,
    store: Store,
    http: HostHttp,
    *,
    stop: asyncio.Event,
    sockets: list[socket.socket] | None = None,
    started: Callable[[str, int], None] | None = None,
    tools: Mapping[str, Tool] | None = None,
    waiting: Waiting | None = None,
    store_ready: Callable[[], Awaitable[bool]] | None = None,
    traced: bool = False,
    clock: Callable[[], float] = time.time,
    rng: random.Random | None = None,
) -> None:
    """Serve MCP until ``stop`` is set and everything running has ended.

    ``store`` and ``http`` are open already. ``sockets`` are listening sockets, bound here where None; ``started`` is
    told the address once requests are welcome. ``clock`` gives POSIX seconds. Raises
    `mcp_front.http.gate.BindRefused` for settings that must not be served, `OSError` where the address cannot be bound,
    `fmsg.errors.BadInput` for a directory that cannot be read. ``tools`` and ``waiting`` are
    the product's where None. ``store_ready`` says whether ``store`` can be written and read, for /readyz; it is asked
    at each request there, so it should remember its answer.
    ``traced``: somebody takes OpenTelemetry spans.
    """
    rng = rng or random.Random()
    loop = asyncio.get_running_loop()
    drain = Drain()
    timer_wheel = TimerWheel(now=loop.time, call_at=loop.call_at)
    parking: Parking | None = getattr(store, "shared_tokens", None)
    callers = Callers(http, settings, transport="http", clock=clock, rng=rng, parking=parking)
    held_calls = HeldCalls(settings.budgets)
    metrics.WAITS_BUDGET.set(settings.budgets.max_waits)
    requests = HttpRequests(
        settings,
        store,
        waiting or _waiting(settings, store, clock, rng),
        Directory.load(settings.directory, settings.default_domain),
        drain,
    )
    server = build_server(
        tools_for(settings) if tools is None else tools,
        requests,
        held_calls=held_calls,
        version=product_version(),
        listen=Inboxes(requests, held_calls, drain),
        traced=traced,
    )
    guesses = Guesses(settings.budgets, now=loop.time)
    front = HttpFront(server, callers, settings, timer_wheel=timer_wheel, guesses=guesses, store_ready=store_ready)
    listening = sockets if sockets is not None else bind(settings)
    prepare(listening, settings)
    listener = Listener(front, settings, timer_wheel=timer_wheel, drain=drain)
    try:
        await listener.run_until(
            stop, listening, started=None if started is None else lambda: started(*address_of(listening))
        )
    finally:
        await callers.aclose()


def _waiting(settings: FrontSettings, store: Store, clock: Callable[[], float], rng: random.Random) -> Waiting:
    from mcp_front.waiting.request import WaitSettings
    from mcp_front.waiting.wait import Waiting

    waits = WaitSettings(progress_s=settings.progress_s, activate_s=settings.activate_s)
    return Waiting(store, settings=waits, clock=clock, rng=rng)


def product_version() -> str:
    """The version clients are told."""
    try:
        return version("fmsg-mcpd")
    except PackageNotFoundError:
        return "0"
