"""What the sandbox's page shows of the agents: how to connect them, and what the agent of an address sees.

Agents are given the URL of an `Observer`, which passes every request on to the front and notes the waits among them:
when each began and ended, and the ids it returned. It keeps no text.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from ledger.port import LedgerError
from ledger.store import RedisStore
from ledger.values import caller_key
from mcp_front.tools.wait import SETTLE_S
from ops.caller.view import look_at
from ops.connect import ServerTarget, snippets
from sandbox.control import Control
from sandbox.page import NoInsight

WAITS_SHOWN = 8
"""Waits of an address that the page shows, the newest first."""

_REQUEST_BYTES = 64 * 1024 * 1024
"""Above what a front takes, so that the front answers for itself."""

_NOT_PASSED_ON = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
"""Headers of one connection, not of the request."""


class SeenWait(msgspec.Struct, kw_only=True):
    """A call of `wait_for_message`. Times are POSIX seconds; ``ended_s`` is None while it is held."""

    number: int
    started_s: float
    timeout_s: float
    settle_s: float
    ended_s: float | None = None
    outcome: str = ""
    ids: list[str] = msgspec.field(default_factory=list)
    again: int = 0
    after_id: str = ""
    transport: str = ""
    note: str = ""


class SeenWaits:
    """The waits of one address, and how often each message was returned."""

    def __init__(self, received: int) -> None:
        self.received_before = received
        """Messages that were there before the first wait, which do not count."""
        self.waits: deque[SeenWait] = deque(maxlen=WAITS_SHOWN)
        self.returned: Counter[str] = Counter()
        """How often each message was returned without a mark."""
        self.marked = 0
        """Messages returned again with a mark."""
        self._number = 0

    def begin(self, arguments: Mapping[str, Any]) -> SeenWait:
        """A call came."""
        self._number += 1
        wait = SeenWait(
            number=self._number,
            started_s=time.time(),
            timeout_s=float(arguments.get("timeout_seconds") or 50),
            settle_s=float(arguments.get("settle_seconds") or SETTLE_S),
        )
        self.waits.appendleft(wait)
        return wait

    def end(self, wait: SeenWait, result: Mapping[str, Any] | None) -> None:
        """A call was answered with this JSON-RPC result. None where it was not."""
        wait.ended_s = time.time()
        fields = (result or {}).get("structuredContent") or {}
        if result is None:
            wait.outcome = "left"
        elif result.get("isError") or "status" not in fields:
            wait.outcome = "failed"
        else:
            wait.outcome, wait.after_id = fields["status"], str(fields["after_id"])
            wait.transport = fields.get("transport", "")
            wait.note = " ".join(fields.get("notes", ()))
            for message in fields["messages"]:
                wait.ids.append(message["id"])
                if message.get("already_returned") or message.get("redelivered"):
                    wait.again += 1
                else:
                    self.returned[message["id"]] += 1
            self.marked += wait.again

    def counts(self, received: int) -> dict[str, int]:
        """Sent since the first wait, returned, and returned twice without a mark."""
        twice = sum(count - 1 for count in self.returned.values())
        sent = received - self.received_before
        return {"sent": sent, "returned": len(self.returned), "twice": twice, "marked": self.marked}


class Observer:
    """Passes MCP requests on to a front, and notes the waits among them by the address of their key."""

    def __init__(self, control: Control) -> None:
        self.front_url = ""
        """Where the requests go."""
        self.url = ""
        """For agents, once it is served."""
        self._control = control
        self._session: aiohttp.ClientSession | None = None
        self.seen: dict[str, SeenWaits] = {}
        """By address."""

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """The URL for agents, while it is served on loopback."""
        app = web.Application(client_max_size=_REQUEST_BYTES)
        app.router.add_route("*", "/mcp", self._pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        try:
            # No time limit, since a wait is held for minutes. The body goes out as it came in.
            async with aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
            ) as self._session:
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
                yield self.url
                await runner.cleanup()
        finally:
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        waits, wait = self._begin(request, body)
        heard = bytearray()
        answered = False
        try:
            response = await self._forward(request, body, heard if wait is not None else None)
            answered = True
            return response
        finally:
            if waits is not None and wait is not None:
                waits.end(wait, result_in(bytes(heard)) if answered else None)

    async def _forward(self, request: web.Request, body: bytes, heard: bytearray | None) -> web.StreamResponse:
        assert self._session is not None  # noqa: S101 - requests come while it is served
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        if heard is not None:
            headers["Accept-Encoding"] = "identity"
        try:
            async with self._session.request(request.method, self.front_url, data=body, headers=headers) as answer:
                response = web.StreamResponse(status=answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in _NOT_PASSED_ON:
                        response.headers.add(name, value)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    if heard is not None:
                        heard += chunk
                    await response.write(chunk)
                await response.write_eof()
                return response
        except aiohttp.ClientConnectionError:
            return web.Response(status=502, text="The front does not answer. Try again.")

    def _begin(self, request: web.Request, body: bytes) -> tuple[SeenWaits | None, SeenWait | None]:
        key = request.headers.get("Authorization", "").partition(" ")[2]
        try:
            call = msgspec.json.decode(body) if body else {}
            params = call["params"] if isinstance(call, dict) and call.get("method") == "tools/call" else {}
            address = self._control.owner_of(key) if params.get("name") == "wait_for_message" else None
        except (msgspec.DecodeError, KeyError, AttributeError):
            return None, None
        if address is None:
            return None, None
        arguments = params.get("arguments") or {}
        waits = self.seen.get(address)
        if waits is None:
            before = 0 if arguments.get("after_id") == "0" else self._control.received(address)
            waits = self.seen[address] = SeenWaits(before)
        return waits, waits.begin(arguments)


def result_in(answer: bytes) -> Mapping[str, Any]:
    """The JSON-RPC result in an answer, which is JSON or a stream of events; an empty one where there is none."""
    for line in answer.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            frame = msgspec.json.decode(line.removeprefix(b"data:").strip())
            if isinstance(frame, dict) and isinstance(frame.get("result"), dict):
                return dict(frame["result"])
    return {}


class Snippets(NoInsight):
    """Insight into a host by itself: how to connect an agent that is a process of its own."""

    def snippets(self, address: str, key: str, *, api_url: str) -> Sequence[Mapping[str, str]]:
        """For a process that the agent host starts."""
        return _plain(ServerTarget(api_url=api_url, key=key))


class FleetInsight:
    """Insight into a host whose agents use a front that is observed."""

    def __init__(
        self,
        control: Control,
        observer: Observer,
        *,
        store: RedisStore,
        faults: Mapping[str, tuple[str, Callable[[], Awaitable[None]]]],
    ) -> None:
        self.api_url = ""
        """The host's, as the fleet knows it."""
        self.faults: Mapping[str, str] = {name: title for name, (title, _) in faults.items()}
        self._strikes = {name: strike for name, (_, strike) in faults.items()}
        self._control = control
        self._observer = observer
        self._store = store
        self._striking = asyncio.Lock()

    def snippets(self, address: str, key: str, *, api_url: str) -> Sequence[Mapping[str, str]]:
        """For the observed front."""
        return _plain(ServerTarget(url=self._observer.url, api_url=api_url, key=key))

    async def look(self, address: str) -> Mapping[str, Any] | None:
        """The feed and the newest entries of the ledger as the store has them, and the waits as they were observed."""
        seen = self._observer.seen.get(address) or SeenWaits(self._control.received(address))
        looked: dict[str, Any] = {"feed": None, "entries": [], "waits": list(seen.waits)}
        try:
            view = await look_at(self._store, address=address, caller=caller_key(self.api_url, address))
        except LedgerError as error:
            looked["feed"] = {"state": "store away", "live": False, "error": str(error)}
        else:
            if view.feed is not None:
                looked["feed"] = {"state": view.feed.state, "live": view.feed.live, "error": view.feed.error}
            if view.ledger is not None:
                looked["entries"] = [
                    {"id": entry.id, "arrived_at_s": entry.arrived_at_s, "source": entry.source}
                    for entry in (*view.ledger.head, *view.ledger.tail)
                ]
        return looked | {"counts": seen.counts(self._control.received(address))}

    async def strike(self, name: str) -> None:
        """One fault after another."""
        strike = self._strikes[name]
        async with self._striking:
            await strike()


def _plain(target: ServerTarget) -> list[dict[str, str]]:
    return [{"title": one.title, "where": one.where, "text": one.text, "then": one.then} for one in snippets(target)]
