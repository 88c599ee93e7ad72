from __future__ import annotations

from ledger.redis.topology import SHARDS, by_shard, shard_of
from ledger.values import CallerKey


def test_callers_are_spread_over_all_shards() -> None:
    callers = [CallerKey(f"{number:032x}") for number in range(1000)]
    shards = by_shard(callers)
    assert sorted(shards) == list(range(SHARDS))
    assert sorted(caller for found in shards.values() for caller in found) == callers
    assert all(shard_of(caller) == shard for shard, found in shards.items() for caller in found)


def test_each_caller_once() -> None:
    caller = CallerKey("a" * 32)
    assert by_shard([caller, caller]) == {shard_of(caller): [caller]}
