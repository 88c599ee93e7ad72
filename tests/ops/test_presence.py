from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ledger.operators import Process
from ledger.port import LedgerUnavailable
from ledger.store import MemoryStore, RedisStore
from ops.presence import MEAN_OVER_S, ProcessFacts, presence
from telemetry import metrics
from tests.within import within


class FakeProcesses:
    """A memory store's list of processes that tells what was announced."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.said: asyncio.Queue[Process] = asyncio.Queue()
        self.withdrawn: list[str] = []
        self.trouble = trouble

    @property
    def processes(self) -> FakeProcesses:
        return self

    async def announce(self, process: Process) -> None:
        self.said.put_nowait(process)
        if self.trouble is not None:
            raise self.trouble

    async def withdraw(self, process_id: str) -> None:
        self.withdrawn.append(process_id)
        if isinstance(self.trouble, LedgerUnavailable):
            raise self.trouble

    async def present(self) -> tuple[Process, ...]:
        return ()

    async def next(self) -> Process:
        return await within(self.said.get(), 20)


async def test_a_process_is_there_while_it_runs(redis_store: RedisStore) -> None:
    async with presence(redis_store, role="front", facts=lambda: {"waits_held": 3.0}, metrics_port=9100) as here:
        while not (found := await redis_store.processes.present()):
            pass
        assert [(one.role, one.facts) for one in found] == [("front", {"waits_held": 3.0})]
        assert msgspec.structs.replace(found[0], heard_at_s=0.0) == here.process
        assert (found[0].metrics or "").endswith(":9100")
        assert found[0].version
    assert list(await redis_store.processes.present()) == []


async def test_facts_are_asked_for_each_time() -> None:
    store, numbers = FakeProcesses(), iter(range(1, 100))
    async with presence(store, role="worker", facts=lambda: {"jobs": float(next(numbers))}, every_s=0.001):
        assert [(await store.next()).facts["jobs"] for _ in range(3)] == [1.0, 2.0, 3.0]
    assert len(store.withdrawn) == 1


async def test_a_process_that_stops_says_at_once_that_it_drains() -> None:
    store, stop = FakeProcesses(), asyncio.Event()
    async with presence(store, role="front", facts=dict, stop=stop, every_s=3600.0):
        assert (await store.next()).facts == {}
        stop.set()
        assert (await store.next()).facts == {"draining": 1.0}


@pytest.mark.parametrize("trouble", [LedgerUnavailable("Redis is away"), RuntimeError("a fault of ours")])
async def test_trouble_is_passed_over(trouble: Exception, caplog: pytest.LogCaptureFixture) -> None:
    store = FakeProcesses(trouble)
    with caplog.at_level(logging.DEBUG, logger="ops.presence"):
        async with presence(store, role="front", facts=dict, every_s=0.001):
            first, second = await store.next(), await store.next()
    assert first.id == second.id
    assert "presence not announced" in caplog.text


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [("127.0.0.1", 9000, "127.0.0.1:9000"), ("::1", 9000, "[::1]:9000"), ("127.0.0.1", None, None)],
)
async def test_the_metrics_port_is_named(host: str, port: int | None, expected: str | None) -> None:
    async with presence(MemoryStore(), role="front", metrics_host=host, metrics_port=port) as here:
        assert here.process.metrics == expected


async def test_a_port_bound_everywhere_is_named_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    async with presence(MemoryStore(), role="front", metrics_host="0.0.0.0", metrics_port=9000) as here:
        assert here.process.metrics == "box:9000"
        assert here.process.name.startswith("box-")


def test_facts_are_read_off_the_metrics() -> None:
    now_s = 0.0
    facts = ProcessFacts(now=lambda: now_s)
    before = facts()
    metrics.WAITS_HELD.inc(5)
    metrics.REDIS_ERRORS.labels("TimeoutError").inc()
    metrics.REDIS_ERRORS.labels("ConnectionError").inc()
    metrics.INGEST_LAG.observe(1.0)
    metrics.INGEST_LAG.observe(2.0)
    now_s = 5.0
    after = facts()
    metrics.WAITS_HELD.dec(5)
    assert _gain(before, after, "waits_held") == 5
    assert _gain(before, after, "redis_errors") == 2
    assert after["ingest_lag_s"] == 1.5
    now_s = 10.0 + MEAN_OVER_S
    facts()
    now_s = 15.0 + 2 * MEAN_OVER_S
    assert "ingest_lag_s" not in facts()


def _gain(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    return float(after.get(name, 0.0) - before.get(name, 0.0))
