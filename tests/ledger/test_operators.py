"""What operators see and ask for: one contract, in memory and on every Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from ledger.operators import Order, Process
from ledger.port import FeedReport, Member
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from ledger.values import CallerKey
from tests.ledger.redis_backends import BACKENDS, backend_of
from tests.within import within

ANN = CallerKey("a" * 32)
BEN = CallerKey("b" * 32)
SEAL = SealKeys.parse(SealKeys.generate())


@pytest.fixture(params=["memory", *BACKENDS])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[MemoryStore | RedisStore]:
    if request.param == "memory":
        async with MemoryStore() as memory:
            yield memory
        return
    async with (
        backend_of(request.param, request) as backend,
        RedisStore(backend.topology, seal=SEAL) as redis,
    ):
        await redis.notifications.connected.wait()
        yield redis


def process(id_: str, role: str = "front", **facts: float) -> Process:
    return Process(id=id_, role=role, name="box-1", version="1.2.3", since_s=5.0, metrics="box:9000", facts=facts)


async def activate(store: MemoryStore | RedisStore, caller: CallerKey, token: str | None = "t1") -> None:
    await store.activations.activate(
        caller,
        address="@ann@here.test",
        api_url="https://here.test",
        token=token,
        token_expires_at_s=time.time() + 60.0,
    )


class TestProcesses:
    async def test_what_runs_is_there_in_order(self, store: MemoryStore | RedisStore) -> None:
        assert list(await store.processes.present()) == []
        worker, front, second = process("3", "worker"), process("2", waits_held=7.0), process("1")
        for one in (worker, front, second):
            await store.processes.announce(one)
        found = [msgspec.structs.replace(one, heard_at_s=0.0) for one in await store.processes.present()]
        assert found == [second, front, worker]

    async def test_the_last_word_counts(self, store: MemoryStore | RedisStore) -> None:
        await store.processes.announce(process("1", waits_held=1.0))
        await store.processes.announce(process("1", waits_held=2.0))
        assert [one.facts for one in await store.processes.present()] == [{"waits_held": 2.0}]

    async def test_what_ended_is_gone(self, store: MemoryStore | RedisStore) -> None:
        await store.processes.announce(process("1"))
        await store.processes.withdraw("1")
        await store.processes.withdraw("unknown")
        assert list(await store.processes.present()) == []


class TestOrders:
    async def test_an_order_reaches_who_listens(self, store: MemoryStore | RedisStore) -> None:
        heard: asyncio.Queue[Order] = asyncio.Queue()
        stop = store.orders.listen(heard.put_nowait)
        order = Order(what="reconnect", caller=ANN)
        await store.orders.give(order)
        assert await within(heard.get(), 20) == order
        stop()
        stop()
        again: asyncio.Queue[Order] = asyncio.Queue()
        store.orders.listen(again.put_nowait)
        await store.orders.give(Order(what="rest", caller=BEN))
        assert (await within(again.get(), 20)).what == "rest"
        assert heard.empty()


class TestFeeds:
    async def test_every_active_caller_is_shown_with_its_feed(self, store: MemoryStore | RedisStore) -> None:
        await activate(store, ANN)
        await activate(store, BEN, token=None)
        report = FeedReport(state="asking", daemon="d1", since_s=3.0, error="no token", needs_credential=True)
        await store.activations.report(BEN, report)
        feeds = {one.caller: one for one in await store.activations.feeds(limit=10)}
        assert (feeds[ANN].has_token, feeds[ANN].report) == (True, None)
        assert (feeds[BEN].has_token, feeds[BEN].report) == (False, report)
        assert abs(feeds[ANN].asked_at_s - time.time()) < 30

    async def test_many_are_shown_up_to_a_limit(
        self, store: MemoryStore | RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ledger.redis.activations.FEEDS_AT_ONCE", 3)
        callers = [CallerKey(f"{number:032x}") for number in range(100)]
        for caller in callers:
            await activate(store, caller)
        assert sorted(one.caller for one in await store.activations.feeds(limit=1000)) == callers
        some = [one.caller for one in await store.activations.feeds(limit=40)]
        assert len(set(some)) == 40

    async def test_looking_is_no_asking(self, store: MemoryStore | RedisStore) -> None:
        assert list(await store.activations.feeds(limit=10)) == []
        assert list(await store.activations.active()) == []


class TestHolders:
    async def test_who_holds_what_is_shown_and_left_as_it_is(self, store: MemoryStore | RedisStore) -> None:
        assert await store.fleet.holders([ANN, BEN]) == {}
        await store.fleet.beat(Member(id="d1", name="d1", since_s=1.0))
        taken = await store.fleet.take([ANN], "d1", over={})
        assert await store.fleet.holders([ANN, BEN]) == taken
        await store.fleet.leave("d1")
        assert await store.fleet.holders([ANN]) == taken
        await store.fleet.release([ANN], "d1")
        assert await store.fleet.holders([ANN, BEN]) == {}
        assert await store.fleet.holders([]) == {}
