"""Every backend there is, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ledger.limits import LedgerLimits
from ledger.topology import connect
from tests.conftest import RedisServers, flush
from tests.contract.backends import Backend, MemoryBackend, redis_backend
from tests.fake_redis import FakeTopology

MAX_ENTRIES = 20
"""Few, so that trimming happens in a test of some lines."""


@pytest.fixture(params=["memory", "fakeredis", "redis-server", "valkey-server"])
async def backend(request: pytest.FixtureRequest, redis_servers: RedisServers) -> AsyncIterator[Backend]:
    """A ledger that holds at most `MAX_ENTRIES` entries."""
    limits = LedgerLimits(max_entries=MAX_ENTRIES)
    if request.param == "memory":
        yield MemoryBackend(limits)
    elif request.param == "fakeredis":
        async with redis_backend(FakeTopology, limits) as found:
            yield found
    else:
        server = redis_servers.get(request.param)
        flush(server)
        async with redis_backend(lambda: connect(server.url), limits) as found:
            yield found
