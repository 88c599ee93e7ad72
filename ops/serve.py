"""The parts of a fleet as processes: `front`, `daemon` and `worker`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from ops.role import mcp_url, raise_limit, run_role
from ops.settings import Settings

log = logging.getLogger("ops.serve")


def daemon() -> int:
    """Run a daemon until a signal comes."""

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        import random
        import time

        from daemon.daemon import Daemon
        from ops import parts
        from ops.attended import Readiness, attended
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
