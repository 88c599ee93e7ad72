"""This daemon's heartbeat, and what the heartbeats of all show."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from daemon.settings import DaemonSettings
from ledger.port import Fleet, Member


class Heartbeat:
    """Who we are, which other daemons live, and whether we may still speak for our callers.

    A daemon that was stopped for longer than its heartbeat holds (SIGSTOP, a sleeping machine, a store that could not
    be reached) may have lost every caller without knowing. So it trusts itself no longer than its last heartbeat
    holds. After a longer silence it looks at its leases first.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        id_: str,
        name: str,
        settings: DaemonSettings,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """``clock`` gives POSIX seconds; ``now`` does not go back."""
        self.id = id_
        """Unique per process start."""
        self.members: tuple[Member, ...] = ()
        """The daemons that live, ourselves among them."""
        self.forgotten = False
        """Whether the store lost our heartbeat: it was emptied, lost what came last, or we were silent for too long."""
        self._recall_until_s = float("-inf")
        self._fleet = fleet
        self._name = name
        self._ttl_s = settings.heartbeat_ttl_s
        self._since_s = clock()
        self._now = now
        self._beat_at_s = float("-inf")
        self._doubt = True
        self._sure = asyncio.Event()
        self._counts: deque[tuple[float, int]] = deque(maxlen=64)

    def silent(self) -> bool:
        """Whether the last heartbeat no longer holds. Remembered until `trust`."""
        if self._now() - self._beat_at_s >= self._ttl_s:
            self._doubt = True
            self._sure.clear()
        return self._doubt

    async def beat(
        self, *, load: int, draining: bool, host_lost_at_s: float | None = None, host_error: str | None = None
    ) -> bool:
        """Renew the heartbeat and look at the others; whether the members or their plans changed.

        Raises `LedgerUnavailable`.
        """
        sent_at_s = self._now()
        others = [other for other in await self._members() if other.id != self.id]
        member = Member(
            id=self.id,
            name=self._name,
            since_s=self._since_s,
            load=load,
            draining=draining,
            host_lost_at_s=host_lost_at_s,
            host_error=host_error,
        )
        await self._fleet.beat(member)
        self._beat_at_s = sent_at_s
        return self._see((*others, member))

    def connecting(self) -> int:
        """How many daemons may open sockets, as far as we know: the most there were lately.

        A daemon that left our view may only have lost its heartbeat to a store that was emptied. A rate that is shared
        without the store must not count on its being gone.
        """
        now_s = self._now()
        while len(self._counts) > 1 and (
            self._counts[1][0] <= now_s - self._ttl_s or self._counts[0][1] <= self._counts[1][1]
        ):
            self._counts.popleft()
        return max((count for _, count in self._counts), default=1)

    async def look(self) -> bool:
        """Look at the others; whether the members or their plans changed. Raises `LedgerUnavailable`."""
        return self._see(await self._members())

    async def _members(self) -> tuple[Member, ...]:
        members = tuple(await self._fleet.members())
        if self._beat_at_s > float("-inf") and all(member.id != self.id for member in members):
            self.forgotten = True
            self._recall_until_s = self._now() + self._ttl_s / 2
        return members

    def _see(self, members: tuple[Member, ...]) -> bool:
        if self._now() < self._recall_until_s:
            # A store that was emptied knows the others again once they beat. Until then they live as before.
            seen = {member.id for member in members}
            members = (*members, *(member for member in self.members if member.id not in seen))
        changed = self.present(members) != self.present(self.members)
        self.members = members
        if not self._counts or self._counts[-1][1] != len(members):
            self._counts.append((self._now(), len(members)))
        return changed

    def trust(self) -> None:
        """Our leases were looked at since the last silence."""
        self._doubt = False
        self._sure.set()

    async def sure(self) -> None:
        """Return once we may speak for our callers."""
        while self.silent():
            await self._sure.wait()

    @staticmethod
    def present(members: tuple[Member, ...]) -> frozenset[str]:
        """The ids of those that take callers."""
        return frozenset(member.id for member in members if not member.draining)
