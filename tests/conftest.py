"""Fixtures for every part: real Redis servers, and a check of what tests leave in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from ledger.embedded import EmbeddedRedis, packaged_servers
from ledger.seal import SealKeys
from ledger.store import RedisStore
from tests.fake_redis import FakeTopology
from tests.redis_setups import cluster

UNLIMITED = b"arq:"
"""Keys under this prefix may lack a TTL: arq keeps its queue in a sorted set of its own."""


class RedisServers:
    """One server of each kind, started when a test first asks for it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[Path, EmbeddedRedis] = {}
        self._nodes: Sequence[EmbeddedRedis] = ()

    def get(self, name: str | None = None) -> EmbeddedRedis:
        """The server whose program has the name (``redis-server``, ``valkey-server``), or the preferred one."""
        program = next((path for path in packaged_servers() if name in (None, path.name)), None)
        if program is None:
            pytest.skip(f"{name or 'a Redis server'} is not installed")
        if program not in self._running:
            server = EmbeddedRedis(program=program)
            server.start()
            self._stack.callback(server.close)
            self._running[program] = server
        return self._running[program]

    def cluster(self) -> Sequence[EmbeddedRedis]:
        """The nodes of a Cluster."""
        if not self._nodes:
            started: Future[Sequence[EmbeddedRedis]] = Future()
            ended = threading.Event()

            async def hold() -> None:
                async with cluster() as nodes:
                    started.set_result(nodes)
                    await asyncio.to_thread(ended.wait)

            # Servers end with the thread that started them.
            self._stack.enter_context(ThreadPoolExecutor(1)).submit(asyncio.run, hold())
            self._stack.callback(ended.set)
            self._nodes = started.result(timeout=60)
        return self._nodes

    def all(self) -> list[EmbeddedRedis]:
        """Those that run."""
        return [*self._running.values(), *self._nodes]


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[RedisServers]:
    """Real servers, one of each kind per worker of the test run."""
    with ExitStack() as stack:
        yield RedisServers(stack)


@pytest.fixture(scope="session")
def redis_server(redis_servers: RedisServers) -> EmbeddedRedis:
    """The real server of this worker of the test run; shared, so nobody stops it."""
    return redis_servers.get()


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The URL of an empty real server."""
    flush(redis_server)
    return redis_server.url


@pytest.fixture
async def redis_store(redis_url: str) -> AsyncIterator[RedisStore]:
    """An open store in an empty real server."""
    async with RedisStore(redis_url, seal=SealKeys.parse(SealKeys.generate())) as store:
        yield store


@pytest.fixture
async def fake_store() -> AsyncIterator[RedisStore]:
    """An open store in fakeredis."""
    async with RedisStore(FakeTopology(), seal=SealKeys.parse(SealKeys.generate())) as store:
        yield store


@pytest.fixture(autouse=True)
def no_key_without_ttl(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves keys in Redis that would stay for ever."""
    yield
    if "redis_servers" not in request.fixturenames:
        return
    for server in request.getfixturevalue("redis_servers").all():
        if server.pid is not None:
            assert keys_without_ttl(server) == []


def keys_without_ttl(server: EmbeddedRedis) -> list[bytes]:
    """The keys of a server that would stay for ever."""
    with redis.Redis.from_url(server.url) as client:
        keys = [key for key in client.scan_iter(count=1000) if not key.startswith(UNLIMITED)]
        return [key for key in keys if client.ttl(key) == -1]


def flush(server: EmbeddedRedis) -> None:
    """Empty a server."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
