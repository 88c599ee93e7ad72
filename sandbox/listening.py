"""The port of a host. It can refuse connections and take them again under the same number."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

_BACKLOG = 4096
"""Connects of a load test come by the thousand; the usual 128 would drop some of them."""


_REBINDS = 100
"""Tries to get the port back: uvloop closes a listening socket some turns of the loop later."""

_REBIND_S = 0.01
"""Time between such tries."""


class Listening:
    """One application on one port. While it refuses, the port stays bound, so that nobody else gets it."""

    def __init__(self, runner: web.AppRunner, bind: str, port: int) -> None:
        self.address = bind
        """The interface."""
        self.port = port
        """The port, known once it listened."""
        self._runner = runner
        self._site: web.SockSite | None = None
        self._reserved: socket.socket | None = None
        self._restart: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"

    async def accept(self) -> None:
        """Listen, unless it does already."""
        if self._site is not None:
            return
        sock = self._reserved or self._bound()
        self._reserved = None
        self.port = sock.getsockname()[1]
        self._site = web.SockSite(self._runner, sock, backlog=_BACKLOG)
        await self._site.start()

    async def refuse(self, *, spare: asyncio.BaseTransport | None = None) -> None:
        """Refuse connections and abort the open ones, all but ``spare``."""
        if self._site is None:
            return
        site, self._site = self._site, None
        await site.stop()
        self._reserved = await self._bound_again()
        self.abort_connections(spare=spare)

    def abort_connections(self, *, spare: asyncio.BaseTransport | None = None) -> int:
        """Abort the open connections, all but ``spare``. Returns how many."""
        server = self._runner.server
        transports = [item.transport for item in server.connections] if server is not None else []
        doomed = [item for item in transports if item is not None and item is not spare]
        for transport in doomed:
            transport.abort()
        return len(doomed)

    def restart(self, down_s: float, *, spare: asyncio.BaseTransport | None = None) -> None:
        """Refuse connections for ``down_s``. What is stored stays."""
        if self._restart is None or self._restart.done():
            # Awaited or cancelled by `close`.
            self._restart = asyncio.get_running_loop().create_task(self._down(down_s, spare))

    async def _down(self, down_s: float, spare: asyncio.BaseTransport | None) -> None:
        await self.refuse(spare=spare)
        await asyncio.sleep(down_s)
        await self.accept()

    async def close(self) -> None:
        """End a restart that is going on. Free a port that was kept."""
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.wait({self._restart})
        if self._reserved is not None:
            self._reserved.close()

    async def _bound_again(self) -> socket.socket:
        for _ in range(_REBINDS):
            try:
                return self._bound()
            except OSError:
                await asyncio.sleep(_REBIND_S)
        return self._bound()

    def _bound(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self.address, self.port))
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"{self.address} port {self.port}: {error.strerror}") from None
        return sock


def is_loopback(bind: str) -> bool:
    """Whether an address to bind is reached from this machine alone."""
    return bind in ("localhost", "::1") or bind.startswith("127.")
