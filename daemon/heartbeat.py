"""This daemon's heartbeat, and what the heartbeats of all show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daemon.settings import DaemonSettings
from ledger.port import Fleet, Member


class Heart:
    """Who we are, who else lives, and whether we may still speak for our callers.

    A daemon that was stopped for longer than its heartbeat holds (SIGSTOP, a sleeping machine, a store that could not
    be reached) may have lost every caller without knowing. So it trusts itself no longer than its last heartbeat
    holds, and after a longer silence only when it has looked at its leases.
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
        self._fleet = fleet
        self._name = name
        self._ttl_s = settings.heartbeat_ttl_s
        self._since_s = clock()
        self._now = now
        self._beat_at_s = float("-inf")
        self._doubt = True
        self._sure = asyncio.Event()

    def silent(self) -> bool:
        """Whether the last heartbeat no longer holds. Remembered until `trust`."""
        if self._now() - self._beat_at_s >= self._ttl_s:
            self._doubt = True
            self._sure.clear()
        return self._doubt

    async def beat(self, *, load: int, draining: bool) -> bool:
        """Renew the heartbeat and look at the others; whether the members or their plans changed.

        Raises `LedgerUnavailable`.
        """
        sent_at_s = self._now()
        member = Member(id=self.id, name=self._name, since_s=self._since_s, load=load, draining=draining)
        await self._fleet.beat(member)
        changed = await self.look()
        self._beat_at_s = sent_at_s
        return changed

    async def look(self) -> bool:
        """Look at the others; whether the members or their plans changed. Raises `LedgerUnavailable`."""
        members = tuple(await self._fleet.members())
        changed = self.present(members) != self.present(self.members)
        self.members = members
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
