from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from prometheus_client import REGISTRY

from fmsg.http import HostHttp
from fmsg.message import Draft
from fmsg.webapi import WebApi
from ledger.port import DeferredTask, Store
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from ledger.values import START, CallerKey, caller_key
from sandbox.host import SandboxHost, serve
from tests.key_tokens import KeyTokens
from workers.queue import FAILURES, ArqQueue, MemoryQueue
from workers.settings import WorkerSettings
from workers.worker import make_jobs, make_queue, run_worker

ANN = "@ann@here.test"
BEN = "@ben@here.test"


class Place(NamedTuple):
    """A host, and Ann who is active there."""

    host: SandboxHost
    http: HostHttp
    url: str
    ann: CallerKey
    api: WebApi


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    host = SandboxHost("here.test")
    async with serve(host) as url, HostHttp(url) as http:
        api = WebApi(http, KeyTokens(http, host.control.create_key(ANN)))
        host.control.create_address(BEN)
        yield Place(host, http, url, caller_key(url, ANN), api)


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    made: Store = MemoryStore()
    if request.param == "redis":
        made = RedisStore(request.getfixturevalue("redis_url"), seal=SealKeys.parse(SealKeys.generate()))
    async with made:
        yield made


@pytest.fixture
def settings(store: Store, request: pytest.FixtureRequest) -> WorkerSettings:
    url = request.getfixturevalue("redis_url") if isinstance(store, RedisStore) else None
    return WorkerSettings(queue_url=url, poll_s=0.01)


async def activate(store: Store, place: Place) -> None:
    token = await KeyTokens(place.http, place.host.control.create_key(ANN)).token()
    await store.activations.activate(
        place.ann, address=ANN, api_url=place.url, token=token.value, token_expires_at_s=token.expires_at_s
    )


def after(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, calls: int = 1) -> asyncio.Event:
    """An event that is set when a method has been called so often."""
    method: Callable[..., Awaitable[Any]] = getattr(owner, name)
    left = calls
    event = asyncio.Event()

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        result = await method(*args, **kwargs)
        left -= 1
        if left <= 0:
            event.set()
        return result

    monkeypatch.setattr(owner, name, counted)
    return event


async def test_a_sweep_begins_the_ledgers_of_all_active_callers(
    place: Place, store: Store, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = place.host.control.deliver_each(BEN, [ANN], body="hello")
    await activate(store, place)
    stop = asyncio.Event()
    begun = after(monkeypatch, store.ledger, "begin")
    async with asyncio.TaskGroup() as group:
        group.create_task(run_worker(settings, store, place.http, stop=stop))
        await begun.wait()
        stop.set()
    assert [entry.id for entry in (await store.ledger.read(place.ann, START, 10)).entries] == [old]


async def test_deferred_are_done_with_the_token_that_was_left(
    place: Place, store: Store, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def draft() -> int:
        return await place.api.create_draft(Draft(from_=ANN, to=(BEN,), type="text/plain", size=2, data="hi"))

    orphan, sent = await draft(), await draft()
    await place.api.send(sent)
    for kind, message_id in [("delete_draft", orphan), ("settle_send", sent), ("delete_draft", 999)]:
        await store.deferred.add(
            DeferredTask(kind=kind, caller=place.ann, message_id=message_id, due_s=time.time() - 1)
        )
    await activate(store, place)
    stop = asyncio.Event()
    done = after(monkeypatch, store.deferred, "done", calls=6)
    async with asyncio.TaskGroup() as group:
        group.create_task(run_worker(settings, store, place.http, stop=stop))
        await done.wait()
        stop.set()
    assert await store.deferred.depth() == 0
    left = {message.id: message.is_draft for message in (await place.api.list_sent()).messages}
    assert left == {sent: False}


async def test_a_sweep_asks_for_batches(place: Place) -> None:
    asked: list[tuple[str, object, str]] = []

    class Recorder(MemoryQueue):
        async def put(self, job: str, *args: object, job_id: str) -> bool:
            asked.append((job, args[0], job_id))
            return True

    store = MemoryStore()
    for number in range(5):
        await store.activations.activate(
            CallerKey(f"{number:032x}"), address=ANN, api_url=place.url, token=None, token_expires_at_s=0.0
        )
    jobs = make_jobs(
        WorkerSettings(batch=2, sweep_every_s=100.0),
        store,
        place.http,
        Recorder(),
        clock=lambda: 1000.0,
        rng=random.Random(0),
    )
    sweep = next(job for job in jobs if job.name == "sweep")
    assert await sweep.run() == "done"
    callers = [f"{number:032x}" for number in range(5)]
    assert asked == [
        ("reconcile", callers[0:2], "reconcile:10:0"),
        ("reconcile", callers[2:4], "reconcile:10:1"),
        ("reconcile", callers[4:5], "reconcile:10:2"),
    ]


async def test_every_periodic_job_is_done_once_per_period_by_all_together(place: Place) -> None:
    queue = MemoryQueue()
    jobs = make_jobs(WorkerSettings(), MemoryStore(), place.http, queue, clock=time.time, rng=random.Random(0))
    assert {job.name for job in jobs if job.every_s} == {"sweep", "deferred", "retention"}
    assert all(job.once_s == job.every_s for job in jobs if job.every_s)


async def test_a_first_failure_is_a_rise(place: Place) -> None:
    """The alert goes by `increase`, which sees nothing in a counter that appears with its first failure."""
    jobs = make_jobs(WorkerSettings(), MemoryStore(), place.http, MemoryQueue(), clock=time.time, rng=random.Random(0))
    counters = [{"kind": job.name, "outcome": outcome} for job in jobs for outcome in FAILURES]
    assert counters
    assert all(REGISTRY.get_sample_value("fmsg_mcpd_jobs_total", labels) is not None for labels in counters)


async def test_the_settings_say_where_the_queue_is() -> None:
    queue = make_queue(WorkerSettings(), clock=time.time, rng=random.Random(0))
    assert isinstance(queue, MemoryQueue)
    made = make_queue(
        WorkerSettings(queue_url="redis://127.0.0.1:1", prefix="mine"), clock=time.time, rng=random.Random(0)
    )
    assert isinstance(made, ArqQueue)
    assert made.name == "arq:mine:queue"
    await made.aclose()
