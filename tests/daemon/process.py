"""A daemon as a process of its own: ``python -m tests.daemon.process``, what it needs in the environment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daemon.daemon import Daemon
from fmsg.http import HostHttp
from ledger.seal import SealKeys
from ledger.store import RedisStore
from tests.daemon.world import LIMITS, quick


class Child:
    """A daemon's process and the id by which the fleet knows it."""

    def __init__(self, process: asyncio.subprocess.Process, daemon_id: str) -> None:
        self.process = process
        self.id = daemon_id

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


@asynccontextmanager
async def child(name: str, *, redis_url: str, seal: str, api_url: str) -> AsyncIterator[Child]:
    """Start a daemon and wait until it is ready; at the end it is killed if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.daemon.process",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "NAME": name, "REDIS_URL": redis_url, "SEAL": seal, "API_URL": api_url},
    )
    try:
        assert process.stdout is not None
        yield Child(process, (await process.stdout.readline()).decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def main() -> None:
    """Run until SIGTERM; prints the daemon's id when it is ready."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    seal = SealKeys.parse(os.environ["SEAL"])
    async with (
        RedisStore(os.environ["REDIS_URL"], limits=LIMITS, seal=seal) as store,
        HostHttp(os.environ["API_URL"]) as http,
        asyncio.TaskGroup() as group,
    ):
        daemon = Daemon(store, http, name=os.environ["NAME"], settings=quick())
        group.create_task(daemon.run(stop))
        await daemon.ready.wait()
        print(daemon.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
