"""`mcp_front.waiting.call`: nothing of a wait that has ended waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mcp_front.waiting.call import Held
from mcp_front.waiting.caller_state import Participant
from mcp_front.waiting.positions import Positions
from tests.mcp_front.waiting.virtual import run
from tests.mcp_front.waiting.world import World


def alive() -> int:
    """The objects of waits that are still there."""
    return sum(isinstance(each, Held | Participant | Positions) for each in gc.get_objects())


@pytest.mark.parametrize("cut", [False, True], ids=["ran out", "cut"])
def test_a_wait_that_has_ended_leaves_no_cycle(cut: bool) -> None:
    """With thousands of held calls full collections are rare: what they alone would free is as good as lost."""

    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        await world.feed_goes_live()
        gc.collect()
        gc.disable()
        try:
            before = alive()
            call = asyncio.create_task(world.wait(settle_s=0.0, timeout_s=30.0))
            if cut:
                await asyncio.sleep(1.0)
                call.cancel()
            await asyncio.wait([call])
            del call
            assert alive() == before
        finally:
            gc.enable()
        await world.close()

    run(scenario())
