from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import redis.asyncio
import redis.exceptions as faults

from ledger.embedded import EmbeddedRedis
from tests.conftest import keys_without_ttl
from workers.queue import ArqQueue, Job, QueueNeedsOneNode, TryLater, said


def job(run: Callable[..., Awaitable[str]], *, name: str = "test", every_s: float | None = None) -> Job:
    return Job(name=name, run=run, every_s=every_s, once_s=30.0, timeout_s=10.0)


class Soon(random.Random):
    """Never waits longer than it must."""

    def uniform(self, a: float, b: float) -> float:
        return a


def queue(url: str, *, prefix: str = "fmsg", drain_s: float = 5.0) -> ArqQueue:
    return ArqQueue(url, prefix=prefix, poll_s=0.01, drain_s=drain_s, rng=Soon())


@asynccontextmanager
async def running(made: ArqQueue, *jobs: Job) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(made.run(jobs, stop=stop))
        yield stop
        stop.set()


@pytest.fixture
async def asking(redis_url: str) -> AsyncIterator[ArqQueue]:
    """A process that only asks for jobs."""
    made = queue(redis_url)
    yield made
    await made.aclose()


async def test_what_one_process_puts_another_runs(redis_url: str, asking: ArqQueue) -> None:
    done: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()

    async def run(*args: object) -> str:
        done.put_nowait(args)
        return "done"

    async with running(queue(redis_url), job(run)):
        assert await asking.put("test", ["a", "b"], "c", job_id="1")
        assert await done.get() == (["a", "b"], "c")


async def test_one_id_is_run_once(redis_url: str) -> None:
    runs: asyncio.Queue[int] = asyncio.Queue()
    fence: asyncio.Queue[int] = asyncio.Queue()

    async def run(number: str) -> str:
        (fence if number == "fence" else runs).put_nowait(1)
        return "done"

    made = queue(redis_url)
    async with running(made, job(run)):
        assert await made.put("test", "x", job_id="1")
        await runs.get()
        assert await made.put("test", "fence", job_id="2")
        await fence.get()
        await made.put("test", "x", job_id="1")
        assert await made.put("test", "fence", job_id="3")
        await fence.get()
    assert runs.empty()


async def test_deployments_that_share_a_redis_do_not_meet(redis_url: str) -> None:
    mine: asyncio.Queue[str] = asyncio.Queue()
    theirs: asyncio.Queue[str] = asyncio.Queue()

    async def run_mine(word: str) -> str:
        mine.put_nowait(word)
        return "done"

    async def run_theirs(word: str) -> str:
        theirs.put_nowait(word)
        return "done"

    one, other = queue(redis_url, prefix="one"), queue(redis_url, prefix="other")
    async with running(one, job(run_mine)), running(other, job(run_theirs)):
        assert await one.put("test", "a", job_id="1")
        assert await other.put("test", "b", job_id="1")
        assert (await mine.get(), await theirs.get()) == ("a", "b")


async def test_periodic_jobs_run_once_for_all_workers(redis_url: str, asking: ArqQueue) -> None:
    runs: asyncio.Queue[int] = asyncio.Queue()
    fence: asyncio.Queue[int] = asyncio.Queue()

    async def run() -> str:
        runs.put_nowait(1)
        return "done"

    async def end() -> str:
        fence.put_nowait(1)
        return "done"

    jobs = [job(run, every_s=1e9), job(end, name="end")]
    async with running(queue(redis_url), *jobs), running(queue(redis_url), *jobs):
        await runs.get()
        for number in range(4):
            await asking.put("end", job_id=str(number))
            await fence.get()
    assert runs.empty()


async def test_a_job_that_was_put_off_is_tried_again(redis_url: str) -> None:
    tried: asyncio.Queue[float] = asyncio.Queue()

    async def run() -> str:
        tried.put_nowait(time.monotonic())
        raise TryLater("not yet", after_s=0.05)

    made = queue(redis_url)
    async with running(made, job(run)):
        await made.put("test", job_id="1")
        assert await tried.get() < await tried.get()


async def test_a_stop_lets_running_jobs_end(redis_url: str) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    ended: list[int] = []

    async def run() -> str:
        begun.set()
        await gate.wait()
        ended.append(1)
        return "done"

    made = queue(redis_url)
    async with running(made, job(run)) as stop:
        await made.put("test", job_id="1")
        await begun.wait()
        stop.set()
        asyncio.get_running_loop().call_later(0.05, gate.set)
    assert ended == [1]


async def test_what_does_not_end_in_time_runs_elsewhere(redis_url: str) -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()

    def hanging(name: str) -> Job:
        async def run() -> str:
            begun.put_nowait(name)
            await asyncio.Event().wait()
            return "never"

        return job(run)

    one = queue(redis_url, drain_s=0.05)
    async with running(one, hanging("one")):
        await one.put("test", job_id="1")
        assert await begun.get() == "one"
    async with running(queue(redis_url, drain_s=0.05), hanging("other")):
        assert await begun.get() == "other"


async def test_a_redis_that_restarts_ends_nothing() -> None:
    async with EmbeddedRedis() as server:
        done: asyncio.Queue[str] = asyncio.Queue()

        async def run(word: str) -> str:
            done.put_nowait(word)
            return "done"

        made = queue(server.url)
        async with running(made, job(run)):
            await made.put("test", "before", job_id="1")
            assert await done.get() == "before"
            server.kill()
            with pytest.raises(TryLater):
                await made.put("test", "while", job_id="2")
            await server.restart_async(empty=True)
            await made.put("test", "after", job_id="3")
            assert await done.get() == "after"


async def test_a_redis_that_is_away_is_waited_for() -> None:
    async def run() -> str:
        return "done"

    made = ArqQueue("redis://127.0.0.1:1", poll_s=0.01)
    async with running(made, job(run, every_s=60.0)):
        with pytest.raises(TryLater, match="cannot be reached"):
            await made.put("test", job_id="1")


async def test_a_redis_that_is_full_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    """What redis-py says names the command with everything that was to be stored; none of it belongs in a log."""

    async def run() -> str:
        return "done"

    async with EmbeddedRedis() as server, redis.asyncio.Redis.from_url(server.url) as client:
        made = queue(server.url)
        async with running(made, job(run, every_s=60.0)):
            await client.config_set("maxmemory-policy", "noeviction")
            await client.config_set("maxmemory", 1)
            with pytest.raises(TryLater, match="is full") as caught:
                await made.put("test", ["what is to be stored"], job_id="1")
            async with asyncio.timeout(30.0):
                while "queue_lost" not in {record.__dict__.get("action") for record in caplog.records}:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await client.config_set("maxmemory", 0)
            assert await made.put("test", job_id="2")
    for text in (str(caught.value), *(record.getMessage() for record in caplog.records)):
        for raw in ("pipeline", "PSETEX", "Command #", "what is to be stored", "OOM"):
            assert raw not in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (faults.OutOfMemoryError("raw"), "full"),
        (faults.ReadOnlyError("raw"), "replica"),
        (faults.AuthenticationError("raw"), "refuses"),
        (faults.NoPermissionError("raw"), "refuses"),
        (faults.BusyLoadingError("raw"), "loading"),
        (faults.TimeoutError("raw"), "does not answer"),
        (faults.ConnectionError("raw"), "cannot be reached"),
        (OSError("raw"), "cannot be reached"),
        (faults.ResponseError("raw"), "ResponseError"),
        (ValueError("raw"), "ValueError"),
        (None, "by itself"),
    ],
)
def test_every_error_has_words_and_none_of_its_own_text(error: Exception | None, words: str) -> None:
    assert words in said(error)
    assert "raw" not in said(error)


async def test_values_are_no_pickles_and_nothing_stays_for_ever(redis_url: str, redis_server: EmbeddedRedis) -> None:
    made = queue(redis_url)
    await made.put("test", ["a"], job_id="1")
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        stored = await client.get("arq:job:fmsg:1")
        assert await client.zrange(made.name, 0, -1) == [b"fmsg:1"]
    assert stored is not None
    assert b"\x80\x04" not in stored[:2]
    assert keys_without_ttl(redis_server) == []
    async with running(made, job(lambda *_args: asyncio.sleep(0, "done"))):
        pass


def test_a_cluster_cannot_hold_it() -> None:
    with pytest.raises(QueueNeedsOneNode, match="FMSG_QUEUE_REDIS_URL"):
        ArqQueue("redis+cluster://127.0.0.1:7000")
