"""The side port of a process: /metrics for Prometheus, /healthz (the loop turns), /readyz (it can do its work)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from aiohttp import web
from prometheus_client import REGISTRY as PROCESS_REGISTRY
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from telemetry import metrics

LAG_INTERVAL_S = 0.5
"""How often the loop's lag is measured. It shows every stall between two scrapes and costs nothing that matters."""

Ready = Callable[[], Awaitable[str | None]]
"""Returns why the process is not ready, None when it is."""


def exposition(names: Sequence[str] = ()) -> bytes:
    """Metrics in Prometheus text format; those of several front processes are added up.

    ``names`` are the only ones wanted, where there are any: all of them cost milliseconds where files are many.
    """
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
    if names:
        return generate_latest(PROCESS_REGISTRY.restricted_registry(names))
    return generate_latest(PROCESS_REGISTRY)


def application(ready: Ready) -> web.Application:
    """The side port's routes."""

    async def show_metrics(request: web.Request) -> web.Response:
        body = exposition(request.query.getall("name[]", ()))
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def readyz(_request: web.Request) -> web.Response:
        why = await ready()
        return web.json_response({"ready": why is None, "reason": why}, status=200 if why is None else 503)

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


async def measure_loop_lag(interval_s: float = LAG_INTERVAL_S) -> None:
    """Observe how late timers run, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        metrics.LOOP_LAG.observe(max(0.0, loop.time() - due))


@contextlib.asynccontextmanager
async def serving(host: str, port: int | None, *, role: str, version: str, ready: Ready) -> AsyncIterator[int | None]:
    """Serve the side port while the context is open. Gives the bound port, None where none is wanted."""
    metrics.BUILD_INFO.labels(version, role).set(1)
    metrics.UP_SINCE.set(time.time())
    lag = asyncio.create_task(measure_loop_lag())  # cancelled below
    runner = web.AppRunner(application(ready), access_log=None)
    try:
        if port is None:
            yield None
        else:
            await runner.setup()
            site = web.TCPSite(runner, host, port)
            try:
                await site.start()
            except OSError as error:
                where = f"{host} port {port} (FMSG_METRICS_HOST, FMSG_METRICS_PORT)"
                raise OSError(error.errno, f"{where} cannot be bound: {error.strerror}") from None
            bound: tuple[str, int] = runner.addresses[0]
            yield bound[1]
    finally:
        lag.cancel()
        await runner.cleanup()
