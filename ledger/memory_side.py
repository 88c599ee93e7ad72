"""What surrounds the ledgers, in memory: activations, fleet, documents and chores of one process (stdio, tests)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ledger.connect_slots import ConnectSlots, reserve_slots
from ledger.limits import LedgerLimits
from ledger.port import Activation, ActiveFeed, Chore, FeedReport, Lease, Member, Versioned
from ledger.values import CallerKey


class MemoryActivations:
    """`ledger.port.Activations` of one process. Not asked for ``ttl_s``, a caller is not active any more."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._active: dict[CallerKey, Activation] = {}
        self._reports: dict[CallerKey, FeedReport] = {}
        self._ears: dict[int, Callable[[CallerKey], None]] = {}
        self._ear_ids = itertools.count()

    async def activate(
        self, caller: CallerKey, *, address: str, api_url: str, token: str | None, token_expires_at_s: float
    ) -> None:
        """See `ledger.port.Activations`."""
        before = await self.get(caller)
        if before is not None and (token is None or token_expires_at_s <= self._clock()):
            token, token_expires_at_s = before.token, before.token_expires_at_s
        self._active[caller] = Activation(
            caller=caller,
            address=address,
            api_url=api_url,
            asked_at_s=self._clock(),
            token=token,
            token_expires_at_s=token_expires_at_s if token is not None else 0.0,
        )
        feed = self._reports.get(caller)
        if before is None or before.token != token or feed is None or not feed.live:
            for wake in tuple(self._ears.values()):
                wake(caller)

    async def get(self, caller: CallerKey) -> Activation | None:
        """The activation, without its token once that has expired."""
        found = self._active.get(caller)
        now_s = self._clock()
        if found is None or found.asked_at_s + self._ttl_s <= now_s:
            self._drop(caller)
            return None
        if found.token is not None and found.token_expires_at_s <= now_s:
            found = msgspec.structs.replace(found, token=None, token_expires_at_s=0.0)
            self._active[caller] = found
        return found

    async def active(self) -> Sequence[CallerKey]:
        """All active callers."""
        oldest_s = self._clock() - self._ttl_s
        for caller in [key for key, found in self._active.items() if found.asked_at_s <= oldest_s]:
            self._drop(caller)
        return tuple(self._active)

    async def retire(self, caller: CallerKey, *, unless_asked_since_s: float | None = None) -> bool:
        """See `ledger.port.Activations`."""
        found = self._active.get(caller)
        if found is not None and unless_asked_since_s is not None and found.asked_at_s > unless_asked_since_s:
            return False
        self._drop(caller)
        return True

    async def report(self, caller: CallerKey, report: FeedReport) -> None:
        """Keep the report."""
        self._reports[caller] = report

    async def feed(self, caller: CallerKey) -> FeedReport | None:
        """The last report."""
        return self._reports.get(caller)

    async def settled(self, callers: Sequence[CallerKey]) -> Sequence[bool]:
        """See `ledger.port.Activations`."""
        reports = map(self._reports.get, callers)
        return tuple(report is not None and report.live and not report.needs_credential for report in reports)

    async def feeds(self, *, limit: int) -> Sequence[ActiveFeed]:
        """See `ledger.port.Activations`."""
        found = [await self.get(caller) for caller in (await self.active())[:limit]]
        return tuple(
            ActiveFeed(
                caller=one.caller,
                asked_at_s=one.asked_at_s,
                has_token=one.token is not None,
                report=self._reports.get(one.caller),
            )
            for one in found
            if one is not None
        )

    def listen(
        self, wake: Callable[[CallerKey], None], *, again: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call ``wake`` for each caller that is activated, until the returned function is called.

        Nothing is ever lost here, so ``again`` is never called.
        """
        ear = next(self._ear_ids)
        self._ears[ear] = wake

        def stop() -> None:
            self._ears.pop(ear, None)

        return stop

    def _drop(self, caller: CallerKey) -> None:
        self._active.pop(caller, None)
        self._reports.pop(caller, None)


class MemoryFleet:
    """`ledger.port.Fleet` of one process."""

    def __init__(self, *, heartbeat_ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = heartbeat_ttl_s
        self._clock = clock
        self._beats: dict[str, tuple[float, Member]] = {}
        self._leases: dict[CallerKey, Lease] = {}
        self._free_at_s = float("-inf")

    async def beat(self, member: Member) -> None:
        """Renew the heartbeat."""
        self._beats[member.id] = (self._clock() + self._ttl_s, member)

    async def leave(self, member_id: str) -> None:
        """Drop the heartbeat at once."""
        self._beats.pop(member_id, None)

    async def members(self) -> Sequence[Member]:
        """The live daemons, ordered by id."""
        now_s = self._clock()
        self._beats = {id_: beat for id_, beat in self._beats.items() if beat[0] > now_s}
        return tuple(self._beats[id_][1] for id_ in sorted(self._beats))

    async def take(
        self, callers: Sequence[CallerKey], daemon: str, *, over: Mapping[CallerKey, str]
    ) -> Mapping[CallerKey, Lease]:
        """Take what is free, ours, of a dead daemon or of the one in ``over``; how each lease stands then."""
        alive = {member.id for member in await self.members()}
        for caller in callers:
            held = self._leases.get(caller)
            if held is None or (
                held.daemon != daemon and (held.daemon not in alive or held.daemon == over.get(caller))
            ):
                self._leases[caller] = Lease(caller=caller, daemon=daemon, epoch=held.epoch + 1 if held else 1)
        return {caller: self._leases[caller] for caller in callers}

    async def holders(self, callers: Sequence[CallerKey]) -> Mapping[CallerKey, Lease]:
        """See `ledger.port.Fleet`."""
        found = {caller: self._leases[caller] for caller in callers if caller in self._leases}
        return {caller: lease for caller, lease in found.items() if lease.daemon}

    async def release(self, callers: Sequence[CallerKey], daemon: str) -> None:
        """Give up leases of ours; the epochs go on."""
        for caller in callers:
            held = self._leases.get(caller)
            if held is not None and held.daemon == daemon:
                self._leases[caller] = msgspec.structs.replace(held, daemon="")

    async def reserve_connects(self, count: int, *, per_s: float, within_s: float) -> ConnectSlots:
        """Reserve moments to open a socket."""
        slots, self._free_at_s = reserve_slots(
            self._free_at_s, self._clock(), count=count, every_s=1.0 / per_s, within_s=within_s
        )
        return slots

    async def sweep(self) -> int:
        """See `ledger.port.Fleet`."""
        alive = {member.id for member in await self.members()}
        dead = [lease for lease in self._leases.values() if lease.daemon and lease.daemon not in alive]
        for lease in dead:
            self._leases[lease.caller] = msgspec.structs.replace(lease, daemon="")
        return len(dead)


class MemoryDocuments:
    """`ledger.port.Documents` of one process."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[tuple[CallerKey, str, str], tuple[float, Versioned]] = {}
        self._versions = itertools.count(1)

    async def load(self, caller: CallerKey, kind: str, name: str) -> Versioned:
        """The value, or empty data with version 0."""
        return self._at((caller, kind, name)) or Versioned(data=b"", version=0)

    async def store(self, caller: CallerKey, kind: str, name: str, data: bytes, *, expected: int, ttl_s: float) -> bool:
        """Store if the version is still ``expected``. A version is never given twice, deleted or not."""
        key = (caller, kind, name)
        found = self._at(key)
        if (found.version if found else 0) != expected:
            return False
        self._kept[key] = (self._clock() + ttl_s, Versioned(data=data, version=next(self._versions)))
        return True

    async def delete(self, caller: CallerKey, kind: str, name: str) -> bool:
        """Delete; whether there was one."""
        key = (caller, kind, name)
        return self._at(key) is not None and self._kept.pop(key, None) is not None

    async def names(self, caller: CallerKey, kind: str) -> Sequence[str]:
        """The names stored, sorted."""
        held = [key for key in self._kept if key[:2] == (caller, kind)]
        return tuple(sorted(name for *_, name in held if self._at((caller, kind, name)) is not None))

    def _at(self, key: tuple[CallerKey, str, str]) -> Versioned | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            del self._kept[key]
            return None
        return found[1]


class MemoryChores:
    """`ledger.port.Chores` of one process."""

    def __init__(self, *, clock: Callable[[], float], ttl_s: float = LedgerLimits().chore_ttl_s) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._chores: dict[tuple[str, CallerKey, int], tuple[float, Chore]] = {}

    async def add(self, chore: Chore) -> None:
        """See `ledger.port.Chores`."""
        key = (chore.kind, chore.caller, chore.message_id)
        since_s, _ = self._chores.get(key, (self._clock(), chore))
        self._chores[key] = (since_s, chore)

    async def due(self, limit: int) -> Sequence[Chore]:
        """See `ledger.port.Chores`. What nobody could do for too long is dropped."""
        now_s = self._clock()
        ready = sorted(
            (item for item in self._chores.values() if item[1].due_s <= now_s), key=lambda item: item[1].due_s
        )[:limit]
        for since_s, chore in ready:
            if since_s < now_s - self._ttl_s:
                await self.done(chore)
        return tuple(chore for since_s, chore in ready if since_s >= now_s - self._ttl_s)

    async def done(self, chore: Chore) -> None:
        """See `ledger.port.Chores`."""
        self._chores.pop((chore.kind, chore.caller, chore.message_id), None)

    async def depth(self) -> int:
        """How many chores there are, due or not."""
        return len(self._chores)
