from __future__ import annotations

import asyncio

import pytest

from ledger.values import CallerKey
from mcp_front.per_caller import Turns

ANN, BOB = CallerKey("ann"), CallerKey("bob")


async def test_a_caller_over_its_share_waits_and_the_others_do_not() -> None:
    turns = Turns(2)
    order: list[str] = []
    await turns.take(ANN)
    await turns.take(ANN)

    async def third(name: str) -> None:
        await turns.take(ANN)
        order.append(name)

    waiting = [asyncio.ensure_future(third(name)) for name in ("first", "second")]
    await asyncio.wait_for(turns.take(BOB), 1.0)
    turns.give_back(BOB)
    assert order == []
    turns.give_back(ANN)
    await waiting[0]
    assert order == ["first"]
    turns.give_back(ANN)
    await waiting[1]
    turns.give_back(ANN)
    turns.give_back(ANN)
    assert len(turns) == 0


async def test_whoever_stops_waiting_leaves_nothing_behind() -> None:
    turns = Turns(1)
    await turns.take(ANN)
    waiting = asyncio.ensure_future(turns.take(ANN))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    turns.give_back(ANN)
    assert len(turns) == 0
