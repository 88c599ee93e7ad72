"""The yardstick: an ASGI application that does next to nothing, on the same server, in the same run.

``/hold`` is answered when ``/release`` is asked for, ``/answer`` at once, ``/list`` after the same request to the host
that `list_messages` makes. Everything our front does above this is what ours costs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import uvicorn

from ops.processes import announce
from ops.role import run_role
from ops.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TOKEN_VARIABLE = "_FMSG_MCPD_BENCH_TOKEN"  # noqa: S105 - the name of a variable
"""Brings the yardstick its token: a command line can be read by everybody on the machine."""

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{},"isError":false}}'

_BACKLOG = 4096


class Bare:
    """The application."""

    def __init__(self, api_url: str, token: str) -> None:
        self._list_url = f"{api_url}/fmsg?limit=20"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None
        self._released = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        path = scope["path"]
        body = ANSWER
        if path == "/hold":
            await self._released.wait()
        elif path == "/release":
            released, self._released = self._released, asyncio.Event()
            released.set()
        elif path == "/list":
            body = await self._list()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
            }
        )
        await send({"type": "http.response.body", "body": body})

    async def _list(self) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), raise_for_status=True
            )
        async with self._session.get(self._list_url, headers=self._headers) as answer:
            await answer.read()
        return ANSWER

    async def aclose(self) -> None:
        """Close the connections to the host."""
        if self._session is not None:
            await self._session.close()


def bare() -> int:
    """Serve the yardstick on a free port of the loopback interface until a signal comes."""
    return run_role("bench-bare", _serve)


async def _serve(settings: Settings, stop: asyncio.Event) -> None:
    application = Bare(settings.need_api_url(), os.environ.pop(TOKEN_VARIABLE, ""))
    config = uvicorn.Config(
        application, lifespan="off", log_config=None, access_log=False, backlog=_BACKLOG, timeout_keep_alive=75
    )
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    async with asyncio.TaskGroup() as group:
        # uvicorn's `serve` would take our signals.
        group.create_task(server._serve(sockets=[listening]))
        gc.collect()
        gc.freeze()
        announce(bare_url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        await stop.wait()
        server.should_exit = server.force_exit = True
    await application.aclose()
