from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from ledger.operators import Order, Process
from ledger.redis.operators import RedisOrders, RedisProcesses
from ledger.values import LedgerLimits
from tests.ledger.redis_backends import BACKENDS, Backend, backend_of


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with backend_of(request.param, request) as made:
        yield made


async def test_records_have_a_ttl_and_one_slot(backend: Backend) -> None:
    processes = RedisProcesses(backend.scripts, backend.topology, limits=LedgerLimits(presence_ttl_s=30.0))
    await processes.announce(Process(id="1", role="front", name="box", version="1", since_s=1.0))
    keys = await backend.keys()
    assert keys == ["fmsg:{processes}:index", "fmsg:{processes}:process:1"]
    for key in keys:
        assert 0 < await backend.command("PTTL", key) <= 30_000


async def test_a_record_that_is_gone_is_passed_over(backend: Backend) -> None:
    processes = RedisProcesses(backend.scripts, backend.topology, limits=LedgerLimits())
    await processes.announce(Process(id="1", role="front", name="box", version="1", since_s=1.0))
    await backend.command("DEL", "fmsg:{processes}:process:1")
    assert list(await processes.present()) == []


async def test_a_process_comes_with_the_time_it_was_heard_last(backend: Backend) -> None:
    processes = RedisProcesses(backend.scripts, backend.topology, limits=LedgerLimits())
    await processes.announce(Process(id="1", role="front", name="box", version="1", since_s=1.0, heard_at_s=7.0))
    seconds, micros = await backend.command("TIME")
    (found,) = await processes.present()
    assert 0.0 <= int(seconds) + int(micros) / 1e6 - found.heard_at_s < 60.0


async def test_one_whose_time_is_over_is_taken_off_the_list(backend: Backend) -> None:
    processes = RedisProcesses(backend.scripts, backend.topology, limits=LedgerLimits())
    await processes.announce(Process(id="1", role="front", name="box", version="1", since_s=1.0))
    await backend.command("ZADD", "fmsg:{processes}:index", 1, "1")
    assert list(await processes.present()) == []
    assert await backend.command("EXISTS", "fmsg:{processes}:index") == 0


async def test_what_is_no_order_is_said_and_passed_over(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    orders = RedisOrders(backend.scripts, backend.topology)
    heard: list[Order] = []
    orders.listen(heard.append)
    with caplog.at_level(logging.WARNING):
        for text in ("", "{", '{"what":"dance","caller":"c"}'):
            orders.heard(text)
    orders.heard('{"what":"rest","caller":"c"}')
    assert [order.what for order in heard] == ["rest"]
    assert len(caplog.records) == 2
