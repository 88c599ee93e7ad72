from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
import redis

import ledger.redis.side as redis_side
from ledger.redis.scripts import Scripts
from ledger.redis.topology import connect
from ledger.seal import SealKeys
from ledger.values import CallerKey, LedgerLimits
from tests.conftest import flush, keys_without_ttl
from tests.ledger.side_contract import (
    ANN,
    ActivationsContract,
    ChoresContract,
    DocumentsContract,
    FleetContract,
    Side,
    a_chore,
)
from tests.redis_setups import cluster


def test_the_side_records_are_all_in_one_place() -> None:
    named = {name for name in vars(redis_side) if name.startswith("Redis") or name.isupper()}
    assert set(redis_side.__all__) == named


def promises() -> Iterator[Any]:
    """Every test of the contract, to be called with a side."""
    for contract in (ActivationsContract(), FleetContract(), DocumentsContract(), ChoresContract()):
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
                redis_side.RedisActivations(scripts, topology, limits=limits, seal=SealKeys.parse(SealKeys.generate())),
                redis_side.RedisFleet(scripts, topology, limits=limits),
                redis_side.RedisDocuments(scripts, topology),
                redis_side.RedisChores(scripts, topology, limits=limits),
            )
            for promise in promises():
                for node in nodes:
                    flush(node)
                more = {"chore": a_chore()} if "chore" in inspect.signature(promise).parameters else {}
                await promise(side, **more)
                assert [key for node in nodes for key in keys_without_ttl(node)] == []
            callers = [CallerKey(f"{number:032x}") for number in range(100)]
            await side.fleet.take([ANN, *callers], "d1", over={})
            for node in nodes:
                with redis.Redis.from_url(node.url) as client:
                    assert client.dbsize() > 0
