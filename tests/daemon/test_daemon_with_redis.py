"""Daemons on a real Redis that is emptied, killed and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from ledger.embedded import EmbeddedRedis
from ledger.seal import SealKeys
from ledger.store import RedisStore
from tests.conftest import flush
from tests.daemon.test_placing import agents, until_placed
from tests.daemon.world import LIMITS, World, world_of


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedRedis]:
    """A server of this test's own."""
    async with EmbeddedRedis() as server:
        yield server


@pytest.fixture
async def world(server: EmbeddedRedis) -> AsyncIterator[World]:
    """A host, and a store in Redis."""
    seal = SealKeys.parse(SealKeys.generate())
    async with RedisStore(server.url, limits=LIMITS, seal=seal) as store, world_of(store) as world:
        yield world


async def test_callers_change_hands_without_a_moment_without_a_socket(world: World) -> None:
    callers = await agents(world, 12)
    one = await world.daemon("one")
    await until_placed(world, callers, one)
    two = await world.daemon("two")
    await until_placed(world, callers, one, two)
    await one.drain()
    await until_placed(world, callers, two)
    for caller in callers:
        assert min(caller.counts) == 1
        assert max(caller.counts) <= 2
        ids = [world.deliver(caller) for _ in range(3)]
        await caller.until_ids(*ids)


async def test_a_flushed_redis_is_filled_again_from_the_host(world: World, server: EmbeddedRedis) -> None:
    callers = await agents(world, 4)
    one, two = await world.daemon("one"), await world.daemon("two")
    await until_placed(world, callers, one, two)
    before = {caller.address: [world.deliver(caller) for _ in range(3)] for caller in callers}
    for caller in callers:
        await caller.until_ids(*before[caller.address])
    flush(server)
    for caller in callers:
        new = world.deliver(caller)
        await caller.until_ids(*before[caller.address], new)
        await caller.ask()
    await until_placed(world, callers, one, two)


async def test_a_redis_that_dies_and_comes_back_empty_loses_no_message(world: World, server: EmbeddedRedis) -> None:
    callers = await agents(world, 4)
    running = await world.daemon()
    await until_placed(world, callers, running)
    connects = world.host.core.faults.connects
    server.kill()
    ids = {caller.address: [world.deliver(caller) for _ in range(3)] for caller in callers}
    await server.restart_async(empty=True)
    for caller in callers:
        await caller.ask()
        await caller.until_ids(*ids[caller.address])
    await until_placed(world, callers, running)
    assert world.host.core.faults.connects == connects, "the sockets stayed open all the time"


async def test_the_dump_of_redis_shows_no_token(world: World, server: EmbeddedRedis) -> None:
    callers = await agents(world, 2)
    running = await world.daemon()
    await until_placed(world, callers, running)
    store = cast("RedisStore", world.store)
    keys = await store.topology.commands.execute_command("KEYS", "*")
    dumps = b"".join([await store.topology.commands.execute_command("DUMP", key) or b"" for key in keys])
    for caller in callers:
        assert caller.token is not None
        for secret in (caller.token.value, caller.api_key, caller.address):
            assert secret.encode() not in dumps
