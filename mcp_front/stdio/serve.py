"""`serve_stdio`: MCP over standard input and output for one caller.

It answers ``initialize`` and lists with no configuration at all, and does not touch host or store before the first call
that needs them (FMSG-007, stdio Profile). Everything the first call needs (HTTP client, ledger, feed) is imported and
opened then.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from fmsg.errors import BadInput
from mcp_front.drain import Drain
from mcp_front.failures import CORRECT_IT, ToolFailure
from mcp_front.limits import HeldCalls
from mcp_front.listen import Inboxes
from mcp_front.server import Ctx, NotConfigured, build_server, client_name
from mcp_front.settings import FrontSettings
from mcp_front.stdio.file_descriptors import ClientDescriptors
from mcp_front.stdio.messages import LineAnswer, LineReader, cancelled_request, error
from mcp_front.stdio.opening import AlreadyRead
from mcp_front.stdio.pipes import Lines, LineTooLong, Sink, lines_from, sink_to
from mcp_front.tools.context import Progress, ToolContext
from mcp_front.tools.registry import tools_for
from mcp_front.tools.tool import Tool

if TYPE_CHECKING:
    from fmsg.directory import Directory
    from fmsg.http import HostHttp
    from ledger.port import Store
    from mcp_front.callers import KeyCallers
    from mcp_front.waiting.wait import Waiting

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""How long calls that run at the end may go on: waits end at once, a send takes a few requests."""

Backend = Callable[[], "AbstractAsyncContextManager[tuple[Store, HostHttp]]"]
"""Opens the store and the host, and keeps a feed running while the context is open. May import what it needs."""


class _Served:
    """What calls are served with, once it is open."""

    def __init__(self, callers: KeyCallers, store: Store, waiting: Waiting, directory: Directory) -> None:
        self.callers = callers
        self.store = store
        self.waiting = waiting
        self.directory = directory


class StdioRequests:
    """`mcp_front.server.Requests` of stdio: one caller for the whole process, established by the first call."""

    def __init__(
        self, settings: FrontSettings, api_key: str | None, backend: Backend, drain: Drain, fault: str | None
    ) -> None:
        self._settings = settings
        self._fault = fault
        self._api_key = api_key
        self._backend = backend
        self._drain = drain
        self._wanted = asyncio.Event()
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[_Served] | None = None
        self._address: str | None = None

    async def context(self, ctx: Ctx, progress: Progress | None) -> ToolContext:
        served, api_key = await self._served()
        caller = await served.callers.identify(api_key)
        self._address = caller.address
        return ToolContext(
            caller=caller,
            settings=self._settings,
            store=served.store,
            waiting=served.waiting,
            directory=served.directory.for_caller(caller.address),
            progress=progress,
            drain=self._drain,
            client=client_name(ctx),
        )

    async def address(self, ctx: Ctx) -> str | None:
        return self._address

    def may_write(self, ctx: Ctx) -> bool:
        return True

    def name(self, ctx: Ctx) -> str:
        return str(ctx.request_id)

    async def run(self) -> None:
        """Keep the backend open from the first call on, in one task, until `close`."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            ready = self._ready
            if self._closing.is_set() or ready is None:
                return
            try:
                await self._keep(ready)
            except Exception as error:
                if ready.done():
                    # It was open and is no more: the next call opens it anew.
                    log.exception("the backend failed", extra={"action": "backend_failed"})
                elif not ready.cancelled():
                    ready.set_exception(error)
            self._ready = None

    def close(self) -> None:
        """Close the backend, if it is open."""
        self._closing.set()
        self._wanted.set()

    async def _keep(self, ready: asyncio.Future[_Served]) -> None:
        from fmsg.directory import Directory
        from mcp_front.callers import KeyCallers
        from mcp_front.waiting.request import WaitSettings
        from mcp_front.waiting.wait import Waiting

        rng = random.Random()
        try:
            directory = Directory.load(self._settings.directory, self._settings.default_domain)
        except BadInput as error:
            raise ToolFailure("not_configured", str(error), next_step=CORRECT_IT) from None
        async with self._backend() as (store, http):
            callers = KeyCallers(http, self._settings, transport="stdio", clock=time.time, rng=rng)
            wait_settings = WaitSettings(progress_s=self._settings.progress_s, activate_s=self._settings.activate_s)
            waiting = Waiting(store, settings=wait_settings, clock=time.time, rng=rng)
            ready.set_result(_Served(callers, store, waiting, directory))
            try:
                await self._closing.wait()
            finally:
                await callers.aclose()

    async def _served(self) -> tuple[_Served, str]:
        if self._fault is not None:
            raise ToolFailure("not_configured", self._fault, next_step=CORRECT_IT)
        missing = [
            name
            for name, value in (("FMSG_API_URL", self._settings.api_url), ("FMSG_API_KEY", self._api_key))
            if not value
        ]
        if missing or self._api_key is None:
            raise NotConfigured(missing)
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._wanted.set()
        return await asyncio.shield(self._ready), self._api_key


class _Traffic:
    """Requests that are not answered yet."""

    def __init__(self) -> None:
        self._open: set[types.RequestId] = set()
        self._settled = asyncio.Event()
        self._settled.set()

    def came(self, message: types.JSONRPCMessage) -> None:
        """A message from the client."""
        if isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
            self._settled.clear()
        else:
            self._done(cancelled_request(message))

    def went(self, message: types.JSONRPCMessage) -> None:
        """A message to the client."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._done(message.id)

    async def settled(self) -> None:
        """Wait until everything is answered."""
        await self._settled.wait()

    def _done(self, request_id: types.RequestId | None) -> None:
        if request_id is not None:
            self._open.discard(request_id)
        if not self._open:
            self._settled.set()


async def serve_stdio(
    settings: FrontSettings,
    descriptors: ClientDescriptors,
    *,
    api_key: str | None,
    backend: Backend,
    version: str,
    stop: asyncio.Event,
    tools: Mapping[str, Tool] | None = None,
    already_read: AlreadyRead = AlreadyRead(),  # noqa: B008 - a frozen value
    fault: str | None = None,
) -> None:
    """Serve one client until it closes its end or ``stop`` is set; calls that run then are finished.

    ``descriptors`` comes from `mcp_front.stdio.file_descriptors.claim`, called before anything else of the process;
    ``already_read`` from a `mcp_front.stdio.opening.Opening`, if there was one. ``fault`` is what is
    wrong with the environment: every call is answered with it.
    """
    drain = Drain()
    requests = StdioRequests(settings, api_key, backend, drain, fault)
    held_calls = HeldCalls(settings.budgets)
    server = build_server(
        tools_for(settings) if tools is None else tools,
        requests,
        held_calls=held_calls,
        version=version,
        listen=Inboxes(requests, held_calls, drain),
    )
    traffic = _Traffic()
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    # Imported modules live as long as the process, so the collector need not look at them again.
    gc.freeze()
    gc.enable()
    async with (
        lines_from(descriptors.read_fd, first=already_read.data) as lines,
        sink_to(descriptors.write_fd) as sink,
        asyncio.TaskGroup() as tasks,
    ):
        output = _Output(sink, sink.gone)
        serving = tasks.create_task(requests.run())
        tasks.create_task(_write(from_server, output, traffic, already_read))
        session = tasks.create_task(server.run(from_client, to_client, server.create_initialization_options()))
        reading = tasks.create_task(_read(lines, to_server, output, traffic))
        endings = [tasks.create_task(event.wait()) for event in (stop, sink.gone)]
        await asyncio.wait([reading, session, *endings], return_when=asyncio.FIRST_COMPLETED)
        if sink.gone.is_set():
            log.info("the client has gone", extra={"action": "client_gone"})
        for task in (reading, *endings):
            task.cancel()
        drain.set()
        try:
            async with asyncio.timeout(GRACE_S):
                await traffic.settled()
        except TimeoutError:
            log.warning("calls are still running; they are cancelled", extra={"action": "drain_timeout"})
        await to_server.aclose()
        await session
        requests.close()
        await asyncio.wait([serving], timeout=GRACE_S)
        serving.cancel()


async def _read(
    lines: Lines, to_server: MemoryObjectSendStream[SessionMessage | Exception], output: _Output, traffic: _Traffic
) -> None:
    """Messages from the client, up to the end of its output."""
    reader = LineReader()
    while True:
        try:
            line = await lines.next()
        except LineTooLong:
            await output.write(error(None, types.INVALID_REQUEST, "The message is too long.").line)
            continue
        if not line:
            return
        message = reader.read(line)
        if isinstance(message, LineAnswer):
            await output.write(message.line)
        elif message is not None:
            traffic.came(message)
            await to_server.send(SessionMessage(message))


class _Output:
    """Writes whole lines, one at a time, until the client has gone."""

    def __init__(self, sink: Sink, gone: asyncio.Event) -> None:
        self._sink = sink
        self._gone = gone
        self._turn = asyncio.Lock()

    async def write(self, line: bytes) -> None:
        """Write a line; nothing once the client has gone."""
        async with self._turn:
            if self._gone.is_set():
                return
            try:
                await self._sink.write(line + b"\n")
            except OSError:
                self._gone.set()


async def _write(
    from_server: MemoryObjectReceiveStream[SessionMessage],
    output: _Output,
    traffic: _Traffic,
    already_read: AlreadyRead,
) -> None:
    """The server's messages to the client, until the session has ended."""
    said = already_read.request_id
    async with from_server:
        async for outgoing in from_server:
            message = outgoing.message
            if said is not None and getattr(message, "id", None) == said:
                said = None  # The client has this answer already.
            else:
                await output.write(_dumped(message))
            traffic.went(message)


def _dumped(message: types.JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:  # It gives back half a surrogate pair, in an id or a progress token.
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode()
