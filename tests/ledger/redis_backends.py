"""The same tests on fakeredis, a real Redis and a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ledger.redis.scripts import Scripts
from ledger.redis.topology import Topology, connect
from tests.conftest import RedisServers, flush
from tests.fake_redis import FakeTopology

BACKENDS = ["fakeredis", "redis-server", "valkey-server"]


class Backend:
    """A way to Redis, and to look behind the scenes."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.scripts = Scripts(topology.commands)

    async def command(self, *words: Any) -> Any:
        """Send a command as it is."""
        return await self.topology.commands.execute_command(*words)

    async def keys(self) -> list[str]:
        """The names of all keys, sorted."""
        return sorted(key.decode() for key in await self.command("KEYS", "*"))


@asynccontextmanager
async def backend_of(name: str, request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """An empty backend by its name."""
    if name == "fakeredis":
        topology: Topology = FakeTopology()
    else:
        servers: RedisServers = request.getfixturevalue("redis_servers")
        server = servers.get(name)
        flush(server)
        topology = connect(server.url)
    try:
        yield Backend(topology)
    finally:
        await topology.aclose()
