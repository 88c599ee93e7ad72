"""One front process over a store and a host, from its listening sockets to an orderly end."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from fmsg.directory import Directory
from fmsg.errors import FmsgError
from fmsg.http import HostHttp
from ledger.port import Store
from ledger.seal import SealKeys
from mcp_front.callers import KeyCallers, SharedTokenStore
from mcp_front.drain import Drain
from mcp_front.http.admission import Guesses
from mcp_front.http.app import HttpFront, HttpRequest, peer_of
from mcp_front.http.connection import Connection
from mcp_front.http.files import Files
from mcp_front.limits import HeldCalls
from mcp_front.listen import Inboxes
from mcp_front.server import Ctx, build_server, client_name, only_reads
from mcp_front.settings import FrontSettings
from mcp_front.timer_wheel import TimerWheel
from mcp_front.tools.context import Progress, ToolContext
from mcp_front.tools.registry import tools_for
from mcp_front.tools.tool import Tool
from telemetry import metrics

if TYPE_CHECKING:
    from mcp_front.oauth.app import Identify, SignIn
    from mcp_front.waiting.wait import Waiting

log = logging.getLogger(__name__)

GC_THRESHOLDS = (20_000, 20, 100)
"""Collections of the young and of everything are rarer than Python's default: with 10,000 held calls each full one
would stop the process for 100 ms, and next to nothing here is freed by them."""


LARGE_BLOCK_BYTES = 32 * 1024
"""From here on glibc takes each block of memory from the system and gives it back when it is freed: the pieces of a
large body are among them (`mcp_front.http.body.SMALL_BYTES`). By itself it raises this limit up to 32 MiB, and then
what large requests leave stays with the process: 300 MB more in ``make attack``."""
_M_MMAP_THRESHOLD = -3


def give_back_large_blocks() -> None:
    """Have the C library give the memory of large requests back to the system; without effect where it cannot."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


KEPT_FILES = 1024
"""Descriptors that clients' connections leave to the rest: requests to the host, Redis, logs."""


def raise_file_limit(wanted: int) -> int:
    """Raise the limit of open files for so many connections, if possible. Returns how many there can be.

    Connections that take every descriptor would keep the server from reaching the host, for everybody.
    """
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted + KEPT_FILES
    if soft != resource.RLIM_INFINITY and soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= enough:
        return wanted
    usable = max(1, soft - KEPT_FILES)
    log.info(
        "the limit of open files allows fewer connections than configured",
        extra={"action": "file_limit", "connections": usable, "open_files": soft},
    )
    return usable


KERNEL_SHARES_OUT = sys.platform == "linux"
"""Whether each of several processes gets a listening socket, and the kernel shares connections out by a hash of their
addresses. Where all accept from one socket, the quickest of four took half of 2,000 connections, and all of 16."""


def bind(settings: FrontSettings) -> list[socket.socket]:
    """Listening sockets for the configured address; ``port`` 0 takes a free one. Raises `OSError` that names it."""
    return [_named(settings, settings.http.backlog)]


def reserve_port(settings: FrontSettings) -> socket.socket:
    """A socket that keeps the configured port for `sibling_socket` and listens to nothing. Raises as `bind`."""
    reserved = _named(settings, None)
    # Not before the bind: that would take the port of another server that shares its port, without a word.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return reserved


def sibling_socket(reserved: socket.socket) -> socket.socket:
    """A further socket on a reserved port, for one process; connections come to it from when that listens."""
    own = socket.socket(reserved.family, socket.SOCK_STREAM)
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        own.bind(reserved.getsockname())
    except OSError:
        own.close()
        raise
    return own


def _named(settings: FrontSettings, backlog: int | None) -> socket.socket:
    http = settings.http
    try:
        return _bound(http.host, http.port, backlog)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{http.host} port {http.port} cannot be bound: {error.strerror}. Choose others with --host and --port "
            "(FMSG_MCP_HOST, FMSG_MCP_PORT), or end what has them.",
        ) from None


def _bound(host: str, port: int, backlog: int | None) -> socket.socket:
    """``backlog`` None: it does not listen."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        if backlog is not None:
            listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


def prepare(sockets: Sequence[socket.socket], settings: FrontSettings) -> None:
    """What connections inherit from the socket that accepted them."""
    for listening in sockets:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            # A client that takes nothing of its answer is dropped by the kernel, and so is one that has vanished.
            stall_ms = int(settings.budgets.write_stall_s * 1000)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)


def address_of(sockets: Sequence[socket.socket]) -> tuple[str, int]:
    """Host and port of the first socket."""
    name: Any = sockets[0].getsockname()
    return str(name[0]), int(name[1])


class DrainingServer(uvicorn.Server):
    """uvicorn without its signal handling, and with an end in good order.

    It says that it is not ready, stops accepting, answers waits, and lets the rest finish.
    """

    def __init__(
        self, front: HttpFront, settings: FrontSettings, *, timer_wheel: TimerWheel, drain: asyncio.Event
    ) -> None:
        http = settings.http
        usable = raise_file_limit(settings.budgets.max_connections)
        budgets = msgspec.structs.replace(settings.budgets, max_connections=usable)
        config = uvicorn.Config(
            front,
            http=partial(Connection, budgets=budgets, timer_wheel=timer_wheel),  # type: ignore[arg-type]  # any factory does
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=http.backlog,
            timeout_keep_alive=int(http.keep_alive_s),
            timeout_graceful_shutdown=int(http.drain_s),
        )
        super().__init__(config)
        self._front = front
        self._drain = drain
        self._notice_s = http.drain_notice_s
        self._started: Callable[[], None] | None = None

    async def run_until(
        self, stop: asyncio.Event, sockets: list[socket.socket], *, started: Callable[[], None] | None = None
    ) -> None:
        """Serve until the event is set and everything running has ended. ``started`` is called once it is ready."""
        self._started = started
        async with asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(self._stop_when(stop))
            await self._serve(sockets)
            watcher.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and let the garbage collector forget what is there for good."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        if self._started is not None:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in good order.

        Connections are told to close after their answers *before* waits are answered: a client whose wait ended early
        would otherwise come back on the same connection and get another empty answer at once.
        """
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        self._drain.set()
        log.info(
            "draining",
            extra={"action": "draining", "calls": len(self.server_state.tasks)},
        )
        await super().shutdown(sockets)

    async def _stop_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._front.ready = False
        if self._notice_s > 0:
            await asyncio.sleep(self._notice_s)
        self.should_exit = True


class HttpRequests:
    """`mcp_front.server.Requests` over HTTP, where the caller is known before the request is read."""

    def __init__(
        self, settings: FrontSettings, store: Store, waiting: Waiting, directory: Directory, drain: Drain
    ) -> None:
        self._settings = settings
        self._store = store
        self._waiting = waiting
        self._directory = directory
        self._drain = drain

    async def context(self, ctx: Ctx, progress: Progress | None) -> ToolContext:
        request = _request(ctx)
        return ToolContext(
            caller=request.caller,
            settings=self._settings,
            store=self._store,
            waiting=self._waiting,
            directory=self._directory.for_caller(request.caller.address),
            progress=progress if request.accepts_stream else None,
            drain=self._drain,
            client=client_name(ctx),
            answer=request.answer,
        )

    async def address(self, ctx: Ctx) -> str | None:
        caller = _request(ctx).caller
        try:
            await caller.confirm()
        except FmsgError:
            return None
        return caller.address

    def name(self, ctx: Ctx) -> str:
        return _request(ctx).request_id

    def may_write(self, ctx: Ctx) -> bool:
        return _request(ctx).may_write


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
    seal: SealKeys | None = None,
    clock: Callable[[], float] = time.time,
    rng: random.Random | None = None,
) -> None:
    """Serve MCP until ``stop`` is set and everything running has ended.

    ``store`` and ``http`` are open already. ``sockets`` are listening sockets, bound here where None; ``started`` is
    told the address once requests are welcome. ``tools`` and ``waiting`` are the product's where None. ``store_ready``
    says whether ``store`` can be written and read; /readyz asks it each time, so it should remember its answer.
    ``traced``: somebody takes OpenTelemetry spans. ``seal`` has to be there where people sign in. ``clock`` gives POSIX
    seconds.

    Raises `BindRefused` for settings that must not be served, `OSError` where the address cannot be bound,
    `fmsg.errors.BadInput` for a directory that cannot be read.
    """
    rng = rng or random.Random()
    loop = asyncio.get_running_loop()
    give_back_large_blocks()
    drain = Drain()
    timer_wheel = TimerWheel(now=loop.time, call_at=loop.call_at)
    shared_tokens: SharedTokenStore | None = getattr(store, "shared_tokens", None)
    callers = KeyCallers(http, settings, transport="http", clock=clock, rng=rng, shared_tokens=shared_tokens)
    held_calls = HeldCalls(settings.budgets)
    metrics.WAITS_BUDGET.set(settings.budgets.max_waits)
    requests = HttpRequests(
        settings,
        store,
        waiting or _waiting(settings, store, clock, rng),
        Directory.load(settings.directory, settings.default_domain),
        drain,
    )
    tools = tools_for(settings) if tools is None else tools
    server = build_server(
        tools,
        requests,
        held_calls=held_calls,
        version=product_version(),
        listen=Inboxes(requests, held_calls, drain),
        traced=traced,
    )
    guesses = Guesses(settings.budgets, now=loop.time)

    async def identify(scope: Mapping[str, Any], api_key: str) -> str:
        return await front.authenticator.address_of(api_key, scope["headers"], peer=peer_of(scope))

    front = HttpFront(
        server,
        callers,
        settings,
        timer_wheel=timer_wheel,
        guesses=guesses,
        store_ready=store_ready,
        sign_in=_sign_in(settings, seal, store, identify, clock),
        files=Files(settings.http.path, store.deferred, settings.budgets),
        reads=frozenset(name for name, tool in tools.items() if only_reads(tool)),
    )
    listening = sockets if sockets is not None else bind(settings)
    prepare(listening, settings)
    draining = DrainingServer(front, settings, timer_wheel=timer_wheel, drain=drain)
    try:
        await draining.run_until(
            stop, listening, started=None if started is None else lambda: started(*address_of(listening))
        )
    finally:
        await callers.aclose()


def _waiting(settings: FrontSettings, store: Store, clock: Callable[[], float], rng: random.Random) -> Waiting:
    from mcp_front.waiting.request import WaitSettings
    from mcp_front.waiting.wait import Waiting

    waits = WaitSettings(progress_s=settings.progress_s, activate_s=settings.activate_s)
    return Waiting(store, settings=waits, clock=clock, rng=rng)


def _sign_in(
    settings: FrontSettings, seal: SealKeys | None, store: Store, identify: Identify, clock: Callable[[], float]
) -> SignIn | None:
    if settings.oauth is None:
        return None
    if seal is None:
        raise ValueError("signing in needs the keys that seal tokens")
    from mcp_front.oauth.app import SignIn  # and with it a web framework, which most fronts can do without

    return SignIn(settings.oauth, seal, store.documents, endpoint=settings.http.path, identify=identify, clock=clock)


def product_version() -> str:
    """The version clients are told."""
    try:
        return version("fmsg-mcpd")
    except PackageNotFoundError:
        return "0"
