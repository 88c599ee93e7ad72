"""Which callers this daemon takes, keeps and lets go: `daemon.ownership` carried out with leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from daemon.feed.context import FeedContext
from daemon.feed.machine import PASSING, WITH_SOCKET, State
from daemon.feed.runner import FeedRunner
from daemon.heartbeat import Heartbeat
from daemon.ownership import assign
from daemon.reports import HeldFeed, Reporter
from ledger.port import Activation, FeedReport, Fleet, Lease, LedgerUnavailable
from ledger.values import CallerKey
from telemetry.logs import SELDOM
from telemetry.metrics import HANDOVERS, LEASES, LEASES_LOST

log = logging.getLogger(__name__)

IN_A_THREAD = 5000
"""Callers from which on the plan is made in a thread, since hashing them holds the event loop."""

TOGETHER = 64
"""Activations and reports read at the same time."""

AUDITED_AT_ONCE = 2000
"""Leases looked at in one round, 10 ms of work here and for the store. Of more callers the rest comes with the next
rounds. Leases that others took are noticed by the heartbeat; this finds what the heartbeat cannot show."""


class Placement:
    """The callers of this daemon.

    A caller that is ours by plan is *wanted* until we hold its lease; *contested* while another daemon that lives holds
    it. A caller that we hold and that is not ours by plan is *leaving*: its socket stays open until its new owner
    reports that its own is.
    """

    def __init__(
        self,
        ctx: FeedContext,
        fleet: Fleet,
        heartbeat: Heartbeat,
        held: dict[CallerKey, HeldFeed],
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
        self._heartbeat = heartbeat
        self._held = held
        self._reporter = reporter
        self._now = now
        self._first: dict[str, str] = {}
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
    def without_feed(self) -> int:
        """How many callers of ours have no socket, here or elsewhere, because their feeds are on their way."""
        alive = {member.id for member in self._heartbeat.members}
        orphaned = sum(1 for holder, _ in self._contested.values() if holder not in alive)
        return orphaned + sum(
            1 for feed in self._held.values() if feed.owned and not feed.pulled and feed.runner.state in PASSING
        )

    async def plan(self, *, draining: bool) -> None:
        """Compare who owns whom with what we hold, and take what is free. Raises `LedgerUnavailable`."""
        self._draining = draining
        members = self._heartbeat.present(self._heartbeat.members) - {self._heartbeat.id}
        if not draining:
            members |= {self._heartbeat.id}
        if members != self._first_of:
            self._first, self._first_of = {}, members
        callers = self.known | self._held.keys() if draining else set(self.known)
        began_s = self._now()
        if len(callers) > IN_A_THREAD:
            owners = await asyncio.to_thread(assign, members, callers, first=self._first)
        else:
            owners = assign(members, callers, first=self._first)
        self.planning_s = self._now() - began_s
        mine = {caller for caller, owner in owners.items() if owner == self._heartbeat.id}
        self._leaving = {
            caller for caller, feed in self._held.items() if (caller in owners and caller not in mine) or not feed.owned
        }
        self._contested = {caller: held for caller, held in self._contested.items() if caller in mine}
        mine -= self._held.keys() | self._contested.keys() | self._foreign
        await self._take(mine)

    async def audit(self) -> None:
        """Look at the leases of all we hold. Raises `LedgerUnavailable`."""
        await self._audit(list(self._held))

    async def audit_some(self) -> None:
        """Look at some leases, at others the next time. Raises `LedgerUnavailable`."""
        self._unaudited = self._unaudited or list(self._held)
        await self._audit([caller for caller in self._unaudited[:AUDITED_AT_ONCE] if caller in self._held])
        del self._unaudited[:AUDITED_AT_ONCE]

    async def _audit(self, callers: list[CallerKey]) -> None:
        leases = await self._fleet.take(callers, self._heartbeat.id, over={})
        for caller, lease in leases.items():
            feed = self._held.get(caller)
            if feed is not None:
                self._look_at(feed, lease)

    async def move(self) -> None:
        """One round of taking over what is contested and letting go what is leaving. Raises `LedgerUnavailable`."""
        if self._contested:
            await self._pull()
        if self._leaving:
            await self._let_go()

    async def give_up(self, callers: Iterable[CallerKey]) -> None:
        """Close feeds and release their leases. Raises `LedgerUnavailable`; the feeds are closed then all the same."""
        ours = [caller for caller in callers if caller in self._held]
        owned = [caller for caller in ours if self._held[caller].owned]
        await asyncio.gather(*(self._drop(caller) for caller in ours))
        if owned:
            await self._fleet.release(owned, self._heartbeat.id)

    def without_socket(self) -> list[CallerKey]:
        """Our callers whose feeds have no socket: giving them up closes none."""
        return [caller for caller, feed in self._held.items() if feed.runner.state not in WITH_SOCKET]

    async def _take(self, wanted: Collection[CallerKey]) -> None:
        if not wanted:
            return
        leases = await self._fleet.take(list(wanted), self._heartbeat.id, over={})
        now_s = self._now()
        for caller, lease in leases.items():
            if lease.daemon != self._heartbeat.id:
                self._contested.setdefault(caller, (lease.daemon, now_s))
        await self._begin([lease for lease in leases.values() if lease.daemon == self._heartbeat.id], pulled=False)

    async def _begin(self, leases: Collection[Lease], *, pulled: bool) -> None:
        activations = await self._activations([lease.caller for lease in leases])
        orphans: list[CallerKey] = []
        settings = self._ctx.settings
        now_s = self._ctx.clock()
        for lease in leases:
            self._contested.pop(lease.caller, None)
            held = self._held.get(lease.caller)
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
            self._held[lease.caller] = HeldFeed(
                runner,
                epoch=lease.epoch,
                asked_at_s=activation.asked_at_s,
                quiet_until_s=now_s + settings.pull_report_s if pulled else 0.0,
                pulled=pulled,
            )
            LEASES.inc()
            self._ctx.feeds = len(self._held)
            runner.start(gap=not pulled)
            if pulled:
                HANDOVERS.labels("in").inc()
                asyncio.get_running_loop().call_later(settings.pull_report_s, self._reporter.changed, lease.caller)
        if orphans:
            self.known.difference_update(orphans)
            await self._fleet.release(orphans, self._heartbeat.id)

    async def _pull(self) -> None:
        """Take contested callers over, no more than we can connect soon: until then they are better off there.

        Those of a daemon that drains come first. Evening out between healthy ones can wait until nobody drains.
        """
        alive = {member.id: member for member in self._heartbeat.members}
        drains = any(member.draining for member in alive.values())
        now_s = self._now()
        room = self._ctx.connects.room(self._ctx.settings.handover_round_s)
        free: list[CallerKey] = []
        over: dict[CallerKey, str] = {}
        for caller, (holder, since_s) in self._contested.items():
            member = alive.get(holder)
            if member is None:
                free.append(caller)
            elif len(over) < room and (
                member.draining if drains else now_s - since_s >= self._ctx.settings.pull_settle_s
            ):
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
            leases = (await self._fleet.take(list(over), self._heartbeat.id, over=over)).values()
            theirs = [lease for lease in leases if lease.daemon != self._heartbeat.id]
            self._contested.update({lease.caller: (lease.daemon, now_s) for lease in theirs})
            await self._begin([lease for lease in leases if lease.daemon == self._heartbeat.id], pulled=True)

    async def _let_go(self) -> None:
        """Close the feeds whose new owners listen."""
        leaving = [caller for caller in self._leaving if caller in self._held]
        leases = await self._fleet.take(leaving, self._heartbeat.id, over={})
        gone: dict[CallerKey, str] = {}
        for caller, lease in leases.items():
            feed = self._held.get(caller)
            if feed is None:
                continue
            if lease.daemon == self._heartbeat.id:
                feed.epoch, feed.owned = lease.epoch, True
            else:
                feed.owned = False
                gone[caller] = lease.daemon
        for chunk in _chunks(list(gone)):
            reports = await asyncio.gather(*(self._ctx.activations.feed(caller) for caller in chunk))
            for caller, report in zip(chunk, reports, strict=True):
                if report is not None and report.daemon == self._heartbeat.id:
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
        feed = self._held.get(caller)
        if feed is None:
            return
        idle = FeedReport(state=State.IDLE.value, daemon=self._heartbeat.id, since_s=self._ctx.clock())
        await self._ctx.activations.report(caller, idle)
        # This notifies the daemons, since no feed is live as far as the store knows.
        await self._ctx.activations.activate(
            caller,
            address=feed.runner.address,
            api_url=self._ctx.http.api_url,
            token=None,
            token_expires_at_s=0.0,
        )

    def _look_at(self, feed: HeldFeed, lease: Lease) -> None:
        if lease.daemon != self._heartbeat.id:
            if feed.owned and lease.caller not in self._leaving:
                LEASES_LOST.inc()
            feed.owned = False
            self._leaving.add(lease.caller)
            return
        feed.owned = True
        if lease.epoch != feed.epoch:
            # It went through other hands, or the store was emptied: what was reported may be gone, and the ledger too.
            feed.epoch = lease.epoch
            self._reporter.changed(lease.caller)
            feed.runner.reconcile_within(self._ctx.soon_s())

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
        feed = self._held.pop(caller, None)
        if feed is not None:
            LEASES.dec()
            self._ctx.feeds = len(self._held)
            await feed.runner.close()

    async def _activations(self, callers: list[CallerKey]) -> Mapping[CallerKey, Activation]:
        """The activations there are. One that cannot be read is none, and no trouble of the other callers."""
        found: dict[CallerKey, Activation] = {}
        for chunk in _chunks(callers):
            got = await asyncio.gather(*map(self._ctx.activations.get, chunk), return_exceptions=True)
            for caller, activation in zip(chunk, got, strict=True):
                if isinstance(activation, LedgerUnavailable):
                    raise activation
                if isinstance(activation, Exception):
                    extra = {"action": "activation_unreadable", "caller": caller, **SELDOM}
                    log.warning("an activation cannot be read: %s", type(activation).__name__, extra=extra)
                elif isinstance(activation, Activation):
                    found[caller] = activation
        return found


def _chunks(callers: list[CallerKey]) -> list[list[CallerKey]]:
    return [callers[start : start + TOGETHER] for start in range(0, len(callers), TOGETHER)]
