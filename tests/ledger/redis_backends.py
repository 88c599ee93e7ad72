"""The same tests on fakeredis, a real Redis and a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fakeredis
import pytest

from ledger.scripts import Commands, Scripts
from ledger.topology import Standalone, Topology, connect, parse_url
from tests.conftest import RedisServers, flush

BACKENDS = ["fakeredis", "redis-server", "valkey-server"]


class FakeTopology(Standalone):
    """Nothing behind it but a fakeredis."""

    def __init__(self) -> None:
        super().__init__(parse_url("redis://nowhere.invalid"), prefix="fmsg")
        self.fake: Any = fakeredis.FakeAsyncRedis()

    @property
    def commands(self) -> Commands:
        commands: Commands = self.fake
        return commands


class Backend:
    """A way to Redis, and to look behind the scenes."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.scripts = Scripts(topology.commands)

    async def command(self, *words: Any) -> Any:
        return await self.topology.commands.execute_command(*words)

    async def keys(self) -> list[str]:
        return sorted(key.decode() for key in await self.command("KEYS", "*"))


@asynccontextmanager
async def backend_of(name: str, request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    if name == "fakeredis":
        fake = FakeTopology()
        yield Backend(fake)
        await fake.fake.aclose()
        return
    servers: RedisServers = request.getfixturevalue("redis_servers")
    server = servers.get(name)
    flush(server)
    topology = connect(server.url)
    try:
        yield Backend(topology)
    finally:
        await topology.aclose()
