"""Who keeps the position of a wait: the agent that passes ``after_id``, or the server for a subscription.

A position is handed out only once the store has recorded it. Where the store does not take it the methods raise, and
the wait holds with nothing returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from fmsg.errors import FmsgError
from ledger.deadlines import BEST_EFFORT_S, answered_within
from ledger.port import LedgerError
from ledger.values import Arrival
from mcp_front.waiting.backlog import ListPosition, Moved, WaitApi, save_list_position
from mcp_front.waiting.caller_state import StepContext
from mcp_front.waiting.cursor import Cursor
from mcp_front.waiting.decide import SHOWN, Filters, Return
from mcp_front.waiting.positions import Position, Start
from mcp_front.waiting.subscriptions import SubscriptionDelivery

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""Counting what waits behind a delivery may take so long: it is an extra, and the delivery itself is ready."""


class Policy(Protocol):
    """Keeps the position of one wait. Methods raise what the host and the store raise."""

    @property
    def marks(self) -> bool:
        """Whether messages that were returned above a position are to be marked."""
        ...

    @property
    def given(self) -> frozenset[int]:
        """Ids to be passed over silently."""
        ...

    @property
    def position_id(self) -> int | None:
        """The position to name where nothing is returned; None while there is none yet."""
        ...

    @property
    def look_again_s(self) -> float | None:
        """In how many seconds to begin anew although nothing arrived."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the agent should know about its position."""
        ...

    def filters(self, asked: Filters) -> Filters:
        """What to wait for, where the call asks for this."""
        ...

    def begin(self, message_id: int) -> None:
        """The position is this message, as the host lists it."""
        ...

    async def start(self, context: StepContext) -> Start | SubscriptionDelivery | None:
        """Where to read on; or what comes again; or None: try again at once."""
        ...

    def record_early(self, context: StepContext, cursor: Cursor, decision: Return) -> Coroutine[Any, Any, None] | None:
        """Starts recording the position while the bodies are fetched. Returns None where that would be premature."""
        ...

    async def record(self, context: StepContext, cursor: Cursor, decision: Return, *, done: bool) -> int | None:
        """Record that a batch is returned: the position to name with it. None: another was faster, begin anew.

        ``done``: `record_early` has done it.
        """
        ...

    def is_own(self, delivery: SubscriptionDelivery) -> bool:
        """Whether a delivery was stored for this very call, which never heard so."""
        ...

    async def record_again(self, delivery: SubscriptionDelivery) -> bool:
        """Record that a delivery is given again. False: another was faster, begin anew."""
        ...

    async def after_delivery(self, context: StepContext) -> Start | None:
        """Where that begins which is given after what comes again; None where nothing does."""
        ...

    async def close(self, context: StepContext, cursor: Cursor) -> int:
        """Record how far a wait came that returns nothing: the position to name."""
        ...

    def moved(self, cursor: Cursor | None, *, foreign: bool) -> None:
        """The position has to be found anew, by id alone. ``foreign``: in another ledger than the one it is from."""
        ...

    def store_failed(self) -> None:
        """The store failed under this wait: what it held may be gone when it is back."""
        ...


async def find_now(context: StepContext) -> Start:
    """Behind the newest message there is at this moment (`Positions.now`)."""
    known = await context.ledger.state(context.caller) if context.transport == "websocket" else None
    caught_up = None if known is not None else await context.state.look(context.look)
    start = await context.positions.now(caught_up, elapsed_s=context.elapsed())
    older = await context.positions.older_unread(caught_up.began_with if caught_up else None)
    return msgspec.structs.replace(start, older=older)


class AgentPolicy:
    """The agent keeps its position. The ledger is told what it was handed, so that it is exact the next time."""

    marks = True
    look_again_s: float | None = None
    notes: tuple[str, ...] = ()
    given = frozenset[int]()

    def __init__(self, after_id: int | None) -> None:
        self.position_id = after_id
        """What the agent passed, or where the wait began. How far it came since is not recorded."""
        self._at = None if after_id is None else Position(after_id)

    def filters(self, asked: Filters) -> Filters:
        return asked

    def begin(self, message_id: int) -> None:
        self.position_id = message_id
        self._at = Position(message_id)

    async def start(self, context: StepContext) -> Start:
        if self._at is None:
            start = await find_now(context)
            await record_position(context, start.position)
        else:
            start = await context.positions.after(self._at)
        self._at = start.position
        if self.position_id is None:
            self.position_id = start.position.id
        return start

    def record_early(self, context: StepContext, cursor: Cursor, decision: Return) -> Coroutine[Any, Any, None] | None:
        """Recording a position that is never handed out does no harm; a batch may still be cut, and marks would."""
        if len(decision.batch) > 1 or decision.above:
            return None
        return self._record(context, cursor, decision)

    async def record(self, context: StepContext, cursor: Cursor, decision: Return, *, done: bool) -> int:
        if not done:
            await self._record(context, cursor, decision)
        return cursor.position_after(decision.progress.count).id

    async def _record(self, context: StepContext, cursor: Cursor, decision: Return) -> None:
        count = decision.progress.count
        above = (*decision.above, *cursor.perhaps_returned_from(count))
        await record_position(context, cursor.position_after(count), above=above)

    def is_own(self, delivery: SubscriptionDelivery) -> bool:
        return False

    async def record_again(self, delivery: SubscriptionDelivery) -> bool:
        return False  # nothing is given again here

    async def after_delivery(self, context: StepContext) -> Start | None:
        return None

    async def close(self, context: StepContext, cursor: Cursor) -> int:
        await record_position(context, cursor.position)
        return cursor.position.id

    def moved(self, cursor: Cursor | None, *, foreign: bool) -> None:
        at = cursor.position if cursor else self._at
        self._at = None if at is None else at.left(foreign=foreign)

    def store_failed(self) -> None:
        return


async def record_position(context: StepContext, position: Position, *, above: tuple[int, ...] = ()) -> None:
    """Have the store remember a position and the ids returned above it. Raises what the store raises."""
    head = position.head
    if head is None and position.epoch and position.id:
        listed = ListPosition(position.epoch, position.offset)
        await save_list_position(context.documents, context.caller, position.id, listed)
    if head is not None or above:
        message_id = 0 if head is None else position.id
        stands = await context.ledger.note_returned(context.caller, above=above, position=message_id, head=head)
        if stands and head is not None:
            context.state.note_handed_out(message_id, head)


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """What comes with the next calls (some of it, where there is much), and how much that is."""

    messages: tuple[Arrival, ...] = ()
    count: int = 0


async def pending_after(policy: Policy, context: StepContext | None, api: WaitApi, *, max_batch: int) -> Pending:
    """What would be returned after a delivery that is given again, counted anew.

    Nothing where that cannot be told in a moment: it comes all the same.
    """
    if context is None:
        return Pending()
    try:
        with answered_within(BEST_EFFORT_S):
            async with asyncio.timeout(LOOK_S):
                return await _count_pending(policy, context, api, max_batch=max_batch)
    except (TimeoutError, Moved, LedgerError, FmsgError) as error:
        log.info("pending messages not counted", extra={"action": "pending_unknown", "error": type(error).__name__})
        return Pending()


async def _count_pending(policy: Policy, context: StepContext, api: WaitApi, *, max_batch: int) -> Pending:
    start = await policy.after_delivery(context)
    if start is None:
        return Pending()
    cursor = Cursor(
        api,
        context.ledger,
        context.caller,
        context.positions,
        start,
        filters=policy.filters(context.filters),
        settle_s=0.0,
        max_batch=max_batch,
    )
    found = await cursor.pursue(elapsed_s=context.elapsed(), closing=True, given=policy.given, marks=False)
    decision = found.decision
    if not isinstance(decision, Return):
        return Pending()
    messages = sorted((*decision.batch, *decision.pending), key=found.view.entries.index)
    return Pending(messages=tuple(messages[:SHOWN]), count=len(decision.batch) + decision.pending_count)
