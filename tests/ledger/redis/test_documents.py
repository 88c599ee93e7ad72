from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from ledger.redis.documents import RedisDocuments
from tests.ledger.redis_backends import BACKENDS, Backend, backend_of
from tests.ledger.side_contract import ANN, DocumentsContract, Side


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with backend_of(request.param, request) as made:
        yield made


@pytest.fixture
def side(backend: Backend) -> Side:
    nothing = cast("Any", None)
    return Side(nothing, nothing, RedisDocuments(backend.scripts, backend.topology), nothing)


class TestRedisDocuments(DocumentsContract):
    async def test_a_document_lives_as_long_as_said_and_its_name_with_it(self, side: Side, backend: Backend) -> None:
        await side.documents.store(ANN, "sub", "long", b"1", expected=0, ttl_s=1000.0)
        await side.documents.store(ANN, "sub", "short", b"1", expected=0, ttl_s=10.0)
        ttls = {key: await backend.command("PTTL", key) for key in await backend.keys()}
        assert 990_000 < ttls[f"fmsg:{{{ANN}}}:doc:sub:long"] <= 1_000_000
        assert 9_000 < ttls[f"fmsg:{{{ANN}}}:doc:sub:short"] <= 10_000
        assert 990_000 < ttls[f"fmsg:{{{ANN}}}:docs:sub"] <= 1_000_000

    async def test_an_expired_one_is_no_name_any_more(self, side: Side, backend: Backend) -> None:
        await side.documents.store(ANN, "sub", "main", b"1", expected=0, ttl_s=1000.0)
        await backend.command("ZADD", f"fmsg:{{{ANN}}}:docs:sub", 1, "main")
        assert list(await side.documents.names(ANN, "sub")) == []

    async def test_a_value_of_next_to_no_life_is_legal(self, side: Side) -> None:
        assert await side.documents.store(ANN, "sub", "main", b"1", expected=0, ttl_s=0.0)
