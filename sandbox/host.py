"""A sandbox host as an aiohttp application, and `serve` to put it on a port."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from sandbox import routes_attach, routes_control, routes_read, routes_write, sockets
from sandbox.control import Control
from sandbox.core import Core
from sandbox.http import CORE, gate, stamp_date
from sandbox.listening import Listening
from sandbox.switches import Limits, Switches

_MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""What aiohttp lets through; the host's own limits, which are smaller, answer with their own texts."""


_SHUTDOWN_S = 1.0
"""How long a host that ends waits for requests that are still going on."""


class SandboxHost:
    """An FMSG-003 host of one domain.

    ``store`` is ``"memory"`` or the path of an SQLite file that outlives the process; ``clock`` gives POSIX seconds.
    Hosts that shall deliver to each other are introduced by `federate`. ``control`` steers it.
    """

    def __init__(
        self,
        domain: str,
        *,
        switches: Switches = Switches(),  # noqa: B008 - a frozen value
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
        store: str | Path = "memory",
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.core = Core(
            domain,
            switches=switches,
            limits=limits,
            store=store,
            clock=clock,
            rng=rng or random.Random(0),
        )
        self.control = Control(self.core)
        """The control surface."""

    @property
    def domain(self) -> str:
        """The domain whose addresses live here."""
        return self.core.domain

    def federate(self, *others: SandboxHost) -> None:
        """Let these hosts and this one reach each other, pairwise."""
        everybody = [self, *others]
        for one in everybody:
            for other in everybody:
                if one is not other:
                    one.core.courier.peers[other.domain] = other.core

    def application(self, *, control: bool = True) -> web.Application:
        """A fresh application, with or without ``/_sandbox/``; shutting it down ends sockets and hanging requests."""
        app = web.Application(middlewares=[gate], client_max_size=_MAX_REQUEST_BYTES)
        app[CORE] = self.core
        app.on_response_prepare.append(stamp_date)
        app.on_shutdown.append(self._shut_down)
        routes = app.router
        routes.add_post("/fmsg/token", routes_read.token, name="token")
        routes.add_get("/fmsg/ws", sockets.events, name="ws", allow_head=False)
        routes.add_get("/fmsg/sent", routes_read.list_sent, name="sent", allow_head=False)
        routes.add_get("/fmsg", routes_read.list_received, name="list", allow_head=False)
        routes.add_post("/fmsg", routes_write.create, name="create")
        routes.add_get("/fmsg/{id}", routes_read.get_message, name="get", allow_head=False)
        routes.add_put("/fmsg/{id}", routes_write.update, name="update")
        routes.add_delete("/fmsg/{id}", routes_write.delete, name="delete")
        routes.add_post("/fmsg/{id}/send", routes_write.send, name="send")
        routes.add_post("/fmsg/{id}/read", routes_write.read, name="read")
        routes.add_post("/fmsg/{id}/add-to", routes_write.add_to, name="add_to")
        routes.add_get("/fmsg/{id}/data", routes_read.get_data, name="data", allow_head=False)
        routes.add_get("/fmsg/{id}/thread", routes_read.get_thread, name="thread", allow_head=False)
        routes.add_get(
            "/fmsg/{id}/thread/messages", routes_read.get_thread_messages, name="thread_messages", allow_head=False
        )
        routes.add_post("/fmsg/{id}/attach", routes_attach.attach, name="attach")
        routes.add_get("/fmsg/{id}/attach/{filename}", routes_attach.fetch, name="fetch", allow_head=False)
        routes.add_delete("/fmsg/{id}/attach/{filename}", routes_attach.detach, name="detach")
        routes.add_post("/fmsg/{id}/react", routes_write.react_to, name="react")
        if control:
            routes_control.add_routes(app, self.control)
        return app

    async def _shut_down(self, app: web.Application) -> None:
        self.core.faults.release()
        self.control.drop_sockets(close_frame=True, code=1001)

    def close(self) -> None:
        """Stop timers and close the store. The host is not used after this."""
        self.core.close()


@asynccontextmanager
async def serve(
    host: SandboxHost, port: int = 0, *, bind: str = "127.0.0.1", control: bool = True
) -> AsyncIterator[str]:
    """The base URL of the host while it is on a port; 0 takes a free one. The host is closed at the end.

    ``control`` False leaves ``/_sandbox/`` out, which is open to everybody who reaches the port.
    """
    runner = web.AppRunner(host.application(control=control), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    listening = host.control.listening = Listening(runner, bind, port)
    try:
        await listening.accept()
        shown = f"[{bind}]" if ":" in bind else bind
        yield f"http://{shown}:{listening.port}"
    finally:
        await listening.close()
        host.control.listening = None
        await runner.cleanup()
        host.close()
