"""Several front processes on one port. This process holds the port and replaces the ones that end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from prometheus_client import multiprocess

from ledger.store import RedisStore
from mcp_front.http.admission import HostGate, OriginGate
from mcp_front.http.serve import KERNEL_SHARES_OUT, address_of, bind, reserve_port, sibling_socket
from mcp_front.settings import FrontSettings
from ops import health, parts
from ops.attended import Readiness
from ops.presence import tell_ended
from ops.processes import PARENT_VARIABLE, announce
from ops.role import mcp_url
from ops.settings import Settings
from ops.version import version

log = logging.getLogger(__name__)

RESTART_S = 1.0
"""A replica that ended is started again after so long: soon enough for callers, and late enough that one that cannot
start does not use up a core."""

OPENED_S = 0.05
"""Between looks whether the first process accepts connections. It needs about a second to start."""

METRICS_DIR_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


async def run_replicas(settings: Settings, front_settings: FrontSettings, *, count: int, stop: asyncio.Event) -> None:
    """Run ``count`` front processes until ``stop`` is set; then all drain at the same time.

    Raises `LedgerUnavailable` where Redis cannot be used: they could not start, and their port would take callers in.
    """
    HostGate(front_settings.http.host, front_settings.http.allowed_hosts)
    OriginGate(front_settings.http.allowed_origins)
    async with contextlib.AsyncExitStack() as stack:
        store = parts.redis_store(settings)
        stack.push_async_callback(store.topology.aclose)
        await store.ping()
        door = reserve_port(front_settings) if KERNEL_SHARES_OUT else bind(front_settings)[0]
        stack.callback(door.close)
        metrics_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="fmsg-metrics-"))
        os.environ[METRICS_DIR_VARIABLE] = metrics_dir
        ready = Readiness(store, stop).why_not
        serving = health.serving(
            settings.metrics_host, settings.metrics_port, role="front", version=version(), ready=ready
        )
        metrics_port = await stack.enter_async_context(serving)
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(_keep_replica(number, door, Path(metrics_dir), store, stop))
            host, port = address_of([door])
            await _opened(host, port, stop)
            announce(
                front=os.getpid(), mcp_url=mcp_url(host, port, front_settings.http.path), metrics_port=metrics_port
            )


async def _opened(host: str, port: int, stop: asyncio.Event) -> None:
    """Return once connections are accepted, or ``stop`` is set."""
    while not stop.is_set():
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(OPENED_S)


async def _keep_replica(
    number: int, door: socket.socket, metrics_dir: Path, store: RedisStore, stop: asyncio.Event
) -> None:
    while not stop.is_set():
        process = await _replica(door, metrics_dir)
        ended, stopping = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())  # both awaited below
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.send_signal(signal.SIGTERM)
        stopping.cancel()
        status = await ended
        multiprocess.mark_process_dead(process.pid, os.fspath(metrics_dir))  # type: ignore[no-untyped-call]
        if not stop.is_set():
            log.warning(
                "a front process ended and is started again",
                extra={"action": "replica_ended", "replica": number, "status": status},
            )
            await asyncio.gather(tell_ended(store, role="front", pid=process.pid), asyncio.sleep(RESTART_S))


async def _replica(door: socket.socket, metrics_dir: Path) -> asyncio.subprocess.Process:
    """Start a front process with a listening socket of its own, so that a dead process's socket gets no callers."""
    listening = sibling_socket(door) if KERNEL_SHARES_OUT else door.dup()
    with listening:
        fd = listening.fileno()
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # else a directory `fmsg_mcpd` in the working directory would be run
            "-m",
            "fmsg_mcpd",
            "front",
            "--fd",
            str(fd),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, METRICS_DIR_VARIABLE: os.fspath(metrics_dir), PARENT_VARIABLE: str(os.getpid())},
            pass_fds=(fd,),
            start_new_session=True,
        )
