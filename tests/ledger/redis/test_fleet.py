from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from ledger.redis.fleet import REFRESH_EVERY, RedisFleet
from ledger.redis.topology import SHARDS, shard_of
from ledger.values import LedgerLimits
from tests.ledger.redis_backends import BACKENDS, Backend, backend_of
from tests.ledger.side_contract import ANN, BEN, FleetContract, Side, beat


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with backend_of(request.param, request) as made:
        yield made


@pytest.fixture
def side(backend: Backend) -> Side:
    fleet = RedisFleet(backend.scripts, backend.topology, limits=LedgerLimits())
    nothing = cast("Any", None)
    return Side(nothing, fleet, nothing, nothing)


class TestRedisFleet(FleetContract):
    async def test_a_heart_that_stops_is_dead_though_the_list_still_names_it(
        self, side: Side, backend: Backend
    ) -> None:
        await beat(side, "d1", "d2")
        await side.fleet.take([ANN], "d1", over={})
        await backend.command("DEL", "fmsg:{fleet}:member:d1")
        assert [member.id for member in await side.fleet.members()] == ["d2"]
        assert (await side.fleet.take([ANN], "d2", over={}))[ANN].daemon == "d2"

    async def test_one_whose_time_is_over_is_taken_off_the_list(self, side: Side, backend: Backend) -> None:
        await beat(side, "d1", "d2")
        await backend.command("ZADD", "fmsg:{fleet}:members", 1, "d1")
        assert [member.id for member in await side.fleet.members()] == ["d2"]
        assert await backend.command("ZRANGE", "fmsg:{fleet}:members", 0, -1) == [b"d2"]

    async def test_what_changed_hands_while_we_looked_stays(self, side: Side, backend: Backend) -> None:
        await beat(side, "d1", "d2", "d3")
        await side.fleet.take([ANN], "d1", over={})
        rival = RedisFleet(backend.scripts, backend.topology, limits=LedgerLimits())

        class Slow(RedisFleet):
            async def members(self) -> Any:
                await rival.take([ANN], "d3", over={ANN: "d1"})
                return await super().members()

        slow = Slow(backend.scripts, backend.topology, limits=LedgerLimits())
        assert (await slow.take([ANN], "d2", over={ANN: "d1"}))[ANN].daemon == "d3"

    async def test_leases_and_heartbeats_have_a_ttl(self, side: Side, backend: Backend) -> None:
        await beat(side, "d1")
        await side.fleet.take([ANN, BEN], "d1", over={})
        for key in await backend.keys():
            assert 0 < await backend.command("PTTL", key) <= LedgerLimits().lease_ttl_s * 1000, key

    async def test_beating_keeps_the_leases_alive(self, side: Side, backend: Backend) -> None:
        await side.fleet.take([ANN], "d1", over={})
        key = f"fmsg:{{lease-{shard_of(ANN):02d}}}:held"
        await backend.command("PEXPIRE", key, 60_000)
        for _ in range(REFRESH_EVERY):
            await beat(side, "d1")
        assert await backend.command("PTTL", key) > 60_000

    async def test_keys_are_spread_and_of_one_slot_each(self, side: Side, backend: Backend) -> None:
        await side.fleet.take([ANN, BEN], "d1", over={})
        assert 0 <= shard_of(ANN) < SHARDS
        assert {key.split(":")[1] for key in await backend.keys()} == {
            f"{{lease-{shard_of(caller):02d}}}" for caller in (ANN, BEN)
        }
