from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from fmsg.errors import HostUnreachable
from ledger.port import LedgerUnavailable
from workers.queue import (
    MAX_WAITING,
    MIN_KNOWN,
    Job,
    MemoryQueue,
    Queue,
    TryLater,
    attempt,
    tick,
)


class Clock:
    """Time that passes only when somebody sleeps; sleepers take turns."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now_s += delay_s
        await asyncio.sleep(0)


async def forever(_delay_s: float) -> None:
    await asyncio.Event().wait()


def job(run: Callable[..., Awaitable[str]], *, every_s: float | None = None, max_tries: int = 3) -> Job:
    return Job(name="test", run=run, every_s=every_s, max_tries=max_tries, timeout_s=5.0, once_s=50.0)


class TestAttempt:
    async def test_what_is_done_is_over(self) -> None:
        async def run(*args: str) -> str:
            return "-".join(args)

        assert await attempt(job(run), ["a", "b"], tries=1, rng=random.Random(0)) is None

    @pytest.mark.parametrize("error", [TryLater("x"), HostUnreachable("x"), LedgerUnavailable("x"), TimeoutError()])
    async def test_trouble_elsewhere_means_another_try(self, error: Exception) -> None:
        async def run() -> str:
            raise error

        delay_s = await attempt(job(run), [], tries=2, rng=random.Random(0))
        assert delay_s is not None
        assert 0.5 <= delay_s <= 8.0
        assert await attempt(job(run), [], tries=3, rng=random.Random(0)) is None

    async def test_a_delay_that_was_asked_for_is_kept(self) -> None:
        async def run() -> str:
            raise TryLater("x", after_s=77.0)

        assert await attempt(job(run), [], tries=1, rng=random.Random(0)) == 77.0

    async def test_a_fault_of_ours_is_logged_and_over(self, caplog: pytest.LogCaptureFixture) -> None:
        async def run() -> str:
            raise ZeroDivisionError

        assert await attempt(job(run), [], tries=1, rng=random.Random(0)) is None
        assert "job failed" in caplog.text

    async def test_a_job_that_takes_too_long_is_stopped(self) -> None:
        async def run() -> str:
            await forever(0.0)
            return "never"

        slow = Job(name="test", run=run, timeout_s=0.01)
        assert await attempt(slow, [], tries=1, rng=random.Random(0)) is not None


class Recorder:
    """A queue that keeps what it is asked for."""

    def __init__(self, stop_after: int) -> None:
        self.ids: list[str] = []
        self.full = asyncio.Event()
        self.failing = False
        self._stop_after = stop_after

    async def put(self, job: str, *args: Sequence[str], job_id: str) -> bool:
        self.ids.append(job_id)
        if len(self.ids) >= self._stop_after:
            self.full.set()
        if self.failing:
            raise TryLater("away")
        return True

    async def run(self, jobs: Sequence[Job], *, stop: asyncio.Event) -> None:
        raise NotImplementedError


class TestTick:
    async def ids(self, recorder: Recorder, clock: Clock) -> list[str]:
        queue: Queue = recorder
        task = asyncio.create_task(tick(queue, "sweep", 60.0, clock=clock, sleep=clock.sleep))
        await recorder.full.wait()
        task.cancel()
        return recorder.ids

    async def test_once_a_period_and_at_once_for_the_current_one(self) -> None:
        clock = Clock(now_s=630.0)
        assert await self.ids(Recorder(3), clock) == ["sweep:10", "sweep:11", "sweep:12"]
        assert clock.slept[:2] == [30.0, 60.0]

    async def test_a_queue_that_is_away_is_asked_again_next_time(self) -> None:
        recorder = Recorder(2)
        recorder.failing = True
        assert await self.ids(recorder, Clock()) == ["sweep:16", "sweep:17"]


class TestMemoryQueue:
    async def test_what_is_put_is_run_with_its_arguments(self) -> None:
        done = asyncio.Event()
        seen: list[object] = []

        async def run(batch: list[str], word: str) -> str:
            seen.extend([batch, word])
            done.set()
            return "done"

        queue = MemoryQueue()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            assert await queue.put("test", ["a", "b"], "c", job_id="1")
            await done.wait()
            stop.set()
        assert seen == [["a", "b"], "c"]

    async def test_one_id_is_run_once_until_it_may_again(self) -> None:
        clock = Clock()
        runs: asyncio.Queue[int] = asyncio.Queue()
        count = 0

        async def run() -> str:
            nonlocal count
            count += 1
            runs.put_nowait(count)
            return "done"

        queue = MemoryQueue(clock=clock)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            assert await queue.put("test", job_id="1")
            assert not await queue.put("test", job_id="1")
            await runs.get()
            await asyncio.sleep(0)
            assert not await queue.put("test", job_id="1")
            clock.now_s += 51
            assert await queue.put("test", job_id="1")
            await runs.get()
            stop.set()
        assert count == 2

    async def test_ids_that_do_not_matter_any_more_are_forgotten(self) -> None:
        clock = Clock()
        ran: asyncio.Queue[int] = asyncio.Queue()

        async def run() -> str:
            ran.put_nowait(1)
            return "done"

        queue = MemoryQueue(clock=clock)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            for number in range(3 * MIN_KNOWN):
                clock.now_s += 10
                assert await queue.put("test", job_id=str(number))
                await ran.get()
            assert len(queue._known) <= MIN_KNOWN + 10
            stop.set()

    async def test_a_job_that_was_put_off_is_tried_again(self) -> None:
        clock = Clock()
        tried: list[int] = []
        done = asyncio.Event()

        async def run() -> str:
            tried.append(1)
            if len(tried) < 3:
                raise TryLater("not yet")
            done.set()
            return "done"

        queue = MemoryQueue(clock=clock, sleep=clock.sleep)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            await queue.put("test", job_id="1")
            await done.wait()
            stop.set()
        assert len(tried) == 3

    async def test_periodic_jobs_run_by_themselves(self) -> None:
        clock = Clock()
        runs: list[float] = []
        done = asyncio.Event()

        async def run() -> str:
            runs.append(clock.now_s)
            if len(runs) == 3:
                done.set()
            return "done"

        queue = MemoryQueue(clock=clock, sleep=clock.sleep)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run, every_s=60.0)], stop=stop))
            await done.wait()
            stop.set()

    async def test_at_most_so_many_at_once(self) -> None:
        running = most = 0
        gate = asyncio.Event()
        busy = asyncio.Event()

        async def run() -> str:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 2:
                busy.set()
            await gate.wait()
            running -= 1
            return "done"

        queue = MemoryQueue(max_jobs=2)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            for number in range(5):
                await queue.put("test", job_id=str(number))
            await busy.wait()
            gate.set()
            stop.set()
        assert most == 2

    async def test_a_stop_lets_running_jobs_end_and_leaves_the_rest(self) -> None:
        begun, gate = asyncio.Event(), asyncio.Event()
        ended: list[str] = []

        async def run(name: str) -> str:
            begun.set()
            await gate.wait()
            ended.append(name)
            return "done"

        queue = MemoryQueue(max_jobs=1)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            await queue.put("test", "first", job_id="1")
            await queue.put("test", "second", job_id="2")
            await begun.wait()
            stop.set()
            await asyncio.sleep(0)
            gate.set()
        assert ended == ["first"]

    async def test_but_not_for_ever(self) -> None:
        begun = asyncio.Event()

        async def run() -> str:
            begun.set()
            await asyncio.Event().wait()
            return "never"

        queue = MemoryQueue(drain_s=0.01)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            await queue.put("test", job_id="1")
            await begun.wait()
            stop.set()

    async def test_a_stop_does_not_wait_for_what_is_put_off(self) -> None:
        tried = asyncio.Event()

        async def run() -> str:
            tried.set()
            raise TryLater("not yet")

        queue = MemoryQueue(sleep=forever)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            await queue.put("test", job_id="1")
            await tried.wait()
            await asyncio.sleep(0)
            stop.set()

    async def test_what_is_put_off_while_the_queue_is_full_is_dropped(self) -> None:
        dropped, gate = asyncio.Event(), asyncio.Event()
        calls = 0

        async def run() -> str:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise TryLater("not yet")
            dropped.set()
            await gate.wait()
            return "done"

        async def fill(_delay_s: float) -> None:
            number = 0
            while await queue.put("test", job_id=f"more {number}"):
                number += 1

        queue = MemoryQueue(max_jobs=1, drain_s=0.01, sleep=fill)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run([job(run)], stop=stop))
            await queue.put("test", job_id="first")
            await dropped.wait()
            assert await queue.put("test", job_id="first"), "nobody remembers it"
            stop.set()

    async def test_it_has_a_bound(self) -> None:
        queue = MemoryQueue()
        for number in range(MAX_WAITING):
            assert await queue.put("test", job_id=str(number))
        assert not await queue.put("test", job_id="one too many")
