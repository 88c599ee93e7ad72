"""The listening half of a front process: its sockets, uvicorn around them, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import uvicorn

from mcp_front.http.app import HttpFront
from mcp_front.http.connection import Connection
from mcp_front.settings import FrontSettings
from mcp_front.timer_wheel import TimerWheel

log = logging.getLogger(__name__)

GC_THRESHOLDS = (20_000, 20, 100)
"""Collections of the young and of everything are rarer than Python's default: with 10,000 held calls each full one
would stop the process for 100 ms, and next to nothing here is freed by them."""


KEPT_FILES = 1024
"""Descriptors that clients' connections leave to the rest: requests to the host, Redis, logs."""


def raise_file_limit(wanted: int) -> int:
    """Let the process have enough open files for so many connections, if it may; how many connections it can have.

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


EACH_ITS_OWN = sys.platform == "linux"
"""Whether several processes get a listening socket each, between which the kernel shares connections out by a hash of
their addresses. All accepting from one socket, the quickest of four took half of 2,000, and all of 16. Elsewhere the
kernel does not share out."""


def bind(settings: FrontSettings) -> list[socket.socket]:
    """Listening sockets for the configured address; ``port`` 0 takes a free one. Raises `OSError` that names it."""
    return [_named(settings, settings.http.backlog)]


def reserve(settings: FrontSettings) -> socket.socket:
    """A socket that keeps the configured port for those of `beside` and listens to nothing. Raises as `bind`."""
    reserved = _named(settings, None)
    # Only now: with it before, the port of another server that shares its port, too, would be taken without a word.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return reserved


def beside(reserved: socket.socket) -> socket.socket:
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


class Listener(uvicorn.Server):
    """uvicorn without its signal handling. It ends so: unready, deaf to newcomers, waits answered, the rest done."""

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


def address_of(sockets: Sequence[socket.socket]) -> tuple[str, int]:
    """Host and port of the first socket."""
    name: Any = sockets[0].getsockname()
    return str(name[0]), int(name[1])
