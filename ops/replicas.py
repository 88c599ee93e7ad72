"""Several front processes on one port: one socket, bound here, accepted from by all of them; the dead are replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from prometheus_client import multiprocess

from mcp_front.gate import HostGate, OriginGate
from mcp_front.listener import address_of, bind
from mcp_front.settings import FrontSettings
from ops import health
from ops.processes import PARENT_VARIABLE, announce
from ops.serve import mcp_url
from ops.settings import Settings
from ops.version import version

log = logging.getLogger(__name__)

RESTART_S = 1.0
"""A replica that ended by itself is started again after so long: soon enough to be missed by nobody, slow enough that
one that cannot start does not eat a core."""

METRICS_DIR_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


async def run_replicas(settings: Settings, front_settings: FrontSettings, *, count: int, stop: asyncio.Event) -> None:
    """Run ``count`` front processes until ``stop`` is set; then all drain at the same time."""
    HostGate(front_settings.http.host, front_settings.http.allowed_hosts)
    OriginGate(front_settings.http.allowed_origins)
    sockets = bind(front_settings)
    for listening in sockets:
        os.set_inheritable(listening.fileno(), True)
    with tempfile.TemporaryDirectory(prefix="fmsg-metrics-") as metrics_dir:
        os.environ[METRICS_DIR_VARIABLE] = metrics_dir

        async def ready() -> str | None:
            return "draining" if stop.is_set() else None

        async with (
            health.serving(
                settings.metrics_host, settings.metrics_port, role="front", version=version(), ready=ready
            ) as metrics_port,
            asyncio.TaskGroup() as group,
        ):
            for number in range(count):
                group.create_task(_keep_replica(number, sockets[0], Path(metrics_dir), stop))
            host, port = address_of(sockets)
            announce(
                front=os.getpid(), mcp_url=mcp_url(host, port, front_settings.http.path), metrics_port=metrics_port
            )
    for listening in sockets:
        listening.close()


async def _keep_replica(number: int, listening: socket.socket, metrics_dir: Path, stop: asyncio.Event) -> None:
    fd = listening.fileno()
    while not stop.is_set():
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ops.cli",
            "front",
            "--fd",
            str(fd),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, METRICS_DIR_VARIABLE: os.fspath(metrics_dir), PARENT_VARIABLE: str(os.getpid())},
            pass_fds=(fd,),
            start_new_session=True,
        )
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
            await asyncio.sleep(RESTART_S)
