"""`mcp_front.waiting.caller_state`: looks at the host that several waits share, and what ends with a wait."""

from __future__ import annotations

import asyncio

import pytest

from ledger.port import LedgerUnavailable
from tests.mcp_front.waiting.virtual import run
from tests.mcp_front.waiting.world import World, ids


def test_a_wait_that_is_renewed_while_the_look_of_the_last_one_ends_looks_itself() -> None:
    """Without a feed a wait runs out in the middle of a look, which ends with it; the agent calls again at once."""

    async def scenario() -> None:
        world = World()
        world.host.put(1)
        world.host.latency_s = 1.0
        first = await world.wait(after_id=1, settle_s=0.0, timeout_s=20.5)
        assert first.status == "timeout"
        looking = asyncio.create_task(world.wait(settle_s=0.0, timeout_s=30.0))
        await asyncio.sleep(0.5)
        looking.cancel()
        renewed = asyncio.create_task(world.wait(settle_s=0.0, timeout_s=5.0))
        await asyncio.wait([looking])
        assert looking.cancelled()
        assert ids((await renewed).ids) == []
        await world.close()

    run(scenario())


def test_many_waits_that_queue_for_the_same_answer_share_its_failure() -> None:
    """One store command for the daemons' heartbeats hangs, and a hundred waits queue behind it: none queues twice."""

    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        await world.feed_goes_live()
        state = world.waiting._shared.caller(world.key)
        asked = 0

        async def hangs() -> None:
            nonlocal asked
            asked += 1
            await asyncio.sleep(5.0)
            raise LedgerUnavailable("Redis: no answer")

        members, world.store.fleet.members = world.store.fleet.members, hangs  # type: ignore[method-assign, assignment]
        await asyncio.sleep(60.0)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        answers = await asyncio.gather(*(state.transport() for _ in range(100)), return_exceptions=True)
        assert all(isinstance(answer, LedgerUnavailable) for answer in answers)
        assert loop.time() - began_s == pytest.approx(5.0)
        assert asked == 1
        world.store.fleet.members = members  # type: ignore[method-assign]
        assert await state.transport() == "websocket"
        await world.close()

    run(scenario())
