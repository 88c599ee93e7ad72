"""A host that answers as a test tells it to, on a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from fmsg.tokens import AccessToken

KEY = "fmsgk_5dQ1kZ_aB3+cD/eF9gHiJkLmNoPqRsTuVwXyZ012345678="
"""An API key as hosts make them: standard base64 after the prefix."""

ALICE = "@alice@a.test"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def jwt(address: str = ALICE, *, serial: int = 0, **claims: Any) -> str:
    """A token of the shape hosts give, unsigned."""
    payload = {"sub": address, "iat": 1_000.0, "exp": 4_600.0, "jti": serial, **claims}
    parts = [{"alg": "HS256", "typ": "JWT"}, payload]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJlLXNlY3JldC1wYXJ0"])


def access_token(address: str = ALICE, *, serial: int = 0, expires_at_s: float = 4_600.0) -> AccessToken:
    """A token that a test hands to the client itself."""
    return AccessToken(value=jwt(address, serial=serial), address=address, expires_at_s=expires_at_s)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request that the host got."""

    method: str
    path: str
    headers: dict[str, str]
    data: bytes

    @property
    def bearer(self) -> str:
        """The credential without the word before it."""
        return self.headers["Authorization"].removeprefix("Bearer ")

    def json(self) -> Any:
        """The body."""
        return json.loads(self.data)


class FakeHost:
    """Routes are set with `on` and may be set again; what was asked is in ``asked``, in order."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.exchanges = 0
        self._routes: dict[tuple[str, str], Handler] = {}
        self.on("POST", "/fmsg/token", self._exchange)

    def on(self, method: str, path: str, handler: Handler) -> None:
        """Answer requests for a path (percent-encoded, without query) with a handler."""
        self._routes[method, path] = handler

    def answer(
        self, method: str, path: str, value: object = None, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer requests for a path with a JSON value; bytes are sent as they are."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()

        async def handler(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, body=data, headers=headers, content_type="application/json")

        self.on(method, path, handler)

    def in_turn(self, method: str, path: str, *answers: tuple[int, object]) -> None:
        """Answer the first request with the first (status, JSON value), and so on; the last one stays."""
        left = list(answers)

        async def handler(request: web.Request) -> web.StreamResponse:
            status, value = left.pop(0) if len(left) > 1 else left[0]
            return web.json_response(value, status=status)

        self.on(method, path, handler)

    def paths(self) -> list[str]:
        """What was asked, tokens left out: ``GET /fmsg/1``."""
        return [f"{asked.method} {asked.path}" for asked in self.asked if asked.path != "/fmsg/token"]

    async def _exchange(self, request: web.Request) -> web.StreamResponse:
        self.exchanges += 1
        token = jwt(serial=self.exchanges)
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": 3600})

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        upgrade = "Upgrade" in request.headers
        data = b"" if upgrade else await request.read()
        self.asked.append(
            Asked(method=request.method, path=request.rel_url.raw_path_qs, headers=dict(request.headers), data=data)
        )
        handler = self._routes.get((request.method, request.rel_url.raw_path))
        if handler is None:
            return web.json_response({"error": f"no route {request.rel_url.raw_path}"}, status=404)
        return await handler(request)


@asynccontextmanager
async def serve(host: FakeHost | None = None) -> AsyncIterator[FakeHost]:
    """Run a host on a free port of this machine."""
    running = host or FakeHost()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", running._dispatch)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        running.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield running
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(answer: bytes, *, stay: bool = False, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port that answers a connection's first bytes with these, whatever was asked, then hangs up or says no more."""
    done = asyncio.Event()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        if stay:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=ssl_context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        done.set()
        server.close()
        await server.wait_closed()


def never(entered: asyncio.Event | None = None) -> Handler:
    """A handler that does not answer until its client has gone."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if entered is not None:
            entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    return handler


async def stream(*chunks: bytes, then: BaseException | None = None, held: bool = False) -> AsyncIterator[bytes]:
    """The chunks, and then silence or an error."""
    for chunk in chunks:
        yield chunk
    if held:
        await asyncio.Event().wait()
    if then is not None:
        raise then


def sent_file(data: bytes) -> tuple[str, bytes]:
    """Name and bytes of the one file in a form."""
    boundary, _, rest = data.partition(b"\r\n")
    head, _, rest = rest.partition(b"\r\n\r\n")
    body, _, _ = rest.rpartition(b"\r\n" + boundary + b"--\r\n")
    assert head.startswith(b'Content-Disposition: form-data; name="file"; filename="')
    name = head.split(b'filename="', 1)[1].split(b'"\r\n', 1)[0].decode()
    return name.replace('\\"', '"').replace("\\\\", "\\"), body


async def takes_a_file(request: web.Request) -> web.StreamResponse:
    """An attachment route that renames what it gets."""
    name, body = sent_file(await request.read())
    return web.json_response({"filename": f"kept {name}", "size": len(body)}, status=201)
