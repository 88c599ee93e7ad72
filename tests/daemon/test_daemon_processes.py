"""Daemons as processes: killed, stopped and resumed, told to end."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest

from ledger.embedded import EmbeddedRedis
from ledger.seal import SealKeys
from ledger.store import RedisStore
from tests.daemon.process import Child, child
from tests.daemon.test_placement import agents
from tests.daemon.world import LIMITS, Agent, World, world_of

pytestmark = pytest.mark.processes

SEAL = SealKeys.generate()


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    """A host in this process, and the store that all processes share."""
    async with RedisStore(redis_url, limits=LIMITS, seal=SealKeys.parse(SEAL)) as store, world_of(store) as world:
        yield world


async def until_live(world: World, callers: list[Agent], *daemons: Child) -> dict[str, list[Agent]]:
    """Wait until every feed is live with one of the daemons and has one socket; who is with whom."""
    found: dict[str, list[Agent]] = {}

    async def live() -> bool:
        found.clear()
        for caller in callers:
            report = await caller.report()
            if report is None or not report.live or caller.sockets != 1:
                return False
            found.setdefault(report.daemon, []).append(caller)
        return set(found) == {one.id for one in daemons}

    await world.bell.until(live)
    return found


async def test_killed_stopped_or_told_to_end_nobody_misses_a_message(world: World, redis_server: EmbeddedRedis) -> None:
    callers = await agents(world, 12)
    sent: dict[str, list[int]] = {caller.address: [] for caller in callers}

    async def everybody_gets_one() -> None:
        for caller in callers:
            sent[caller.address].append(world.deliver(caller))
        for caller in callers:
            await caller.until_ids(*sent[caller.address])

    url, api_url = redis_server.url, world.http.api_url
    async with (
        child("one", redis_url=url, seal=SEAL, api_url=api_url) as one,
        child("two", redis_url=url, seal=SEAL, api_url=api_url) as two,
    ):
        await until_live(world, callers, one, two)
        await everybody_gets_one()

        two.signal(signal.SIGKILL)
        for caller in callers:
            sent[caller.address].append(world.deliver(caller))
        await until_live(world, callers, one)
        await everybody_gets_one()

        async with child("three", redis_url=url, seal=SEAL, api_url=api_url) as three:
            theirs = (await until_live(world, callers, one, three))[three.id]
            three.signal(signal.SIGSTOP)
            for caller in theirs:
                await caller.until("live", daemon=one.id)
                assert caller.sockets == 2, "the stopped one's is still open"
            await everybody_gets_one()
            three.signal(signal.SIGCONT)
            await until_live(world, callers, one, three)
            await everybody_gets_one()

            one.signal(signal.SIGTERM)
            assert await one.process.wait() == 0
            await until_live(world, callers, three)
            await everybody_gets_one()
