from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from ledger.port import DeferredTask
from ledger.redis.tasks import RedisDeferredTasks
from ledger.values import LedgerLimits
from tests.ledger.redis_backends import BACKENDS, Backend, backend_of
from tests.ledger.side_contract import DeferredTasksContract, Side


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with backend_of(request.param, request) as made:
        yield made


@pytest.fixture
def side(backend: Backend) -> Side:
    nothing = cast("Any", None)
    return Side(
        nothing,
        nothing,
        nothing,
        RedisDeferredTasks(backend.scripts, backend.topology, limits=LedgerLimits(deferred_ttl_s=600.0)),
    )


class TestRedisDeferredTasks(DeferredTasksContract):
    async def test_what_nobody_could_do_for_too_long_is_dropped(
        self, side: Side, backend: Backend, task: DeferredTask
    ) -> None:
        await side.deferred.add(task)
        item = f"delete_draft|{task.caller}|{task.message_id}"
        await backend.command("HSET", "fmsg:{deferred}:items", item, f"0 {int(time.time()) - 601}")
        await side.deferred.add(msgspec.structs.replace(task, attempts=1))
        assert list(await side.deferred.due(10)) == []
        assert await side.deferred.depth() == 0

    async def test_a_task_without_its_record_is_dropped(self, side: Side, backend: Backend, task: DeferredTask) -> None:
        await side.deferred.add(task)
        await backend.command("DEL", "fmsg:{deferred}:items")
        assert list(await side.deferred.due(10)) == []
        assert await side.deferred.depth() == 0

    async def test_everything_has_a_ttl_and_one_slot(self, side: Side, backend: Backend, task: DeferredTask) -> None:
        await side.deferred.add(task)
        keys = await backend.keys()
        assert keys == ["fmsg:{deferred}:due", "fmsg:{deferred}:items"]
        assert all([0 < await backend.command("PTTL", key) <= 600_000 for key in keys])
