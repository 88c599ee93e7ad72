"""Sandbox hosts on their ports: one alone, or several that federate."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from fmsg.address import parse_address
from sandbox import routes, sockets
from sandbox.control import Control, add_control, check_domain
from sandbox.core import Core
from sandbox.listening import Listening, is_loopback
from sandbox.page import Insight, add_page
from sandbox.records import lowered
from sandbox.routes import CONTROL_PREFIX, CORE, gate, stamp_date
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
        """Let these hosts and this one deliver to each other."""
        everybody = [self, *others]
        for one in everybody:
            for other in everybody:
                if one is not other:
                    one.core.links.peers[other.domain] = other.core

    def application(self, *, control: bool = True, page: Insight | bool = False) -> web.Application:
        """A fresh application, with or without ``/_sandbox/``; shutting it down ends sockets and hanging requests.

        ``page`` puts the page at ``/``, with what is known of the agents.
        """
        app = web.Application(middlewares=[gate], client_max_size=_MAX_REQUEST_BYTES)
        app[CORE] = self.core
        app.on_response_prepare.append(stamp_date)
        app.on_shutdown.append(self._shut_down)
        add = app.router
        add.add_post("/fmsg/token", routes.token, name="token")
        add.add_get("/fmsg/ws", sockets.events, name="ws", allow_head=False)
        add.add_get("/fmsg/sent", routes.list_sent, name="sent", allow_head=False)
        add.add_get("/fmsg", routes.list_received, name="list", allow_head=False)
        add.add_post("/fmsg", routes.create, name="create")
        add.add_get("/fmsg/{id}", routes.get_message, name="get", allow_head=False)
        add.add_put("/fmsg/{id}", routes.update, name="update")
        add.add_delete("/fmsg/{id}", routes.delete, name="delete")
        add.add_post("/fmsg/{id}/send", routes.send, name="send")
        add.add_post("/fmsg/{id}/read", routes.read, name="read")
        add.add_post("/fmsg/{id}/add-to", routes.add_to, name="add_to")
        add.add_get("/fmsg/{id}/data", routes.get_data, name="data", allow_head=False)
        add.add_get("/fmsg/{id}/thread", routes.get_thread, name="thread", allow_head=False)
        add.add_get("/fmsg/{id}/thread/messages", routes.get_thread_messages, name="thread_messages", allow_head=False)
        add.add_post("/fmsg/{id}/attach", routes.attach, name="attach")
        add.add_get("/fmsg/{id}/attach/{filename}", routes.fetch, name="fetch", allow_head=False)
        add.add_delete("/fmsg/{id}/attach/{filename}", routes.detach, name="detach")
        add.add_post("/fmsg/{id}/react", routes.react_to, name="react")
        if control:
            add_control(app, self.control)
        if page:
            add_page(app, self.control, None if page is True else page)
        return app

    def control_application(self) -> web.Application:
        """A fresh application with ``/_sandbox/`` alone."""
        app = web.Application(middlewares=[gate])
        app[CORE] = self.core
        add_control(app, self.control)
        return app

    async def _shut_down(self, app: web.Application) -> None:
        self.core.faults.release()
        self.control.drop_sockets(close_frame=True, code=1001)

    def close(self) -> None:
        """Stop timers and close the store. The host is not used after this."""
        self.core.close()


@asynccontextmanager
async def serve(
    host: SandboxHost,
    port: int = 0,
    *,
    bind: str = "127.0.0.1",
    control: bool = True,
    page: Insight | bool = False,
) -> AsyncIterator[str]:
    """The base URL of the host while it is on a port; 0 takes a free one. The host is closed at the end.

    ``control`` False leaves ``/_sandbox/`` out, which is open to everybody who reaches the port. ``page`` is that of
    `SandboxHost.application`; the page needs the control surface.
    """
    async with _served(host.application(control=control, page=page), bind, port) as listening:
        host.control.listening = listening
        try:
            yield listening.url
        finally:
            host.control.listening = None
            await listening.close()
    host.close()


@asynccontextmanager
async def serve_control(host: SandboxHost, *, bind: str = "127.0.0.1") -> AsyncIterator[str]:
    """The URL of the host's control surface on a port of its own, which stays open while the host's is closed."""
    async with _served(host.control_application(), bind, 0) as listening:
        yield f"{listening.url}{CONTROL_PREFIX}"


@asynccontextmanager
async def _served(app: web.Application, bind: str, port: int) -> AsyncIterator[Listening]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    listening = Listening(runner, bind, port)
    try:
        await listening.accept()
        yield listening
    finally:
        await listening.close()
        await runner.cleanup()


async def run_hosts(
    domains: Sequence[str],
    *,
    ports: Sequence[int],
    bind: str,
    stop: asyncio.Event,
    announce: Callable[[dict[str, Any]], None],
    sqlite_dir: str | Path | None = None,
    addresses: Sequence[str] = (),
    switches: Switches = Switches(),  # noqa: B008 - a frozen value
    page: Insight | bool = True,
    page_anywhere: bool = False,
) -> None:
    """Serve one host per domain until ``stop`` is set.

    ``ports`` has one port per domain, 0 for any free one; fewer ports are filled up with 0. ``announce`` gets one
    ``{"domain", "url", "page"?, "control", "keys"}`` per host once all of them answer: ``control`` is the URL of the
    control surface, on a port of its own, ``keys`` has a new API key for each of ``addresses`` that belongs there. With
    ``sqlite_dir`` each host keeps its messages in ``<domain>.sqlite`` there, else in memory. Raises `ValueError` for
    domains, ports or addresses that do not go together.

    ``page`` is that of `SandboxHost.application`. It is served on loopback only, unless it may be anywhere.
    """
    if not domains:
        raise ValueError("domains: no domain given; name at least one, for example a.test")
    for domain in domains:
        check_domain(domain)
    if len({lowered(domain) for domain in domains}) != len(domains):
        raise ValueError("domains: a domain is given twice; each host needs its own")
    if len(ports) > len(domains):
        raise ValueError(f"ports: {len(ports)} ports for {len(domains)} domains; give at most one per domain")
    stores = ["memory" if sqlite_dir is None else Path(sqlite_dir) / f"{domain}.sqlite" for domain in domains]
    hosts = [SandboxHost(domain, switches=switches, store=store) for domain, store in zip(domains, stores, strict=True)]
    for address in addresses:
        if not any(host.core.is_local(parse_address(address)) for host in hosts):
            raise ValueError(f"addresses: {address} belongs to none of the domains {', '.join(domains)}")
    hosts[0].federate(*hosts[1:])
    wanted = [*ports, *([0] * (len(hosts) - len(ports)))]
    async with AsyncExitStack() as stack:
        lines = []
        shown = page if page_anywhere or is_loopback(bind) else False
        for host, port in zip(hosts, wanted, strict=True):
            url = await stack.enter_async_context(serve(host, port, bind=bind, page=shown))
            control = await stack.enter_async_context(serve_control(host, bind=bind))
            keys = {address: host.control.create_key(address) for address in addresses if host.core.is_local(address)}
            at = {"page": f"{url}/"} if shown else {}
            lines.append({"domain": host.domain, "url": url, **at, "control": control, "keys": keys})
        for line in lines:
            announce(line)
        await stop.wait()
