"""What is measured, as processes of their own: a sandbox host, Redis, a daemon, a front, and the bare yardstick."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from redis.asyncio import Redis

from fmsg.http import HostHttp
from fmsg.tokens import AccessToken, exchange
from ledger.embedded import EmbeddedRedis
from ledger.seal import SealKeys
from ops.bench.bare import TOKEN_VARIABLE
from ops.bench.measure import Cost, costs_of
from ops.bench.target import HOST, STORE, BenchCaller, StoreState
from ops.processes import Child

DOMAIN = "bench.test"

CONNECTS_PER_S = 2_000
"""Sockets per second a daemon may open here: the cap protects hosts in production; here it would only be waited for."""

WAITS_PER_CALLER = 20_000
"""Waits one caller may hold here: the budget is there against one client, and here one client is all there is."""

KEYS_AT_ONCE = 64
"""Keys being made at the same time."""

_HELD_NAME = "fmsg_mcpd_waits_held"
_HELD = re.compile(rf"^{_HELD_NAME} (\S+)$", re.MULTILINE)


class BenchCluster:
    """Everything that runs. See `ops.bench.target.BenchTarget`."""

    def __init__(
        self, children: dict[str, Child], redis: EmbeddedRedis, session: aiohttp.ClientSession, control_url: str
    ) -> None:
        self.children = children
        self.redis = redis
        self.mcp_url = ""
        self.bare_url: str | None = None
        self.api_url = ""
        self.metrics_url = ""
        """Where the front tells how many waits it holds."""
        self._session = session
        self._control_url = control_url
        self._people: list[BenchCaller] = []

    def pids(self) -> dict[str, int]:
        """The measured processes by name; the host and the yardstick are not among them."""
        named = {name: child.pid for name, child in self.children.items() if name not in ("host", "bare")}
        return {**named, "redis": self.redis.pid or 0}

    def costs(self) -> dict[str, Cost]:
        return costs_of(self.pids())

    def peers(self) -> dict[int, str]:
        return {urlsplit(self.redis.url).port or 0: STORE, urlsplit(self.api_url).port or 0: HOST}

    async def callers(self, count: int) -> list[BenchCaller]:
        first = len(self._people)
        for start in range(first, count, KEYS_AT_ONCE):
            addresses = [f"@agent{number}@{DOMAIN}" for number in range(start, min(start + KEYS_AT_ONCE, count))]
            keys = await asyncio.gather(*(self.control("create_key", address=address) for address in addresses))
            self._people += [BenchCaller(address=one, api_key=key) for one, key in zip(addresses, keys, strict=True)]
        return self._people[:count]

    async def deliver(self, people: Sequence[BenchCaller], *, body: str) -> None:
        await self.control(
            "deliver_each", **{"from": f"@sender@{DOMAIN}"}, to=[one.address for one in people], body=body
        )

    async def held(self) -> int | None:
        async with self._session.get(self.metrics_url) as answer:
            found = _HELD.search(await answer.text())
        return None if found is None else int(float(found.group(1)))

    async def host_stats(self) -> dict[str, Any] | None:
        stats: dict[str, Any] = await self.control("stats")
        return stats

    async def store(self) -> StoreState | None:
        client = Redis.from_url(self.redis.url)
        try:
            memory, keyspace = await client.info("memory"), await client.info("keyspace")
        finally:
            await client.aclose()
        found = keyspace.get("db0", {"keys": 0, "expires": 0})
        return StoreState(
            used_bytes=memory["used_memory"], keys=found["keys"], lasting=found["keys"] - found["expires"]
        )

    async def control(self, method: str, **arguments: Any) -> Any:
        """Call a method of the host's control surface, over a connection that stays."""
        async with self._session.post(f"{self._control_url}/{method}", json=arguments) as answer:
            return (await answer.json())["result"]


@contextlib.asynccontextmanager
async def running_cluster() -> AsyncIterator[BenchCluster]:
    """Start everything; it ends with the context."""
    children: dict[str, Child] = {}
    async with contextlib.AsyncExitStack() as stack:
        log_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fmsg-bench-")))

        async def start(name: str, arguments: Sequence[str], **env: str) -> Child:
            child = await Child.start(name, *arguments, env=env, log_dir=log_dir)
            stack.push_async_callback(child.stop)
            children[name] = child
            return child

        server = await stack.enter_async_context(EmbeddedRedis())
        host = await start("host", ["sandbox", "--json", "--domain", DOMAIN])
        at = (await host.announcement("url"))[0]
        session = await stack.enter_async_context(aiohttp.ClientSession(raise_for_status=True))
        cluster = BenchCluster(children, server, session, at["control"])
        cluster.api_url = at["url"]
        await cluster.control("set_switches", changes={"send_buffer_frames": 0})
        env = {
            "FMSG_API_URL": at["url"],
            "FMSG_REDIS_URL": server.url,
            "FMSG_SEAL_KEY": SealKeys.generate(),
            "FMSG_MAX_CONNECTS_PER_SECOND": str(CONNECTS_PER_S),
            "FMSG_MCP_MAX_WAITS_PER_CALLER": str(WAITS_PER_CALLER),
            "FMSG_LOG_LEVEL": "warning",
            "FMSG_METRICS_PORT": "0",
        }
        token = await _token(at["url"], await cluster.control("create_key", address=f"@bare@{DOMAIN}"))
        daemon = await start("daemon", ["daemon"], **env)
        front = await start("front", ["front", "--port", "0"], **env)
        bare = await start("bare", ["bench", "--yardstick"], FMSG_API_URL=at["url"], **{TOKEN_VARIABLE: token.value})
        await daemon.announcement("daemon")
        serving = (await front.announcement("mcp_url"))[0]
        cluster.mcp_url = serving["mcp_url"]
        cluster.metrics_url = f"http://127.0.0.1:{serving['metrics_port']}/metrics?name[]={_HELD_NAME}"
        cluster.bare_url = (await bare.announcement("bare_url"))[0]["bare_url"]
        yield cluster


async def _token(api_url: str, api_key: str) -> AccessToken:
    async with HostHttp(api_url) as http:
        return await exchange(http, api_key)
