from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from prometheus_client import REGISTRY

from fmsg.errors import CredentialMissing, FmsgError, Forbidden, HostUnreachable, NotFound, Unauthorized
from ledger.memory import MemoryDeferredTasks
from ledger.port import DeferredTask, LedgerUnavailable
from ledger.values import CallerKey
from tests.ledger.fake_host import ME, FakeHost
from tests.workers.fake_callers import FakeCallers
from workers.queue import TryLater
from workers.settings import WorkerSettings
from workers.tasks import FIRST_DELAY_S, MAX_DELAY_S, DeferredTaskRunner, clear_away

ANN = CallerKey("a" * 32)
BEN = CallerKey("b" * 32)
NOW_S = 10_000.0


class Clock:
    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def deferred(clock: Clock) -> MemoryDeferredTasks:
    return MemoryDeferredTasks(clock=clock)


@pytest.fixture
def callers() -> FakeCallers:
    return FakeCallers()


@pytest.fixture
def host(callers: FakeCallers) -> FakeHost:
    callers.hosts[ANN] = FakeHost()
    return callers.hosts[ANN]


@pytest.fixture
def runner(deferred: MemoryDeferredTasks, callers: FakeCallers, clock: Clock) -> DeferredTaskRunner:
    return DeferredTaskRunner(deferred, callers, settings=WorkerSettings(), clock=clock, rng=random.Random(0))


def task(kind: str = "delete_draft", message_id: int = 7, *, caller: CallerKey = ANN) -> DeferredTask:
    return DeferredTask(kind=kind, caller=caller, message_id=message_id, due_s=NOW_S - 1)


def count(job: str, outcome: str) -> float:
    return REGISTRY.get_sample_value("fmsg_mcpd_jobs_total", {"kind": job, "outcome": outcome}) or 0.0


class TestClearingAway:
    async def test_a_draft_is_deleted(self, host: FakeHost) -> None:
        host.put(7, time_s=None, from_=ME)
        assert await clear_away(host, 7) == "deleted"
        assert host.messages == {}

    async def test_what_was_sent_is_let_be(self, host: FakeHost) -> None:
        host.put(7, time_s=5.0, from_=ME)
        assert await clear_away(host, 7) == "sent"
        assert host.asked["delete_draft"] == 0

    async def test_what_is_gone_is_gone(self, host: FakeHost) -> None:
        assert await clear_away(host, 7) == "gone"

    async def test_gone_in_between(self, host: FakeHost) -> None:
        host.put(7, time_s=None, from_=ME)
        host.errors["delete_draft"] = [NotFound(404, "message not found")]
        assert await clear_away(host, 7) == "gone"

    async def test_sent_in_between(self, host: FakeHost) -> None:
        class Racing(FakeHost):
            async def delete_draft(self, message_id: int) -> None:
                self.send(message_id, time_s=5.0)
                await super().delete_draft(message_id)

        racing = Racing()
        racing.put(7, time_s=None, from_=ME)
        assert await clear_away(racing, 7) == "sent"

    async def test_a_draft_one_may_not_delete_is_a_refusal(self, host: FakeHost) -> None:
        host.put(7, time_s=None, from_=ME)
        host.errors["delete_draft"] = [Forbidden(403, "no")]
        with pytest.raises(Forbidden):
            await clear_away(host, 7)


class TestDeferredTasks:
    @pytest.mark.parametrize("kind", ["delete_draft", "settle_send"])
    async def test_one_that_is_done_is_forgotten_in_both_kinds(
        self, kind: str, runner: DeferredTaskRunner, deferred: MemoryDeferredTasks, host: FakeHost
    ) -> None:
        host.put(7, time_s=None, from_=ME)
        other = "settle_send" if kind == "delete_draft" else "delete_draft"
        await deferred.add(task(kind))
        await deferred.add(msgspec.structs.replace(task(other), due_s=NOW_S + 3600))
        before = count(kind, "deleted")
        assert await runner.run() == "done"
        assert await deferred.depth() == 0
        assert host.messages == {}
        assert count(kind, "deleted") == before + 1

    async def test_nothing_to_do(self, runner: DeferredTaskRunner) -> None:
        assert await runner.run() == "idle"

    async def test_what_was_sent_meanwhile_is_let_be(
        self, runner: DeferredTaskRunner, deferred: MemoryDeferredTasks, host: FakeHost
    ) -> None:
        host.put(7, time_s=5.0, from_=ME)
        await deferred.add(task())
        await runner.run()
        assert await deferred.depth() == 0
        assert 7 in host.messages

    async def test_without_a_token_it_waits_longer_each_time(
        self, runner: DeferredTaskRunner, deferred: MemoryDeferredTasks, clock: Clock
    ) -> None:
        await deferred.add(task(caller=BEN))
        delays = []
        for attempts in range(9):
            assert await runner.run() == "done"
            assert list(await deferred.due(10)) == []
            started_s = clock.now_s
            clock.now_s += 2 * MAX_DELAY_S
            (waiting,) = await deferred.due(10)
            assert waiting.attempts == attempts + 1
            delays.append(waiting.due_s - started_s)
        assert 0.5 * FIRST_DELAY_S <= delays[0] <= FIRST_DELAY_S
        assert 1.5 * delays[0] < delays[2]
        assert delays[-1] <= MAX_DELAY_S

    @pytest.mark.parametrize("error", [HostUnreachable("cut"), Unauthorized(401, "expired"), CredentialMissing("none")])
    async def test_trouble_puts_it_off(
        self, error: FmsgError, runner: DeferredTaskRunner, deferred: MemoryDeferredTasks, host: FakeHost
    ) -> None:
        host.errors["message"] = [error]
        await deferred.add(task())
        await runner.run()
        assert await deferred.depth() == 1
        assert list(await deferred.due(10)) == []

    async def test_a_refusal_ends_it(
        self, runner: DeferredTaskRunner, deferred: MemoryDeferredTasks, host: FakeHost
    ) -> None:
        host.errors["message"] = [Forbidden(403, "access denied")]
        await deferred.add(task())
        await runner.run()
        assert await deferred.depth() == 0

    async def test_an_unknown_one_is_dropped(self, runner: DeferredTaskRunner, deferred: MemoryDeferredTasks) -> None:
        await deferred.add(task("wash_up"))
        await runner.run()
        assert await deferred.depth() == 0

    async def test_a_store_in_trouble_means_later(self, callers: FakeCallers, clock: Clock) -> None:
        class Away(MemoryDeferredTasks):
            async def add(self, task: DeferredTask) -> None:
                raise LedgerUnavailable("away")

            async def due(self, limit: int) -> Sequence[DeferredTask]:
                return [task(), task(message_id=8)]

        runner = DeferredTaskRunner(
            Away(clock=clock), callers, settings=WorkerSettings(concurrency=1), clock=clock, rng=random.Random(0)
        )
        with pytest.raises(TryLater, match="away"):
            await runner.run()
