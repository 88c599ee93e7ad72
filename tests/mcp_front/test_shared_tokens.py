"""Fronts that share a Redis: a token that one of them got serves the others, and only for who has the API key."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest

from fmsg.errors import Unauthorized
from fmsg.http import HostHttp
from ledger.seal import SealKeys
from ledger.store import RedisStore
from mcp_front.callers import KeyCallers
from mcp_front.http.serve import serve_http
from mcp_front.settings import FrontSettings
from sandbox.host import SandboxHost, serve
from tests.fake_redis import FakeTopology
from tests.mcp_front.fakes import ANSWER_S, call, heads, settings
from tests.within import within

ANN = "@ann@a.test"


class Bench:
    """A host, a Redis, and the callers of as many fronts as are asked for."""

    def __init__(self, host: SandboxHost, http: HostHttp, redis: Callable[[], RedisStore], stack: AsyncExitStack):
        self.host = host
        self.http = http
        self.redis = redis
        self._stack = stack

    async def front(self) -> KeyCallers:
        """The callers of another front, with a connection of its own to Redis."""
        store = await self._stack.enter_async_context(self.redis())
        found = KeyCallers(
            self.http,
            FrontSettings(),
            transport="http",
            clock=self.host.core.clock,
            rng=random.Random(7),
            shared_tokens=store.shared_tokens,
        )
        self._stack.push_async_callback(found.aclose)
        return found

    @property
    def exchanges(self) -> int:
        """Exchanges the host has seen."""
        return int(self.host.control.stats()["requests"].get("token", 0))


@pytest.fixture(params=["fakeredis", "real"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    host = SandboxHost("a.test")
    fake = FakeTopology()
    where = fake if request.param == "fakeredis" else request.getfixturevalue("redis_url")

    def redis() -> RedisStore:
        """Each front has other seal keys: what is shared is sealed by the API key."""
        return RedisStore(where, seal=SealKeys.parse(SealKeys.generate()))

    async with serve(host) as url, HostHttp(url) as http, AsyncExitStack() as stack:
        yield Bench(host, http, redis, stack)
    await fake.aclose()


async def test_a_second_front_answers_without_an_exchange(bench: Bench) -> None:
    key = bench.host.control.create_key(ANN)
    first = await (await bench.front()).identify(key)
    assert bench.exchanges == 1
    second = await (await bench.front()).identify(key)
    assert (second.address, second.key) == (ANN, first.key)
    assert await second.api.address() == ANN
    assert await second.api.list_received(limit=1)
    assert (await second.token()).value == (await first.token()).value
    assert bench.exchanges == 1


async def test_who_has_another_key_gets_nothing_of_it(bench: Bench) -> None:
    key = bench.host.control.create_key(ANN)
    await (await bench.front()).identify(key)
    second = await bench.front()
    with pytest.raises(Unauthorized):
        await second.identify(key[:-4] + "AAA=")
    assert bench.exchanges == 2
    eve = await second.identify(bench.host.control.create_key("@eve@a.test"))
    assert (eve.address, bench.exchanges) == ("@eve@a.test", 3)


async def test_a_revoked_key_ends_with_its_shared_token(bench: Bench) -> None:
    key = bench.host.control.create_key(ANN)
    await (await bench.front()).identify(key)
    bench.host.control.revoke_key(key)
    confirming, reading, later = [await bench.front() for _ in range(3)]
    shared = await confirming.identify(key)
    with pytest.raises(Unauthorized):
        await shared.confirm()
    shared = await reading.identify(key)
    with pytest.raises(Unauthorized):
        await shared.api.list_received(limit=1)
    with pytest.raises(Unauthorized):
        await reading.identify(key)
    with pytest.raises(Unauthorized):
        await later.identify(key)
    assert bench.exchanges == 4, "the refused token was taken away"


async def test_fronts_that_serve_the_same_store_share_tokens(redis_url: str) -> None:
    host = SandboxHost("a.test")
    stop = asyncio.Event()
    async with (
        serve(host) as api_url,
        HostHttp(api_url) as http,
        aiohttp.ClientSession() as session,
        AsyncExitStack() as stack,
        asyncio.TaskGroup() as tasks,
    ):
        key = host.control.create_key(ANN)
        for _ in range(2):
            where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            store = await stack.enter_async_context(RedisStore(redis_url, seal=SealKeys.parse(SealKeys.generate())))

            def started(bound: str, port: int, where: asyncio.Future[str] = where) -> None:
                where.set_result(f"http://{bound}:{port}/mcp")

            tasks.create_task(serve_http(settings(api_url), store, http, stop=stop, started=started))
            url = await within(where, ANSWER_S)
            # What the host answers itself needs no exchange to see whether it still accepts the key.
            async with session.post(url, json=call("list_messages"), headers=heads(key)) as answer:
                assert not (await answer.json())["result"]["isError"]
        stop.set()
    assert host.control.stats()["requests"]["token"] == 1
