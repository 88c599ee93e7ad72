"""A wait on a subscription: the server keeps the position (`subscriptions` says how, `kept` stores it)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fmsg.reference import format_reference
from mcp_front.waiting.cursor import Pursuit
from mcp_front.waiting.decide import Filters, Return
from mcp_front.waiting.policy import find_now
from mcp_front.waiting.positions import Position, Start
from mcp_front.waiting.step_context import Stand
from mcp_front.waiting.subscription_record import Kept
from mcp_front.waiting.subscriptions import (
    Delivery,
    Subscription,
    advance,
    begin,
    check_filters,
    deliver,
    harmless_after_id,
)


class SubscriptionKeeper:
    """See `mcp_front.waiting.policy.Keeper`."""

    reads_marks = False

    def __init__(self, kept: Kept, after_id: int | None, *, clock: Callable[[], float]) -> None:
        self.look_again_s: float | None = None
        self._kept = kept
        self._after_id = after_id
        self._clock = clock
        self._estranged = False

    @property
    def given(self) -> frozenset[int]:
        """See `Keeper`."""
        state = self._kept.state
        return frozenset[int]() if state is None else state.given

    @property
    def position_id(self) -> int | None:
        """See `Keeper`."""
        if self._kept.state is None:
            return self._after_id
        return harmless_after_id(self._kept.state, self._after_id)

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Keeper`."""
        if self._kept.acknowledgement != "foreign" or self._after_id is None:
            return ()
        return (
            f"after_id {format_reference(self._after_id)} acknowledges nothing: it is not the after_id of the last "
            f"result of subscription {self._kept.name}, which goes on from where it stood",
        )

    def filters(self, asked: Filters) -> Filters:
        """See `Keeper`: those the subscription was made with."""
        return msgspec.structs.replace(asked, from_=self._state.from_, thread_root=self._state.thread_root)

    async def start(self, stand: Stand) -> Start | Delivery | None:
        """See `Keeper`."""
        self.look_again_s = None
        state = await self._kept.load()
        if state is None and self._kept.state is None:
            return await self._create(stand)
        if state is None:
            await self._restore(stand)
            return None
        check_filters(self._kept.name, state, thread_root=stand.filters.thread_root, from_=stand.filters.from_)
        if not await self._kept.acknowledge(self._after_id):
            return None
        delivery = self._kept.own_delivery()
        if delivery is not None:
            return delivery
        delivery, self.look_again_s = self._kept.to_redeliver()
        if delivery is None and state.is_full:
            delivery = state.outstanding[0]
        return delivery or await self._go_on(stand)

    async def _create(self, stand: Stand) -> Start | None:
        await self._kept.check_room()
        if self._after_id == 0:
            # Known without asking anybody: stored at once, it stays though the host cannot be asked now.
            return await self._go_on(stand) if await self._begin_at(Position(0), stand) else None
        after = None if self._after_id is None else Position(self._after_id)
        start = await (find_now(stand) if after is None else stand.positions.after(after))
        return start if await self._begin_at(start.position, stand) else None

    async def _begin_at(self, position: Position, stand: Stand) -> bool:
        filters = stand.filters
        state = begin(position, thread_root=filters.thread_root, from_=filters.from_, now_s=self._clock())
        return await self._kept.store(state) and await self._kept.acknowledge(self._after_id)

    async def _restore(self, stand: Stand) -> None:
        """It went while this call was held: with the whole store, or because somebody deleted it."""
        ledger = await stand.ledger.state(stand.caller)
        forgotten = ledger is None or ledger.epoch != self._frontier.epoch
        if not (self._estranged or forgotten):
            raise self._kept.deleted()
        await self._kept.restore()

    async def _go_on(self, stand: Stand) -> Start:
        frontier = self._frontier
        return await stand.positions.after(frontier.left(foreign=True) if self._estranged else frontier)

    @property
    def _state(self) -> Subscription:
        if self._kept.state is None:
            raise RuntimeError("the subscription was not loaded")
        return self._kept.state

    @property
    def _frontier(self) -> Position:
        return self._state.frontier

    def ahead(self, stand: Stand, pursuit: Pursuit, decision: Return) -> None:
        """See `Keeper`. Nothing: a delivery that is stored is given again."""

    async def keep(
        self, stand: Stand, pursuit: Pursuit, decision: Return, *, recorded: bool | None = None
    ) -> int | None:
        """See `Keeper`."""
        state = self._state
        if state.is_full:
            return None  # begun anew, the oldest delivery comes again
        count = decision.progress.count
        taken = {delivery.after_id for delivery in state.outstanding}
        while count and pursuit.reader.entries[count - 1].id in taken:
            count -= 1  # each delivery is acknowledged by an id of its own; lower is safe, what was given is known
        frontier = pursuit.reader.position_after(count)
        passed = pursuit.passed.union(entry.id for entry in pursuit.reader.entries[:count])
        new = deliver(
            state,
            decision.batch,
            frontier=frontier,
            passed=frozenset(passed),
            never_again=pursuit.reader.met_again_from(count),
            by=self._kept.call,
            now_s=self._clock(),
        )
        if not await self._kept.store(new):
            return None
        return frontier.id

    def is_own(self, delivery: Delivery) -> bool:
        """See `Keeper`."""
        return delivery.by == self._kept.call

    async def keep_again(self, delivery: Delivery) -> bool:
        """See `Keeper`."""
        return await self._kept.redeliver(delivery)

    async def behind(self, stand: Stand) -> Start:
        """See `Keeper`: nothing at or below the frontier is given anew."""
        return await self._go_on(stand)

    async def close(self, stand: Stand, pursuit: Pursuit) -> int:
        """See `Keeper`."""
        if pursuit.position != self._frontier:
            new = advance(self._state, pursuit.position, frozenset(pursuit.passed), now_s=self._clock())
            await self._kept.store(new)
        return harmless_after_id(self._state, self._after_id)

    def leave(self, pursuit: Pursuit | None, *, foreign: bool, away: bool = False) -> None:
        """See `Keeper`."""
        self._estranged = True
