"""`ops.attended`: what is said of readiness, and how often Redis is asked for it."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import pytest

from ledger.embedded import EmbeddedRedis, free_port
from ledger.operators import Process
from ledger.port import LedgerUnavailable
from ledger.redis.operators import RedisProcesses
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from ops.attended import ASK_AGAIN_S, Readiness, attended
from ops.settings import Settings
from tests.within import within

SEAL = SealKeys.parse(SealKeys.generate())


class Flaky(MemoryStore):
    """A store that can be taken away; it counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.asked = 0

    async def ping(self) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise LedgerUnavailable("Redis: gone")


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_store_that_is_away_makes_unready_and_comes_back() -> None:
    store, clock = Flaky(), Clock()
    readiness = Readiness(store, asyncio.Event(), now=clock)
    assert await readiness.why_not() is None
    store.away = True
    clock.now_s += ASK_AGAIN_S
    assert await readiness.why_not() == "Redis cannot be used: Redis: gone"
    assert not await readiness.store_ready()
    store.away = False
    clock.now_s += ASK_AGAIN_S
    assert await readiness.store_ready()


async def test_however_many_ask_redis_is_asked_once() -> None:
    store, clock = Flaky(), Clock()
    readiness = Readiness(store, asyncio.Event(), now=clock)
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(readiness.store_ready())
    clock.now_s += ASK_AGAIN_S / 2
    await readiness.why_not()
    assert store.asked == 1


async def test_a_draining_process_is_not_ready_whatever_redis_says() -> None:
    store, stop = Flaky(), asyncio.Event()
    readiness = Readiness(store, stop)
    stop.set()
    assert await readiness.why_not() == "draining"
    assert store.asked == 0


async def test_what_is_in_the_way_of_the_work_makes_unready_for_as_long() -> None:
    reasons: list[str | None] = ["starting: 3 callers are on their way to this daemon", None]
    readiness = Readiness(Flaky(), asyncio.Event(), work=lambda: reasons.pop(0))
    assert await readiness.why_not() == "starting: 3 callers are on their way to this daemon"
    assert await readiness.why_not() is None


@pytest.mark.parametrize("role", ["front", "daemon", "worker", "up"])
async def test_an_attended_process_is_listed_and_answers_on_its_side_port(
    role: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, announced = asyncio.Event(), asyncio.Event()
    announce = RedisProcesses.announce

    async def announce_and_tell(self: RedisProcesses, process: Process) -> None:
        await announce(self, process)
        announced.set()

    monkeypatch.setattr(RedisProcesses, "announce", announce_and_tell)
    async with (
        RedisStore(redis_url, seal=SEAL) as store,
        attended(Settings(), store, stop, role=role, side_port=0) as port,
        aiohttp.ClientSession() as http,
    ):
        await within(announced.wait(), 10)
        (process,) = await store.processes.present()
        assert (process.role, process.metrics) == (role, f"127.0.0.1:{port}")
        async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, {"ready": True, "reason": None})
        async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert f'role="{role}"' in await answer.text()
        stop.set()
        async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.json()) == (503, {"ready": False, "reason": "draining"})
        async with http.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200


async def test_a_full_redis_makes_unready() -> None:
    async with EmbeddedRedis(config=["maxmemory 1kb"]) as server, RedisStore(server.url, seal=SEAL) as store:
        told = await Readiness(store, asyncio.Event()).why_not()
    assert told is not None
    assert "maxmemory" in told


async def test_without_redis_nothing_starts() -> None:
    async with RedisStore(f"redis://127.0.0.1:{free_port()}", seal=SEAL) as store:
        with pytest.raises(LedgerUnavailable):
            async with attended(Settings(), store, asyncio.Event(), role="front", side_port=None):
                pass


async def test_what_is_to_be_changed_of_the_server_is_logged_once(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        RedisStore(redis_url, seal=SEAL) as store,
        attended(Settings(), store, asyncio.Event(), role="worker", side_port=None),
    ):
        pass
    assert [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "redis_advice"] == [
        "persistence: off, so a restart forgets subscriptions and which messages were returned already. "
        "Set appendonly yes."
    ]
