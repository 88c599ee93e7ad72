from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from ledger.port import Chore
from ledger.redis.tasks import RedisChores
from ledger.values import LedgerLimits
from tests.ledger.redis_backends import BACKENDS, Backend, backend_of
from tests.ledger.side_contract import ChoresContract, Side


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
        RedisChores(backend.scripts, backend.topology, limits=LedgerLimits(chore_ttl_s=600.0)),
    )


class TestRedisChores(ChoresContract):
    async def test_what_nobody_could_do_for_too_long_is_dropped(
        self, side: Side, backend: Backend, chore: Chore
    ) -> None:
        await side.chores.add(chore)
        item = f"delete_draft|{chore.caller}|{chore.message_id}"
        await backend.command("HSET", "fmsg:{chores}:items", item, f"0 {int(time.time()) - 601}")
        await side.chores.add(msgspec.structs.replace(chore, attempts=1))
        assert list(await side.chores.due(10)) == []
        assert await side.chores.depth() == 0

    async def test_a_chore_without_its_record_is_dropped(self, side: Side, backend: Backend, chore: Chore) -> None:
        await side.chores.add(chore)
        await backend.command("DEL", "fmsg:{chores}:items")
        assert list(await side.chores.due(10)) == []
        assert await side.chores.depth() == 0

    async def test_everything_has_a_ttl_and_one_slot(self, side: Side, backend: Backend, chore: Chore) -> None:
        await side.chores.add(chore)
        keys = await backend.keys()
        assert keys == ["fmsg:{chores}:due", "fmsg:{chores}:items"]
        assert all([0 < await backend.command("PTTL", key) <= 600_000 for key in keys])
