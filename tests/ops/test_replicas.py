"""`ops.replicas`: several processes on one port are counted as one front, and each is seen by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from ledger.embedded import EmbeddedRedis, free_port
from ledger.operators import Process
from ledger.seal import SealKeys
from ledger.store import RedisStore
from mcp_front.http.serve import KERNEL_SHARES_OUT
from mcp_front.settings import Budgets
from ops.processes import Child, ChildFailed
from ops.version import version
from tests.within import within

SEAL_KEY = SealKeys.generate()
WITHIN_S = 60.0
CONNECTIONS = 200


def settings(redis_url: str) -> dict[str, str]:
    """What a front with two processes is told."""
    return {
        "FMSG_API_URL": f"http://127.0.0.1:{free_port()}",
        "FMSG_REDIS_URL": redis_url,
        "FMSG_SEAL_KEY": SEAL_KEY,
        "FMSG_MCP_PORT": "0",
        "FMSG_MCP_WORKERS": "2",
        "FMSG_METRICS_PORT": "0",
    }


def sockets(pid: int) -> int:
    """The open sockets of a process."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(entry).startswith("socket:")
    return count


async def get(url: str) -> tuple[int, str]:
    """Ask once, on a connection of its own: any of the processes may take it."""
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.text()


async def fronts(store: RedisStore, wanted: Callable[[list[Process]], bool]) -> list[Process]:
    """The fronts that say that they are there, once they are as wanted."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = [process for process in await store.processes.present() if process.role == "front"]
            if wanted(found):
                return found


async def metric(url: str, line: str) -> None:
    """Wait until a sample is exported as it should be."""
    async with asyncio.timeout(WITHIN_S):
        while line not in (await get(url))[1].splitlines():
            pass


@pytest.mark.processes
async def test_two_processes_are_one_front_to_prometheus_and_two_to_an_operator(redis_url: str, tmp_path: Path) -> None:
    budget = f"fmsg_mcpd_waits_budget {2 * Budgets().max_waits:.1f}"
    child = await Child.start("front", "front", env=settings(redis_url), log_dir=tmp_path)
    try:
        (told,) = await child.announcement("metrics_port")
        side = f"http://127.0.0.1:{told['metrics_port']}"
        async with RedisStore(redis_url, seal=SealKeys.parse(SEAL_KEY)) as store:
            found = await fronts(store, lambda those: len(those) == 2)
            assert {process.version for process in found} == {version()}
            await metric(f"{side}/metrics", budget)
            _, exposed = await get(f"{side}/metrics")
            assert f'fmsg_mcpd_build_info{{role="front",version="{version()}"}} 1.0' in exposed
            for path in ("/readyz", "/healthz"):
                assert (await get(side + path))[0] == 200
            assert (await get(told["mcp_url"].replace("/mcp", "/readyz")))[0] == 200

            killed = int(found[0].name.rpartition("-")[2])
            os.kill(killed, signal.SIGKILL)
            pids = {process.id for process in found}
            await fronts(store, lambda those: any(process.id not in pids for process in those))
            # The dead one's share is gone, and its successor's is there.
            await metric(f"{side}/metrics", budget)
    finally:
        status = await child.stop()
    assert status == 0
    assert "replica_ended" in child.tail(lines=50)


@pytest.mark.processes
@pytest.mark.skipif(not KERNEL_SHARES_OUT, reason="the kernel does not share connections out")
async def test_connections_are_shared_out_evenly(redis_url: str, tmp_path: Path) -> None:
    """Held waits stay where their connection came to: one process must not hold most of them."""
    child = await Child.start("front", "front", env=settings(redis_url), log_dir=tmp_path)
    try:
        (told,) = await child.announcement("metrics_port")
        main = told["mcp_url"].removesuffix("/mcp")
        async with RedisStore(redis_url, seal=SealKeys.parse(SEAL_KEY)) as store:
            found = await fronts(store, lambda those: len(those) == 2)
            pids = [int(process.name.rpartition("-")[2]) for process in found]
            before = [sockets(pid) for pid in pids]
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(CONNECTIONS):
                    http = await stack.enter_async_context(aiohttp.ClientSession())
                    assert (await stack.enter_async_context(http.get(f"{main}/healthz"))).status == 200
                held = [sockets(pid) - first for pid, first in zip(pids, before, strict=True)]
            # By chance alone fewer than a quarter comes once in a million million runs.
            assert min(held) > CONNECTIONS // 4

            os.kill(pids[0], signal.SIGKILL)
            await fronts(store, lambda those: {process.id for process in those} != {process.id for process in found})
            for _ in range(CONNECTIONS // 4):
                assert (await get(f"{main}/healthz"))[0] == 200
    finally:
        await child.stop()


@pytest.mark.processes
async def test_a_port_that_another_fleet_shares_out_is_taken(redis_url: str, tmp_path: Path) -> None:
    """Sharing must not let a second front slip in on the same port and take half of the callers."""
    child = await Child.start("front", "front", env=settings(redis_url), log_dir=tmp_path)
    try:
        (told,) = await child.announcement("metrics_port")
        port = told["mcp_url"].rpartition(":")[2].removesuffix("/mcp")
        second = await Child.start(
            "second", "front", env=settings(redis_url) | {"FMSG_MCP_PORT": port}, log_dir=tmp_path
        )
        assert await within(second.process.wait(), WITHIN_S) == 2
        assert "cannot be bound" in second.tail(lines=50)
        await second.stop()
    finally:
        await child.stop()


@pytest.mark.processes
async def test_they_are_unready_together_while_redis_is_away(tmp_path: Path) -> None:
    async with EmbeddedRedis() as server:
        child = await Child.start("front", "front", env=settings(server.url), log_dir=tmp_path)
        try:
            (told,) = await child.announcement("metrics_port")
            side, main = f"http://127.0.0.1:{told['metrics_port']}", told["mcp_url"].removesuffix("/mcp")
            assert (await get(f"{side}/readyz"))[0] == 200
            assert (await get(f"{main}/readyz"))[0] == 200
            server.kill()
            async with asyncio.timeout(WITHIN_S):
                for url in (side, main):
                    while (await get(f"{url}/readyz"))[0] != 503:
                        pass
            assert (await get(f"{main}/readyz?exclude=redis"))[0] == 200
        finally:
            await child.stop()


@pytest.mark.processes
async def test_they_take_no_callers_in_before_there_is_a_redis(tmp_path: Path) -> None:
    redis_url = f"redis://127.0.0.1:{free_port()}"
    child = await Child.start("front", "front", env=settings(redis_url), log_dir=tmp_path)
    try:
        with pytest.raises(ChildFailed, match="cannot_start"):
            await child.announcement("front")
        assert await within(child.process.wait(), WITHIN_S) == 2
    finally:
        await child.stop()
