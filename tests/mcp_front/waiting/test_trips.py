"""What a wait costs the store: commands on the ways that every message and every agent takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import fakeredis
import pytest

from ledger.memory import MemoryStore
from ledger.seal import SealKeys
from ledger.store import RedisStore
from mcp_front.waiting import wait
from tests.fake_redis import FakeTopology
from tests.mcp_front.waiting.virtual import run, wall_s
from tests.mcp_front.waiting.world import World, ids

PUSH_TO_RESULT = 3
"""The append of the feed, the read of the wait, the mark of what it returned."""
COLD_WAIT = 12
"""From the call of an agent that nobody knew until it is held with a live feed. The activation, the feed's state, the
look that begins the ledger (3), the place of "now", its mark and the first read; then, once the feed is live, another
read, the feed's state and the daemons (2)."""


@pytest.fixture(autouse=True)
def only_what_a_wait_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the process's own look at the store every two seconds."""
    monkeypatch.setattr(wait, "PULSE_S", 1e6)


class Counting(FakeTopology):
    """A topology that counts the commands sent through it."""

    def __init__(self, client: Any = None) -> None:
        super().__init__()
        if client is not None:
            self.client = client
        self.sent: Counter[str] = Counter()

    @property
    def commands(self) -> Any:
        return self

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        """Send one command."""
        if words[0] != "EVAL":  # it repeats an EVALSHA that the server did not know yet
            self.sent[str(words[0])] += 1
        return await self.client.execute_command(*words, **options)  # type: ignore[no-untyped-call]


async def settled() -> None:
    """Whatever was started has run as far as it can without time passing."""
    await asyncio.sleep(0.5)


def test_a_push_reaches_its_wait_with_few_commands() -> None:
    """The wait rests for a minute with a live feed, then a message is pushed."""

    async def scenario() -> None:
        topology = Counting()
        async with RedisStore(topology, seal=SealKeys.parse(SealKeys.generate()), clock=wall_s) as store:
            world = World(store=cast("MemoryStore", store))
            await world.begin_ledger()
            await world.feed_goes_live()
            await world.arrive(4)
            call = asyncio.create_task(world.wait(after_id=4, settle_s=0.0, timeout_s=200.0))
            await asyncio.sleep(61.0)
            await world.daemon_dies()  # its heartbeats would be counted
            await settled()
            topology.sent.clear()
            await world.arrive(5)
            outcome = await call
            assert (ids(outcome.ids), outcome.transport) == ([5], "websocket")
            assert topology.sent.total() <= PUSH_TO_RESULT, topology.sent
            await world.close()

    run(scenario())


def test_a_cold_wait_is_held_with_few_commands() -> None:
    """No ledger and no feed; a daemon takes the caller over within half a second. Only the front's commands count."""

    async def scenario() -> None:
        server = fakeredis.FakeServer(version=(6, 2))
        topology = Counting(fakeredis.FakeAsyncRedis(server=server))
        seal = SealKeys.parse(SealKeys.generate())
        daemons = RedisStore(Counting(fakeredis.FakeAsyncRedis(server=server)), seal=seal, clock=wall_s)
        async with daemons, RedisStore(topology, seal=seal, clock=wall_s) as store:
            world = World(store=cast("MemoryStore", daemons))
            world.host.put(4, time_s=wall_s() - 60.0)
            front = world.another_front(store)
            call = asyncio.create_task(world.wait(front=front, timeout_s=30.0, settle_s=0.0))
            await settled()
            await world.feed_goes_live()
            await asyncio.sleep(4.0)
            assert topology.sent.total() <= COLD_WAIT, topology.sent
            assert not call.done()
            await world.arrive(5)
            outcome = await call
            assert (ids(outcome.ids), outcome.transport) == ([5], "websocket")
            await world.close()

    run(scenario())
