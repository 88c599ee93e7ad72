"""Reading on in a ledger that may become another one meanwhile."""

from __future__ import annotations

import copy
from typing import cast

import pytest

from fmsg.webapi import WebApi
from ledger.memory import MemoryLedger
from ledger.port import StaleEpoch
from ledger.values import Baseline, CallerKey, Seen
from mcp_front.waiting.backlog import Moved
from mcp_front.waiting.cursor import Cursor
from mcp_front.waiting.decide import Filters
from mcp_front.waiting.positions import Position, Positions, Start
from tests.mcp_front.waiting.world import Host

ALICE = CallerKey("a" * 32)


def seen(*ids: int) -> list[Seen]:
    return [Seen(id=id_, pid=None, root=id_, from_="@bob@b.test", sent_at_s=5.0) for id_ in ids]


def cursor(ledger: MemoryLedger, position: Position) -> Cursor:
    """Behind message 1, the ledger's first."""
    start = Start(position=position, after=position.at, epoch=position.epoch)
    api, positions = cast("WebApi", Host()), cast("Positions", None)
    filters = Filters(address="@me@here.test")
    return Cursor(api, ledger, ALICE, positions, start, filters=filters, settle_s=0.0, max_batch=9)


async def cursor_in(ledger: MemoryLedger) -> Cursor:
    state = await ledger.begin(ALICE, seen(1), Baseline(newest_id=1))
    return cursor(ledger, Position(1, state.epoch, state.last))


def ids(reader: Cursor) -> list[int]:
    return [entry.id for entry in reader.entries]


async def test_it_reads_on_from_where_it_stands() -> None:
    ledger = MemoryLedger()
    reader = await cursor_in(ledger)
    await reader.read()
    assert ids(reader) == []
    await ledger.append(ALICE, seen(2, 3), "push")
    await reader.read()
    await ledger.append(ALICE, seen(4), "push")
    await reader.read()
    assert ids(reader) == [2, 3, 4]
    assert reader.complete


@pytest.mark.parametrize("grown", [(9,), (9, 3), (9, 3, 2, 4)])
async def test_a_tail_lost_and_grown_again_is_noticed_whatever_its_length(grown: tuple[int, ...]) -> None:
    """A failover: at the offset that was read last there may even be the same message, behind others than before."""
    now_s = [1000.0]
    ledger = MemoryLedger(clock=lambda: now_s[0])
    reader = await cursor_in(ledger)
    lagging = copy.deepcopy(ledger._ledgers[ALICE])
    now_s[0] += 1.0
    await ledger.append(ALICE, seen(2, 3), "push")
    await reader.read()
    ledger._ledgers[ALICE] = lagging
    now_s[0] += 1.0
    await ledger.append(ALICE, seen(*grown), "push")
    with pytest.raises(StaleEpoch):
        await reader.read()


async def test_a_ledger_begun_anew_or_trimmed_past_the_position_is_noticed() -> None:
    ledger = MemoryLedger()
    reader = await cursor_in(ledger)
    await ledger.forget(ALICE)
    state = await ledger.begin(ALICE, seen(1), Baseline(newest_id=1))
    with pytest.raises(StaleEpoch):
        await reader.read()
    await ledger.append(ALICE, seen(*range(2, 1003)), "push")
    behind = cursor(ledger, Position(1, state.epoch, state.last))
    with pytest.raises(Moved, match="trimmed"):
        await behind.read()
