"""The long-running parts as processes, settings in and signals out: `front`, `daemon` and `worker`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable

from ledger.port import Store
from ops.settings import SettingError, Settings, load, unknown

log = logging.getLogger("ops.serve")

Serve = Callable[[Settings, asyncio.Event], Awaitable[None]]
"""Runs a part until the event is set."""


READY_TIMEOUT_S = 2.0
"""A readiness probe answers before its own usual deadline of a few seconds."""


def run_role(role: str, serve: Serve, *, own_signals: bool = True) -> int:
    """Run a part with logs, an event loop and signals; returns the exit status.

    The first SIGINT or SIGTERM sets the part's stop event, a second one ends the process at once.
    """
    from ledger.port import LedgerUnavailable
    from telemetry import logs

    try:
        settings = load()
    except SettingError as error:
        print(f"fmsg-mcpd {role}: {error}", file=sys.stderr)
        return 2
    logs.configure(log_format=settings.log_format, level=settings.log_level, role=role)
    for sentence in unknown():
        log.warning(sentence, extra={"action": "unknown_setting"})
    try:
        _run(role, settings, serve, own_signals=own_signals)
    except (SettingError, LedgerUnavailable, ValueError) as error:
        log.error(str(error), extra={"action": "cannot_start"})
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _run(role: str, settings: Settings, serve: Serve, *, own_signals: bool) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        if own_signals:
            _stop_on_signals(stop, role)
        await serve(settings, stop)
        log.info("stopped", extra={"action": "stopped"})

    with contextlib.ExitStack() as stack:
        if sys.platform == "win32":
            runner = stack.enter_context(asyncio.Runner())
        else:
            import uvloop

            runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(main())


def _stop_on_signals(stop: asyncio.Event, role: str) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(signum: int) -> None:
        if stop.is_set():
            os._exit(128 + signum)
        log.info("stopping; once more ends it at once", extra={"action": "stopping", "part": role, "signal": signum})
        stop.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal, signum)


def daemon() -> int:
    """Run a daemon until a signal comes."""

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        import random
        import time

        from daemon.daemon import Daemon
        from ops import health, parts
        from ops.processes import announce
        from ops.version import version

        async with parts.host_http(settings) as http, parts.redis_store(settings) as store:
            await store.ping()
            running = Daemon(
                store,
                http,
                name=f"{socket.gethostname()}-{os.getpid()}",
                settings=parts.daemon_settings(settings),
                clock=time.time,
                rng=random.Random(),
            )

            async def ready() -> str | None:
                return await _store_ready(store)

            async with health.serving(
                settings.metrics_host, settings.metrics_port, role="daemon", version=version(), ready=ready
            ) as port:
                announce(daemon=os.getpid(), metrics_port=port)
                await running.run(stop)

    return run_role("daemon", serve)


async def _store_ready(store: Store) -> str | None:
    """None if Redis can be written and read, else why the process is not ready."""
    from ledger.port import LedgerUnavailable

    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await store.ping()
    except (LedgerUnavailable, TimeoutError) as error:
        return f"Redis cannot be used: {error or 'no answer in time'}"
    return None
