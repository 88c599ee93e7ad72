"""Which callers this daemon takes, keeps and lets go: `daemon.ownership` carried out with leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from daemon.feed.context import FeedContext
from daemon.feed.machine import PASSING, WITH_SOCKET, State
from daemon.feed.runner import FeedRunner
from daemon.heartbeat import Heart
from daemon.holding import Holding
from daemon.ownership import assign
from daemon.reports import Reporter
from ledger.port import Activation, FeedReport, Fleet, Lease
from ledger.values import CallerKey
from telemetry.metrics import HANDOVERS, LEASES, LEASES_LOST

log = logging.getLogger(__name__)

IN_A_THREAD = 5000
"""Callers from which on the plan is made beside the event loop: hashing them takes longer than anybody should wait."""

TOGETHER = 64
"""Activations and reports read at the same time."""

AUDITED_AT_ONCE = 2000
"""Leases looked at in one round, 10 ms of work here and for the store. Of more callers the rest comes with the next
rounds: a lease that others took is known from the heartbeat, this is for what nobody thought of."""


class Placing:
    """The callers of this daemon.

    A caller that is ours by plan is *wanted* until we hold its lease; *contested* while another daemon that lives holds
    it. A caller that we hold and that is not ours by plan is *leaving*: its socket stays open until its new owner
    reports that its own is.
    """

    def __init__(
        self,
        ctx: FeedContext,
        fleet: Fleet,
        heart: Heart,
        holdings: dict[CallerKey, Holding],
        reporter: Reporter,
        *,
        now: Callable[[], float],
    ) -> None:
        self.known: set[CallerKey] = set()
        """The active callers of the whole fleet."""
        self.planning_s = 0.0
        """How long it took to make the last plan."""
        self._ctx = ctx
        self._fleet = fleet
        self._heart = heart
        self._holdings = holdings
        self._reporter = reporter
        self._now = now
        self._first: dict[CallerKey, str] = {}
        self._first_of: frozenset[str] = frozenset()
        self._contested: dict[CallerKey, tuple[str, float]] = {}
        self._leaving: set[CallerKey] = set()
        self._foreign: set[CallerKey] = set()
        self._draining = False
        self._unaudited: list[CallerKey] = []

    @property
    def moving(self) -> bool:
        """Whether some callers are on their way to us or from us."""
        return bool(self._contested or self._leaving)

    @property
    def on_their_way(self) -> int:
        """How many callers are ours by plan and have no socket here yet."""
        connecting = sum(1 for holding in self._holdings.values() if holding.owned and holding.runner.state in PASSING)
        return len(self._contested) + connecting

    async def plan(self, *, draining: bool) -> None:
        """Compare who owns whom with what we hold, and take what is free. Raises `LedgerUnavailable`."""
        self._draining = draining
        members = self._heart.present(self._heart.members) - {self._heart.id}
        if not draining:
            members |= {self._heart.id}
        if members != self._first_of or len(self._first) > 2 * len(self.known) + IN_A_THREAD:
            self._first, self._first_of = {}, members
        callers = self.known | self._holdings.keys() if draining else set(self.known)
        began_s = self._now()
        if len(callers) > IN_A_THREAD:
            owners = await asyncio.to_thread(assign, members, callers, first=self._first)
        else:
            owners = assign(members, callers, first=self._first)
        self.planning_s = self._now() - began_s
        mine = {caller for caller, owner in owners.items() if owner == self._heart.id}
        self._leaving = {
            caller
            for caller, holding in self._holdings.items()
            if (caller in owners and caller not in mine) or not holding.owned
        }
        self._contested = {caller: held for caller, held in self._contested.items() if caller in mine}
        mine -= self._holdings.keys() | self._contested.keys() | self._foreign
        await self._take(mine)

    async def audit(self) -> None:
        """Look at the leases of all we hold. Raises `LedgerUnavailable`."""
        await self._audit(list(self._holdings))

    async def audit_some(self) -> None:
        """Look at some leases, at others the next time. Raises `LedgerUnavailable`."""
        self._unaudited = self._unaudited or list(self._holdings)
        await self._audit([caller for caller in self._unaudited[:AUDITED_AT_ONCE] if caller in self._holdings])
        del self._unaudited[:AUDITED_AT_ONCE]

    async def _audit(self, callers: list[CallerKey]) -> None:
        leases = await self._fleet.take(callers, self._heart.id, over={})
        for caller, lease in leases.items():
            holding = self._holdings.get(caller)
            if holding is not None:
                self._look_at(holding, lease)

    async def move(self) -> None:
        """One round of taking over what is contested and letting go what is leaving. Raises `LedgerUnavailable`."""
        if self._contested:
            await self._pull()
        if self._leaving:
            await self._let_go()

    async def give_up(self, callers: Iterable[CallerKey]) -> None:
        """Close feeds and release their leases. Raises `LedgerUnavailable`; the feeds are closed then all the same."""
        ours = [caller for caller in callers if caller in self._holdings]
        owned = [caller for caller in ours if self._holdings[caller].owned]
        await asyncio.gather(*(self._drop(caller) for caller in ours))
        if owned:
            await self._fleet.release(owned, self._heart.id)

    def without_socket(self) -> list[CallerKey]:
        """The callers of ours that no socket would be lost of."""
        return [caller for caller, holding in self._holdings.items() if holding.runner.state not in WITH_SOCKET]

    async def _take(self, wanted: Collection[CallerKey]) -> None:
        if not wanted:
            return
        leases = await self._fleet.take(list(wanted), self._heart.id, over={})
        now_s = self._now()
        for caller, lease in leases.items():
            if lease.daemon != self._heart.id:
                self._contested.setdefault(caller, (lease.daemon, now_s))
        await self._begin([lease for lease in leases.values() if lease.daemon == self._heart.id], pulled=False)

    async def _begin(self, leases: Collection[Lease], *, pulled: bool) -> None:
        activations = await self._activations([lease.caller for lease in leases])
        orphans: list[CallerKey] = []
        settings = self._ctx.settings
        now_s = self._ctx.clock()
        for lease in leases:
            self._contested.pop(lease.caller, None)
            held = self._holdings.get(lease.caller)
            if held is not None:
                # Planned and moved at the same moment, it was taken twice; a feed put in the place of another would
                # leave that one's socket open for ever.
                held.epoch, held.owned = lease.epoch, True
                continue
            activation = activations.get(lease.caller)
            if activation is None or not self._is_of_our_host(activation):
                orphans.append(lease.caller)
                continue
            runner = FeedRunner(self._ctx, lease.caller, activation.address)
            self._holdings[lease.caller] = Holding(
                runner,
                epoch=lease.epoch,
                asked_at_s=activation.asked_at_s,
                quiet_until_s=now_s + settings.pull_report_s if pulled else 0.0,
            )
            LEASES.inc()
            self._ctx.feeds = len(self._holdings)
            runner.start(gap=not pulled)
            if pulled:
                HANDOVERS.labels("in").inc()
                asyncio.get_running_loop().call_later(settings.pull_report_s, self._reporter.changed, lease.caller)
        if orphans:
            self.known.difference_update(orphans)
            await self._fleet.release(orphans, self._heart.id)

    async def _pull(self) -> None:
        """Take contested callers over, no more than we can connect soon: until then they are better off there."""
        alive = {member.id: member for member in self._heart.members}
        now_s = self._now()
        room = self._ctx.connect_rate.ready(now_s, within_s=self._ctx.settings.handover_round_s)
        free: list[CallerKey] = []
        over: dict[CallerKey, str] = {}
        for caller, (holder, since_s) in self._contested.items():
            member = alive.get(holder)
            if member is None:
                free.append(caller)
            elif len(over) < room and (member.draining or now_s - since_s >= self._ctx.settings.pull_settle_s):
                over[caller] = holder
        for caller in free:
            del self._contested[caller]
        await self._take(free)
        activations = await self._activations(list(over))
        for caller in list(over):
            activation = activations.get(caller)
            if (activation is None or activation.token is None) and not alive[over[caller]].draining:
                # We could not open a socket; theirs is open.
                self._contested[caller] = (over.pop(caller), now_s)
        if over:
            leases = await self._fleet.take(list(over), self._heart.id, over=over)
            self._contested.update(
                {caller: (lease.daemon, now_s) for caller, lease in leases.items() if lease.daemon != self._heart.id}
            )
            await self._begin([lease for lease in leases.values() if lease.daemon == self._heart.id], pulled=True)

    async def _let_go(self) -> None:
        """Close the feeds whose new owners listen."""
        leaving = [caller for caller in self._leaving if caller in self._holdings]
        leases = await self._fleet.take(leaving, self._heart.id, over={})
        gone: dict[CallerKey, str] = {}
        for caller, lease in leases.items():
            holding = self._holdings.get(caller)
            if holding is None:
                continue
            if lease.daemon == self._heart.id:
                holding.epoch, holding.owned = lease.epoch, True
            else:
                holding.owned = False
                gone[caller] = lease.daemon
        for chunk in _chunks(list(gone)):
            reports = await asyncio.gather(*(self._ctx.activations.feed(caller) for caller in chunk))
            for caller, report in zip(chunk, reports, strict=True):
                if report is not None and report.daemon == self._heart.id:
                    await self._take_back(caller)
                if report is None or report.daemon != gone[caller]:
                    continue
                # A new owner that lacks a token will not listen before we are gone.
                if report.live or (self._draining and report.needs_credential):
                    HANDOVERS.labels("out").inc()
                    self._leaving.discard(caller)
                    self._ctx.spawn(self._drop(caller))

    async def _take_back(self, caller: CallerKey) -> None:
        """What we said of a caller reached the store after its new owner's word: let that one speak again."""
        holding = self._holdings.get(caller)
        if holding is None:
            return
        idle = FeedReport(state=State.IDLE.value, daemon=self._heart.id, since_s=self._ctx.clock())
        await self._ctx.activations.report(caller, idle)
        # Rings, since no feed is live as far as the store knows.
        await self._ctx.activations.activate(
            caller,
            address=holding.runner.address,
            api_url=self._ctx.http.api_url,
            token=None,
            token_expires_at_s=0.0,
        )

    def _look_at(self, holding: Holding, lease: Lease) -> None:
        if lease.daemon != self._heart.id:
            if holding.owned and lease.caller not in self._leaving:
                LEASES_LOST.inc()
            holding.owned = False
            self._leaving.add(lease.caller)
            return
        holding.owned = True
        if lease.epoch != holding.epoch:
            # It went through other hands, or the store was emptied: what was reported may be gone, and the ledger too.
            holding.epoch = lease.epoch
            self._reporter.changed(lease.caller)
            holding.runner.reconcile_within(self._ctx.pace.soon_s(feeds=self._ctx.feeds))

    def _is_of_our_host(self, activation: Activation) -> bool:
        if activation.api_url.rstrip("/") == self._ctx.http.api_url:
            return True
        if activation.caller not in self._foreign:
            self._foreign.add(activation.caller)
            log.warning(
                "a caller belongs to another host than this daemon's; give each host a Redis prefix of its own",
                extra={"action": "foreign_caller", "caller": activation.caller},
            )
        return False

    async def _drop(self, caller: CallerKey) -> None:
        holding = self._holdings.pop(caller, None)
        if holding is not None:
            LEASES.dec()
            self._ctx.feeds = len(self._holdings)
            await holding.runner.close()

    async def _activations(self, callers: list[CallerKey]) -> Mapping[CallerKey, Activation]:
        found: dict[CallerKey, Activation] = {}
        for chunk in _chunks(callers):
            for activation in await asyncio.gather(*(self._ctx.activations.get(caller) for caller in chunk)):
                if activation is not None:
                    found[activation.caller] = activation
        return found


def _chunks(callers: list[CallerKey]) -> list[list[CallerKey]]:
    return [callers[start : start + TOGETHER] for start in range(0, len(callers), TOGETHER)]
