"""`mcp_front.waiting.caller_state`: looks at the host that several waits share, and what ends with a wait."""

from __future__ import annotations

import asyncio

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
