"""What a stdio server is served with: the memory ledger (or Redis, where one is named), a daemon and the jobs."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mcp_front.stdio.file_descriptors import ClientDescriptors
from mcp_front.stdio.opening import AlreadyRead
from mcp_front.stdio.serve import serve_stdio
from ops.settings import Settings, unknown
from ops.stdio_settings import stdio_settings
from ops.version import version

if TYPE_CHECKING:
    from fmsg.http import HostHttp
    from ledger.port import Store

log = logging.getLogger(__name__)

FIRST_CALL = (
    "daemon.daemon",
    "ledger.memory",
    "mcp_front.callers",
    "mcp_front.waiting.wait",
    "ops.parts",
    "workers.worker",
)
"""Modules that the first call needs. With what they import they take 0.2 s."""


async def serve(
    settings: Settings, descriptors: ClientDescriptors, already_read: AlreadyRead, *, fault: str | None = None
) -> int:
    """Serve the client at the other end. Returns the exit status. ``fault``: a setting that is wrong."""
    stop = asyncio.Event()
    if sys.platform != "win32":
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, _on_signal, stop, signum)
    for sentence in unknown():
        log.warning(sentence, extra={"action": "unknown_setting"})
    # The agent thinks before its first call. Failures to import are for that call.
    rest = asyncio.get_running_loop().run_in_executor(None, _import_the_rest)
    await serve_stdio(
        stdio_settings(settings),
        descriptors,
        api_key=settings.api_key,
        backend=lambda: backend(settings),
        version=version(),
        stop=stop,
        already_read=already_read,
        fault=fault,
    )
    await asyncio.wait([rest])
    return 0


def _import_the_rest() -> None:
    for name in FIRST_CALL:
        importlib.import_module(name)


def _on_signal(stop: asyncio.Event, signum: int) -> None:
    if stop.is_set():
        os._exit(128 + signum)
    stop.set()


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Store, HostHttp]]:
    """The host and the store. A setting that cannot be used is a failure that the agent can tell its user about."""
    from ledger.memory import MemoryStore
    from ledger.seal import SealKeyInvalid
    from mcp_front.failures import CORRECT_IT, ToolFailure
    from ops import parts
    from ops.settings import SettingError

    async with contextlib.AsyncExitStack() as stack:
        try:
            http = await stack.enter_async_context(parts.host_http(settings))
            if settings.redis_url is None:
                store: Store = await stack.enter_async_context(MemoryStore(limits=parts.limits(settings)))
            else:
                store = await stack.enter_async_context(parts.redis_store(parts.with_seal_key(settings)))
        except (SettingError, SealKeyInvalid) as error:
            raise ToolFailure("not_configured", str(error), next_step=CORRECT_IT) from None
        yield store, http


@contextlib.asynccontextmanager
async def backend(settings: Settings) -> AsyncIterator[tuple[Store, HostHttp]]:
    """The store and the host, with a feed and the jobs running in this process while the context is open."""
    from daemon.daemon import Daemon
    from ops import parts
    from workers.settings import WorkerSettings
    from workers.worker import run_worker

    async with contextlib.AsyncExitStack() as stack:
        store, http = await stack.enter_async_context(_opened(settings))
        stop = asyncio.Event()
        daemon = Daemon(store, http, name=f"stdio-{os.getpid()}", settings=parts.daemon_settings(settings))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(daemon.run(stop))
        tasks.create_task(run_worker(WorkerSettings(queue_url=None), store, http, stop=stop))
        try:
            yield store, http
        finally:
            stop.set()
