from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
import redis

from ledger.redis.activations import RedisActivations
from ledger.redis.documents import RedisDocuments
from ledger.redis.fleet import RedisFleet
from ledger.redis.scripts import Scripts
from ledger.redis.tasks import RedisDeferredTasks
from ledger.redis.topology import connect
from ledger.seal import SealKeys
from ledger.values import CallerKey, LedgerLimits
from tests.conftest import flush, keys_without_ttl
from tests.ledger.side_contract import (
    ANN,
    ActivationsContract,
    DeferredTasksContract,
    DocumentsContract,
    FleetContract,
    Side,
    a_task,
)
from tests.redis_setups import cluster


def promises() -> Iterator[Any]:
    """Every test of the contract, to be called with a side."""
    for contract in (ActivationsContract(), FleetContract(), DocumentsContract(), DeferredTasksContract()):
        for name, method in inspect.getmembers(contract, inspect.iscoroutinefunction):
            if name.startswith("test_"):
                yield method


@pytest.mark.processes
async def test_a_cluster_keeps_the_whole_contract() -> None:
    limits = LedgerLimits()
    async with cluster() as nodes:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        topology = connect(f"redis+cluster://:{nodes[0].password}@{hosts}")
        async with aclosing(topology):
            scripts = Scripts(topology.commands)
            side = Side(
                RedisActivations(scripts, topology, limits=limits, seal=SealKeys.parse(SealKeys.generate())),
                RedisFleet(scripts, topology, limits=limits),
                RedisDocuments(scripts, topology),
                RedisDeferredTasks(scripts, topology, limits=limits),
            )
            for promise in promises():
                for node in nodes:
                    flush(node)
                more = {"task": a_task()} if "task" in inspect.signature(promise).parameters else {}
                await promise(side, **more)
                assert [key for node in nodes for key in keys_without_ttl(node)] == []
            callers = [CallerKey(f"{number:032x}") for number in range(100)]
            await side.fleet.take([ANN, *callers], "d1", over={})
            for node in nodes:
                with redis.Redis.from_url(node.url) as client:
                    assert client.dbsize() > 0
