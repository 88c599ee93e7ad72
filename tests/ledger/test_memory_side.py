from __future__ import annotations

import time

import msgspec
import pytest

from ledger.memory import MemoryActivations, MemoryDeferredTasks, MemoryDocuments, MemoryFleet
from ledger.port import DeferredTask
from ledger.values import CallerKey
from tests.ledger.side_contract import (
    ANN,
    BEN,
    ActivationsContract,
    DeferredTasksContract,
    DocumentsContract,
    FleetContract,
    Side,
    activate,
    beat,
    live,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def side(clock: Clock) -> Side:
    return Side(
        MemoryActivations(ttl_s=600.0, clock=clock),
        MemoryFleet(heartbeat_ttl_s=10.0, clock=clock),
        MemoryDocuments(clock=clock),
        MemoryDeferredTasks(clock=clock, ttl_s=600.0),
    )


class TestMemoryActivations(ActivationsContract):
    async def test_an_activation_ends_when_nobody_asks_any_more(self, side: Side, clock: Clock) -> None:
        await activate(side)
        await side.activations.report(ANN, live())
        clock.now_s += 300
        await activate(side, BEN)
        clock.now_s += 300
        assert await side.activations.get(ANN) is None
        assert list(await side.activations.active()) == [BEN]
        assert await side.activations.feed(ANN) is None
        clock.now_s += 300
        assert list(await side.activations.active()) == []

    async def test_a_token_is_gone_when_it_expires(self, side: Side, clock: Clock) -> None:
        await activate(side, life_s=60.0)
        clock.now_s += 61
        found = await side.activations.get(ANN)
        assert found is not None
        assert (found.token, found.token_expires_at_s) == (None, 0.0)

    async def test_daemons_hear_of_what_there_is_to_do(self, side: Side) -> None:
        heard: list[CallerKey] = []
        stop = side.activations.listen(heard.append)
        await activate(side)
        await side.activations.report(ANN, live("backing_off"))
        await activate(side)
        await side.activations.report(ANN, live())
        await activate(side, token=None)
        assert heard == [ANN, ANN]
        await activate(side, token="t2")
        assert heard == [ANN, ANN, ANN]
        stop()
        stop()
        await activate(side, token="t3")
        assert len(heard) == 3


class TestMemoryFleet(FleetContract):
    async def test_a_heart_that_stops_is_dead(self, side: Side, clock: Clock) -> None:
        await beat(side, "d1")
        await side.fleet.take([ANN], "d1", over={})
        clock.now_s += 9
        await beat(side, "d2")
        clock.now_s += 2
        assert [member.id for member in await side.fleet.members()] == ["d2"]
        assert (await side.fleet.take([ANN], "d2", over={}))[ANN].daemon == "d2"


class TestMemoryDocuments(DocumentsContract):
    async def test_a_document_expires(self, side: Side, clock: Clock) -> None:
        assert await side.documents.store(ANN, "sub", "main", b"1", expected=0, ttl_s=60.0)
        clock.now_s += 61
        assert list(await side.documents.names(ANN, "sub")) == []
        assert (await side.documents.load(ANN, "sub", "main")).version == 0


class TestMemoryDeferredTasks(DeferredTasksContract):
    async def test_what_is_left_undone_for_too_long_is_dropped(
        self, side: Side, clock: Clock, task: DeferredTask
    ) -> None:
        await side.deferred.add(task)
        clock.now_s += 500
        await side.deferred.add(msgspec.structs.replace(task, attempts=1))
        clock.now_s += 101
        assert list(await side.deferred.due(10)) == []
        assert await side.deferred.depth() == 0
