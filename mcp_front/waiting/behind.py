"""What waits behind a delivery that is given again: counted anew, since the delivery holds only what was given."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from fmsg.errors import FmsgError
from ledger.deadlines import BEST_EFFORT_S, patient_for
from ledger.port import LedgerError
from ledger.values import Arrival
from mcp_front.waiting.backlog import Moved, WaitApi
from mcp_front.waiting.cursor import Pursuit
from mcp_front.waiting.decide import SHOWN, Return
from mcp_front.waiting.policy import Keeper
from mcp_front.waiting.step_context import Stand

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""The look may take so long: it is an extra, and the delivery itself is ready."""


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """What comes with the next calls (some of it, where there is much), and how much that is."""

    pending: tuple[Arrival, ...] = ()
    count: int = 0


async def look_behind(keeper: Keeper, stand: Stand | None, api: WaitApi, *, max_batch: int) -> Behind:
    """What would be returned next. Nothing where that cannot be told in a moment: it comes all the same."""
    if stand is None:
        return Behind()
    try:
        with patient_for(BEST_EFFORT_S):
            async with asyncio.timeout(LOOK_S):
                return await _look(keeper, stand, api, max_batch=max_batch)
    except (TimeoutError, Moved, LedgerError, FmsgError) as error:
        log.info("pending messages not counted", extra={"action": "pending_unknown", "error": type(error).__name__})
        return Behind()


async def _look(keeper: Keeper, stand: Stand, api: WaitApi, *, max_batch: int) -> Behind:
    start = await keeper.behind(stand)
    if start is None:
        return Behind()
    pursuit = Pursuit(
        api,
        stand.ledger,
        stand.caller,
        stand.positions,
        start,
        filters=keeper.filters(stand.filters),
        settle_s=0.0,
        max_batch=max_batch,
        saw=stand.saw,
    )
    found = await pursuit.pursue(elapsed_s=stand.elapsed(), closing=True, given=keeper.given, marks=False)
    if not isinstance(found.decision, Return):
        return Behind()
    pending = sorted((*found.decision.batch, *found.decision.pending), key=found.view.entries.index)
    return Behind(pending=tuple(pending[:SHOWN]), count=len(found.decision.batch) + found.decision.pending_count)
