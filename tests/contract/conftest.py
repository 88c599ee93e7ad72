"""Every backend there is, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ledger.redis.topology import connect
from ledger.values import LedgerLimits
from tests.conftest import RedisServers, flush
from tests.contract.backends import Backend, MemoryBackend, redis_backend
from tests.fake_redis import FakeTopology

MAX_ENTRIES = 20
"""Few, so that trimming happens in a test of some lines."""


ROOMY = LedgerLimits(max_gone=400)
"""As large as in use, but for what is remembered of trimmed entries."""

KINDS = [
    "memory",
    "fakeredis",
    "redis-server",
    "valkey-server",
    pytest.param("cluster", marks=pytest.mark.processes),
]


@asynccontextmanager
async def made(kind: str, request: pytest.FixtureRequest, limits: LedgerLimits) -> AsyncIterator[Backend]:
    """An empty ledger of a kind."""
    if kind == "memory":
        yield MemoryBackend(limits)
    elif kind == "fakeredis":
        async with redis_backend(FakeTopology, limits) as found:
            yield found
    elif kind == "cluster":
        nodes = request.getfixturevalue("redis_servers").cluster()
        for node in nodes:
            flush(node)
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        async with redis_backend(lambda: connect(f"redis+cluster://:{nodes[0].password}@{hosts}"), limits) as found:
            yield found
    else:
        servers: RedisServers = request.getfixturevalue("redis_servers")
        server = servers.get(kind)
        flush(server)
        async with redis_backend(lambda: connect(server.url), limits) as found:
            yield found


@pytest.fixture(params=KINDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """A ledger that holds at most `MAX_ENTRIES` entries."""
    async with made(request.param, request, LedgerLimits(max_entries=MAX_ENTRIES)) as found:
        yield found


@pytest.fixture(params=KINDS)
async def roomy(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """A ledger with the limits `ROOMY`."""
    async with made(request.param, request, ROOMY) as found:
        yield found
