"""A subscription as stored: loaded, changed by compare-and-set, listed, deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ledger.port import Documents
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey
from mcp_front.waiting.errors import SubscriptionRefused
from mcp_front.waiting.subscriptions import (
    MAX_SUBSCRIPTIONS,
    TTL_S,
    Acknowledgement,
    Delivery,
    Subscription,
    acknowledge,
    check_name,
    decode,
    encode,
    redeliver,
    to_redeliver,
)

KIND = "subscription"


class Kept:
    """One call's hold on a subscription. ``call`` names the call; times are the process's wall clock."""

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

    def own_delivery(self) -> Delivery | None:
        """What was stored for this call although it never heard so."""
        mine = [one for one in (self.state.outstanding if self.state else ()) if one.by == self.call]
        return mine[-1] if mine else None

    def to_redeliver(self) -> tuple[Delivery | None, float | None]:
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

    async def redeliver(self, delivery: Delivery) -> bool:
        """Take a delivery over; False where somebody changed the subscription meanwhile."""
        if self.state is None:
            return False
        return await self.store(redeliver(self.state, delivery, by=self.call, now_s=self._clock()))


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
    return await documents.delete(caller, KIND, check_name(name))
