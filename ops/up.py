"""`fmsg-mcpd up`: a front, a daemon and the jobs in one process, with a redis-server of its own where none is named."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from pathlib import Path

import msgspec

from daemon.daemon import Daemon
from ledger.embedded import EmbeddedRedis
from mcp_front.http.admission import HostGate, OriginGate
from mcp_front.http.serve import serve_http
from mcp_front.settings import FrontSettings
from ops import parts, tracing
from ops.attended import Readiness, attended
from ops.own_redis import keep_running, own_redis
from ops.presence import process_name
from ops.processes import announce
from ops.role import mcp_url, raise_limit, run_role
from ops.settings import SettingError, Settings
from workers.worker import run_worker

log = logging.getLogger(__name__)


def up(*, host: str | None, port: int | None, data_dir: str | None) -> int:
    """Run everything until a signal comes."""

    directory = None if data_dir is None else Path(data_dir).expanduser().resolve()

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        if settings.workers > 1:
            raise SettingError(
                "FMSG_MCP_WORKERS: `up` is one process. For more run `fmsg-mcpd front --workers N` and "
                "`fmsg-mcpd daemon` on one FMSG_REDIS_URL."
            )
        if directory is not None and settings.redis_url is not None:
            raise SettingError(
                "--data-dir is where a Redis of `up` itself keeps its data, and FMSG_REDIS_URL names another Redis. "
                "Leave one of them out."
            )
        # Wrong settings are reported before a server is started.
        front_settings = parts.front_settings(settings, host=host, port=port)
        HostGate(front_settings.http.host, front_settings.http.allowed_hosts)
        OriginGate(front_settings.http.allowed_origins)
        parts.host_http(settings)
        settings = parts.with_seal_key(settings)
        if settings.redis_url is not None:
            await _serve(settings, front_settings, server=None, kept=False, stop=stop)
            return
        async with own_redis(directory) as server:
            settings = msgspec.structs.replace(settings, redis_url=server.url)
            await _serve(settings, front_settings, server=server, kept=directory is not None, stop=stop)

    return run_role("up", serve)


async def _serve(
    settings: Settings, front_settings: FrontSettings, *, server: EmbeddedRedis | None, kept: bool, stop: asyncio.Event
) -> None:
    raise_limit()
    worker_settings = msgspec.structs.replace(parts.worker_settings(settings), queue_url=None)
    rng = random.Random()
    async with parts.host_http(settings) as http, parts.redis_store(settings) as store:
        daemon = Daemon(
            store,
            http,
            name=process_name(),
            settings=parts.daemon_settings(settings),
            orders=store.orders,
            clock=time.time,
            rng=rng,
        )
        front_done = asyncio.Event()

        readiness = Readiness(store, stop)
        async with attended(
            settings,
            store,
            stop,
            role="up",
            side_port=settings.metrics_port,
            readiness=readiness,
            own_redis=server is not None,
        ) as metrics_port:

            def started(bound_host: str, bound_port: int) -> None:
                url = mcp_url(bound_host, bound_port, front_settings.http.path)
                announce(front=os.getpid(), daemon=os.getpid(), mcp_url=url, metrics_port=metrics_port)
                log.info("serving", extra={"action": "serving", "url": url})

            async def front() -> None:
                try:
                    async with tracing.running() as traced:
                        await serve_http(
                            front_settings,
                            store,
                            http,
                            stop=stop,
                            started=started,
                            store_ready=readiness.store_ready,
                            seal=parts.seal_keys(settings),
                            traced=traced,
                        )
                finally:
                    front_done.set()

            async with asyncio.TaskGroup() as group:
                group.create_task(front())
                # The daemon stops after the front: waits that are being answered still need their feeds.
                group.create_task(daemon.run(front_done))
                group.create_task(run_worker(worker_settings, store, http, stop=stop))
                if server is not None:
                    group.create_task(keep_running(server, kept=kept, rng=rng, stop=front_done))
