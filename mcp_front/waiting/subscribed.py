"""A wait on a subscription: the server keeps the position (`subscriptions` has the rules).

The subscription is a document that is loaded, changed by compare-and-set, listed and deleted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from fmsg.reference import format_reference
from ledger.port import Documents
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey
from mcp_front.waiting.caller_state import StepContext
from mcp_front.waiting.cursor import Cursor
from mcp_front.waiting.decide import Filters, Return
from mcp_front.waiting.policy import find_now
from mcp_front.waiting.positions import Position, Start
from mcp_front.waiting.request import SubscriptionRefused
from mcp_front.waiting.subscriptions import (
    MAX_SUBSCRIPTIONS,
    TTL_S,
    Acknowledgement,
    Subscription,
    SubscriptionDelivery,
    acknowledge,
    advance,
    begin,
    check_filters,
    check_name,
    decode,
    deliver,
    encode,
    harmless_after_id,
    redeliver,
    to_redeliver,
)

KIND = "subscription"
DELETED = "deleted_subscription"
DELETED_TTL_S = 600.0
"""Longer than any call is held: one that waits on the subscription must tell a deletion from a flushed store."""


class SubscriptionRecord:
    """A subscription as stored, for one call. ``call`` names the call; times are the process's wall clock."""

    def __init__(
        self, documents: Documents, caller: CallerKey, name: str, *, call: str, clock: Callable[[], float]
    ) -> None:
        self.name = check_name(name)
        self.state: Subscription | None = None
        self.call = call
        self.acknowledgement: Acknowledgement = "none"
        """What the call's ``after_id`` meant."""
        self._documents = documents
        self._caller = caller
        self._clock = clock
        self._version: int | None = 0
        """None after a store, until it is needed: most calls store once."""
        self._began_seq: int | None = None

    async def load(self) -> Subscription | None:
        """The subscription as it is now. One that is gone stays in ``state``, as last seen."""
        stored = await self._documents.load(self._caller, KIND, self.name)
        self._version = stored.version
        if not stored.version:
            return None
        try:
            self.state = decode(stored.data)
        except msgspec.DecodeError:
            tell_unreadable(KIND, caller=self._caller)
            raise SubscriptionRefused(
                f"subscription: what is stored of {self.name} cannot be read, so it is not known how far it came. "
                "Delete it with wait_subscriptions, then make it anew: with the after_id of its last result it goes on "
                "there."
            ) from None
        return self.state

    async def restore(self) -> bool:
        """Store what is gone as it was last seen; False where somebody was faster."""
        return self.state is not None and await self.store(self.state)

    async def was_deleted(self) -> bool:
        """Whether somebody deleted it a moment ago."""
        return bool((await self._documents.load(self._caller, DELETED, self.name)).version)

    def deleted(self) -> SubscriptionRefused:
        """What to say where somebody deleted it while the call was held."""
        return SubscriptionRefused(
            f"subscription: {self.name} was deleted while this call waited on it. Call again to make it anew."
        )

    async def check_room(self) -> None:
        """Refuse one subscription too many. Raises `SubscriptionRefused`."""
        names = await self._documents.names(self._caller, KIND)
        if len(names) >= MAX_SUBSCRIPTIONS:
            raise SubscriptionRefused(
                f"subscription: {self.name} would be one more than the {MAX_SUBSCRIPTIONS} an address may have. "
                "Delete one that is not needed any more with wait_subscriptions, or use one there is."
            )

    async def store(self, state: Subscription) -> bool:
        """Replace what was loaded; False where somebody changed it meanwhile: load it again."""
        if self._version is None and not await self._still_there():
            return False
        if not await self._documents.store(
            self._caller, KIND, self.name, encode(state), expected=self._version or 0, ttl_s=TTL_S
        ):
            return False
        self._version = None
        self.state = state
        return True

    async def _still_there(self) -> bool:
        """Learn the version of what this call stored itself; whether it is still that."""
        stored = await self._documents.load(self._caller, KIND, self.name)
        self._version = stored.version
        return self.state is not None and stored.data == encode(self.state)

    async def acknowledge(self, after_id: int | None) -> bool:
        """Once per call: what its ``after_id`` acknowledges. False where somebody changed the state meanwhile."""
        if self.state is None or self._began_seq is not None:
            return True
        state, meaning = acknowledge(self.state, after_id)
        if meaning == "acknowledged" and not await self.store(msgspec.structs.replace(state, used_s=self._clock())):
            return False
        self._began_seq = state.seq
        self.acknowledgement = meaning
        return True

    @property
    def owes_acknowledgement(self) -> bool:
        """Whether what the call's ``after_id`` acknowledges is not recorded yet."""
        return self._began_seq is None

    def own_delivery(self) -> SubscriptionDelivery | None:
        """What was stored for this call although it never heard so."""
        mine = [one for one in (self.state.outstanding if self.state else ()) if one.by == self.call]
        return mine[-1] if mine else None

    def to_redeliver(self) -> tuple[SubscriptionDelivery | None, float | None]:
        """What this call gets again, else in how many seconds to look again."""
        if self.state is None:
            return None, None
        now_s = self._clock()
        delivery, at_s = to_redeliver(
            self.state,
            began_seq=self._began_seq or 0,
            acknowledged=self.acknowledgement == "acknowledged",
            now_s=now_s,
        )
        return delivery, None if at_s is None else max(at_s - now_s, 0.0)

    async def redeliver(self, delivery: SubscriptionDelivery) -> bool:
        """Take a delivery over; False where somebody changed the subscription meanwhile."""
        if self.state is None:
            return False
        return await self.store(redeliver(self.state, delivery, by=self.call, now_s=self._clock()))


class SubscriptionPolicy:
    """The server keeps the position.

    Implements `mcp_front.waiting.policy.Policy`."""

    marks = False

    def __init__(self, record: SubscriptionRecord, after_id: int | None, *, clock: Callable[[], float]) -> None:
        self.look_again_s: float | None = None
        self._record = record
        self._after_id = after_id
        self._clock = clock
        self._estranged = False

    @property
    def given(self) -> frozenset[int]:
        state = self._record.state
        return frozenset[int]() if state is None else state.given

    @property
    def position_id(self) -> int | None:
        if self._record.state is None or (self._after_id is not None and self._record.owes_acknowledgement):
            return self._after_id  # passed again it means the same
        return harmless_after_id(self._record.state, self._after_id)

    @property
    def notes(self) -> tuple[str, ...]:
        if self._record.acknowledgement != "foreign" or self._after_id is None:
            return ()
        return (
            f"after_id {format_reference(self._after_id)} acknowledges nothing: it is not the after_id of the last "
            f"result of subscription {self._record.name}, which goes on from where it stood",
        )

    def filters(self, asked: Filters) -> Filters:
        """Those the subscription was made with."""
        return msgspec.structs.replace(asked, from_=self._state.from_, thread_root=self._state.thread_root)

    def begin(self, message_id: int) -> None:
        return  # only the store knows it

    async def start(self, context: StepContext) -> Start | SubscriptionDelivery | None:
        self.look_again_s = None
        state = await self._record.load()
        if state is None and self._record.state is None:
            return await self._create(context)
        if state is None:
            await self._restore()
            return None
        check_filters(self._record.name, state, thread_root=context.filters.thread_root, from_=context.filters.from_)
        if not await self._record.acknowledge(self._after_id):
            return None
        delivery = self._record.own_delivery()
        if delivery is not None:
            return delivery
        delivery, self.look_again_s = self._record.to_redeliver()
        if delivery is None and state.is_full:
            delivery = state.outstanding[0]
        return delivery or await self._go_on(context)

    async def _create(self, context: StepContext) -> Start | None:
        await self._record.check_room()
        if self._after_id == 0:
            # Known without asking anybody: stored at once, it stays though the host cannot be asked now.
            return await self._go_on(context) if await self._begin_at(Position(0), context) else None
        after = None if self._after_id is None else Position(self._after_id)
        start = await (find_now(context) if after is None else context.positions.after(after))
        return start if await self._begin_at(start.position, context) else None

    async def _begin_at(self, position: Position, context: StepContext) -> bool:
        filters = context.filters
        state = begin(position, thread_root=filters.thread_root, from_=filters.from_, now_s=self._clock())
        return await self._record.store(state) and await self._record.acknowledge(self._after_id)

    async def _restore(self) -> None:
        """It went while this call was held: somebody deleted it, or it went with the whole store."""
        if await self._record.was_deleted():
            raise self._record.deleted()
        await self._record.restore()

    async def _go_on(self, context: StepContext) -> Start:
        frontier = self._frontier
        return await context.positions.after(frontier.left(foreign=True) if self._estranged else frontier)

    @property
    def _state(self) -> Subscription:
        if self._record.state is None:
            raise RuntimeError("the subscription was not loaded")
        return self._record.state

    @property
    def _frontier(self) -> Position:
        return self._state.frontier

    def record_early(self, context: StepContext, cursor: Cursor, decision: Return) -> None:
        """Nothing: a delivery that is stored is given again."""

    async def record(self, context: StepContext, cursor: Cursor, decision: Return, *, done: bool) -> int | None:
        state = self._state
        if state.is_full:
            return None  # begun anew, the oldest delivery comes again
        count = decision.progress.count
        taken = {delivery.after_id for delivery in state.outstanding}
        while count and cursor.entries[count - 1].id in taken:
            count -= 1  # each delivery is acknowledged by an id of its own; lower is safe, what was given is known
        frontier = cursor.position_after(count)
        passed = cursor.passed.union(entry.id for entry in cursor.entries[:count])
        new = deliver(
            state,
            decision.batch,
            frontier=frontier,
            passed=frozenset(passed),
            never_again=cursor.met_again_from(count),
            by=self._record.call,
            now_s=self._clock(),
        )
        if not await self._record.store(new):
            return None
        return frontier.id

    def is_own(self, delivery: SubscriptionDelivery) -> bool:
        return delivery.by == self._record.call

    async def record_again(self, delivery: SubscriptionDelivery) -> bool:
        return await self._record.redeliver(delivery)

    async def after_delivery(self, context: StepContext) -> Start:
        """Nothing at or below the frontier is given anew."""
        return await self._go_on(context)

    async def close(self, context: StepContext, cursor: Cursor) -> int:
        if cursor.position != self._frontier:
            new = advance(self._state, cursor.position, frozenset(cursor.passed), now_s=self._clock())
            await self._record.store(new)
        return harmless_after_id(self._state, self._after_id)

    def moved(self, cursor: Cursor | None, *, foreign: bool) -> None:
        self._estranged = True

    def store_failed(self) -> None:
        return


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as its caller sees it in a list. Times in POSIX seconds; of one not ``readable`` only the name."""

    name: str
    after_id: int = 0
    thread_root: int | None = None
    from_: str | None = None
    outstanding: int = 0
    """Results that were given and not acknowledged."""
    created_s: float = 0.0
    used_s: float = 0.0
    readable: bool = True


async def list_subscriptions(documents: Documents, caller: CallerKey) -> Sequence[Summary]:
    """The caller's subscriptions, by name."""
    found = []
    for name in await documents.names(caller, KIND):
        stored = await documents.load(caller, KIND, name)
        if not stored.version:
            continue
        try:
            state = decode(stored.data)
        except msgspec.DecodeError:
            tell_unreadable(KIND, caller=caller)
            found.append(Summary(name=name, readable=False))
            continue
        found.append(
            Summary(
                name=name,
                after_id=state.frontier.id,
                thread_root=state.thread_root,
                from_=state.from_,
                outstanding=len(state.outstanding),
                created_s=state.created_s,
                used_s=state.used_s,
            )
        )
    return found


async def delete_subscription(documents: Documents, caller: CallerKey, name: str) -> bool:
    """Forget a subscription with what it has outstanding; whether there was one."""
    was_there = await documents.delete(caller, KIND, check_name(name))
    if was_there:
        stored = await documents.load(caller, DELETED, name)
        await documents.store(caller, DELETED, name, b"1", expected=stored.version, ttl_s=DELETED_TTL_S)
    return was_there
