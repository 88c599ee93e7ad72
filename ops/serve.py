"""The long-running parts as processes, settings in and signals out: `front`, `daemon` and `worker`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator

from ops.settings import SettingError, Settings, load, unknown

log = logging.getLogger("ops.serve")

Serve = Callable[[Settings, asyncio.Event], Awaitable[None]]
"""Runs a part until the event is set."""


def run_role(role: str, serve: Serve, *, own_signals: bool = True) -> int:
    """Run a part with logs, an event loop and signals; returns the exit status.

    The first SIGINT or SIGTERM sets the part's stop event, a second one ends the process at once.
    """
    from ledger.embedded import NoServer
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
    return_status = 0
    try:
        _run(settings, serve, own_signals=own_signals)
    except* (SettingError, LedgerUnavailable, NoServer, ValueError, OSError) as group:
        for leaf in _leaves(group):
            if isinstance(leaf, ValueError) and type(leaf) is ValueError:
                raise
            log.error(str(leaf), extra={"action": "cannot_start"})
        return_status = 2
    except* KeyboardInterrupt:
        return_status = 130
    return return_status


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for leaf in group.exceptions:
        if isinstance(leaf, BaseExceptionGroup):
            yield from _leaves(leaf)
        else:
            yield leaf


def _run(settings: Settings, serve: Serve, *, own_signals: bool) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        if own_signals:
            _stop_on_signals(stop)
        await serve(settings, stop)
        log.info("stopped", extra={"action": "stopped"})

    with contextlib.ExitStack() as stack:
        if sys.platform == "win32":
            runner = stack.enter_context(asyncio.Runner())
        else:
            import uvloop

            runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(main())


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(signum: int) -> None:
        if stop.is_set():
            os._exit(128 + signum)
        log.info(
            "stopping; once more ends it at once", extra={"action": "stopping", "signal": signal.Signals(signum).name}
        )
        stop.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal, signum)


def daemon() -> int:
    """Run a daemon until a signal comes."""

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        import random
        import time

        from daemon.daemon import Daemon
        from ops import parts
        from ops.attended import Readiness, attended
        from ops.open_files import raise_limit
        from ops.presence import process_name
        from ops.processes import announce

        raise_limit()
        async with parts.host_http(settings) as http, parts.redis_store(settings) as store:
            running = Daemon(
                store,
                http,
                name=process_name(),
                settings=parts.daemon_settings(settings),
                orders=store.orders,
                clock=time.time,
                rng=random.Random(),
            )
            readiness = Readiness(store, stop, work=running.unsettled)
            async with attended(
                settings, store, stop, role="daemon", side_port=settings.metrics_port, readiness=readiness
            ) as port:
                announce(daemon=os.getpid(), metrics_port=port)
                await running.run(stop)

    return run_role("daemon", serve)


def worker() -> int:
    """Run a worker until a signal comes."""

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        from ops import parts
        from ops.attended import attended
        from ops.processes import announce
        from workers.worker import run_worker

        async with (
            parts.host_http(settings) as http,
            parts.redis_store(settings) as store,
            attended(settings, store, stop, role="worker", side_port=settings.metrics_port) as port,
        ):
            announce(worker=os.getpid(), metrics_port=port)
            await run_worker(parts.worker_settings(settings), store, http, stop=stop)

    return run_role("worker", serve)


def front(*, host: str | None, port: int | None, workers: int | None, fd: int | None) -> int:
    """Run a front until a signal comes; with several workers, as many processes on one port.

    ``fd`` is a listening socket that the process was given by the one that started it.
    """

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        from ops import parts, tracing
        from ops.attended import Readiness, attended
        from ops.processes import announce

        front_settings = parts.front_settings(settings, host=host, port=port)
        parts.seal_keys(settings)
        count = settings.workers if workers is None else workers
        if fd is None and count > 1:
            from ops.replicas import run_replicas

            await run_replicas(settings, front_settings, count=count, stop=stop)
            return
        from mcp_front.http.serve import serve_http

        async with parts.host_http(settings) as http, parts.redis_store(settings) as store:
            sockets = None if fd is None else [socket.socket(fileno=fd)]
            side_port = None if fd is not None else settings.metrics_port
            readiness = Readiness(store, stop)
            async with attended(
                settings, store, stop, role="front", side_port=side_port, readiness=readiness
            ) as metrics_port:

                def started(bound_host: str, bound_port: int) -> None:
                    url = mcp_url(bound_host, bound_port, front_settings.http.path)
                    announce(front=os.getpid(), mcp_url=url, metrics_port=metrics_port)
                    log.info("serving", extra={"action": "serving", "url": url})

                async with tracing.running() as traced:
                    await serve_http(
                        front_settings,
                        store,
                        http,
                        stop=stop,
                        sockets=sockets,
                        started=started,
                        store_ready=readiness.store_ready,
                        seal=parts.seal_keys(settings),
                        traced=traced,
                    )

    return run_role("front", serve)


def mcp_url(host: str, port: int, path: str) -> str:
    """The URL a client on this machine uses for a bound address."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}{path}"
