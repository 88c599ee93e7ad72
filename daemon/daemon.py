"""A daemon: runs the feeds of the callers that are its own, as long as somebody asks for them."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from daemon.feed.context import FeedContext
from daemon.feed.diagnosis import Diagnosis, HostHealth
from daemon.feed.machine import State
from daemon.heartbeat import Heartbeat
from daemon.pacing import steady_per_s
from daemon.placement import Placement
from daemon.reports import HeldFeed, Reporter
from daemon.settings import DaemonSettings
from fmsg.http import HostHttp
from ledger.operators import Order, Orders
from ledger.port import LedgerError, LedgerUnavailable, Store
from ledger.values import CallerKey
from telemetry.logs import SELDOM
from telemetry.metrics import HOST_UP
from telemetry.outage import Outage

log = logging.getLogger(__name__)

REPLAN_REST = 20.0
"""The plan rests this many times as long as it took: planning never costs more than a twentieth of the time."""

REPLAN_S = 0.02
"""The least rest: callers that come together are planned together."""

IDLE_AT_ONCE = 500
"""Callers that may be idle looked at in one scan: while a feed is live, requests do not notify daemons, and only a look
at its activation tells. The rest comes with the next scan."""

RESTORED_AT_ONCE = 64
"""Ledgers looked at and written back at the same time after the store was away: ten thousand take some seconds."""

LEAVE_WITHIN_S = 5.0
"""How long a daemon that ends tries to say so in the store. Without it, others notice when its heartbeat expires."""

SETTLE_WITHIN_S = 120.0
"""For so long after its start a daemon may be called unsettled. A whole fleet of thousands that starts at once takes
longer to connect, and a rolling restart should not wait for that."""

FEW = 50
"""One of so many callers may be without a socket for long: one whose token expired gets none."""

CLOSE_WITHIN_S = 10.0
"""How long a daemon that ends waits for its sockets to close."""


class Daemon:
    """Holds one event socket per active caller, alone or as one of a fleet.

    The same class serves the fleet (Redis), the all-in-one and stdio (`ledger.store.MemoryStore`). ``http`` is open and
    belongs to the caller, as does ``store``; ``clock`` gives POSIX seconds; ``orders`` are the operator's.
    """

    def __init__(
        self,
        store: Store,
        http: HostHttp,
        *,
        name: str,
        settings: DaemonSettings = DaemonSettings(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(6),
        orders: Orders | None = None,
    ) -> None:
        self.id = f"{name}-{new_id()}"
        """Names this process to the fleet."""
        self.ready = asyncio.Event()
        """Set once the active callers are known and taken."""
        self._store = store
        self._orders = orders
        self._http = http
        self._settings = settings
        self._clock = clock
        self._rng = rng or random.Random()
        self._held: dict[CallerKey, HeldFeed] = {}
        self._heartbeat = Heartbeat(
            store.fleet, id_=self.id, name=name, settings=settings, clock=clock, now=time.monotonic
        )
        self._reporter = Reporter(store.activations, self._held, self._heartbeat, clock=clock, rng=self._rng)
        self._store_doubt = False
        self._host_outage = Outage("host", HOST_UP, clock=clock)
        self._host_health = HostHealth()
        self._replan = asyncio.Event()
        self._moving = asyncio.Event()
        self._scan_now = asyncio.Event()
        self._hinted: set[CallerKey] = set()
        self._draining = False
        self._scanned = False
        self._settled = False
        self._began_s = time.monotonic()
        self._ctx: FeedContext
        self._placement: Placement

    def feeds(self) -> Mapping[State, int]:
        """How many feeds are in which state."""
        return Counter(feed.runner.state for feed in self._held.values())

    def unsettled(self) -> str | None:
        """Why a daemon that was started a moment ago is not ready yet; None once its callers had sockets.

        A rolling restart waits for this before it stops the next daemon. It does not wait for callers that other
        daemons have sockets for: those move to where they belong later, one by one.
        """
        if not self._settled:
            if time.monotonic() - self._began_s < SETTLE_WITHIN_S:
                if not self.ready.is_set():
                    return "starting: the active callers are not known yet"
                waiting = self._placement.without_feed
                if waiting > len(self._held) // FEW:
                    return f"starting: {waiting} callers have no socket yet"
            self._settled = True
        return None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then hand the callers over and leave. Cancelled, it leaves at once."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            self._ctx = FeedContext(
                self._store,
                self._http,
                settings=self._settings,
                clock=self._clock,
                rng=self._rng,
                spawn=group.create_task,
                members=self._heartbeat.connecting,
                changed=self._reporter.changed,
                events_lost=self._events_lost,
                host_met=self._host_met,
            )
            self._placement = Placement(
                self._ctx, self._store.fleet, self._heartbeat, self._held, self._reporter, now=loop.time
            )
            listening = [
                self._store.activations.listen(self._wake, again=self._doubt_store),
                self._store.availability.listen(self._doubt_store),
            ]
            if self._orders is not None:
                listening.append(self._orders.listen(lambda order: self._obey(group, order)))
            loops = [
                group.create_task(self._every(self._settings.heartbeat_s, self._beat)),
                group.create_task(self._every(self._settings.look_s, self._look)),
                group.create_task(self._every(self._settings.scan_s, self._scan, sooner=self._scan_now)),
                group.create_task(self._plans()),
                group.create_task(self._moves()),
                group.create_task(self._reporter.run()),
                group.create_task(self._ctx.schedule.run()),
                group.create_task(self._ctx.connects.run()),
            ]
            try:
                await stop.wait()
                await self._drain()
            finally:
                for end in listening:
                    end()
                for task in loops:
                    task.cancel()
                await self._leave()

    def _events_lost(self) -> None:
        """What one listener of the host lost for one caller it lost for others."""
        if self._ctx.pace.alarm(asyncio.get_running_loop().time()):
            for feed in self._held.values():
                feed.runner.reconcile_within(self._ctx.soon_s())

    def _host_met(self, caller: CallerKey, diagnosis: Diagnosis | None) -> None:
        """A feed met an answer of the host (None) or trouble."""
        if diagnosis is not None and diagnosis.trouble == "store":
            return
        if diagnosis is not None and diagnosis.trouble == "host":
            now_s = asyncio.get_running_loop().time()
            lasted_s = self._host_health.failed(caller, now_s, feeds=len(self._held))
            if lasted_s is not None:
                self._host_outage.begin(diagnosis.reason, since_s=self._clock() - lasted_s)
            return
        self._host_health.answered()
        if self._host_outage.end():
            for feed in self._held.values():
                feed.runner.host_came_back(self._ctx.soon_s())

    def _wake(self, caller: CallerKey) -> None:
        """Somebody asked for a caller that has a new token or, as far as the store knows, no live feed."""
        feed = self._held.get(caller)
        if feed is not None:
            feed.asked_at_s = self._clock()
            feed.runner.poke()
            if feed.owned:
                # A store that was emptied forgot what we reported, and maybe the ledger with it.
                self._reporter.changed(caller)
                feed.runner.reconcile_within(self._ctx.soon_s())
        elif not self._draining:
            self._hinted.add(caller)
            self._placement.known.add(caller)
            self._replan.set()

    def _doubt_store(self) -> None:
        """The store was away, or lost what it held: `_scan` gives back what it lost as soon as it answers."""
        self._store_doubt = True
        self._scan_now.set()

    async def _give_back(self) -> None:
        """Write back what the store lost: first ledgers, before anything new is recorded, then reports."""
        for feed in self._held.values():
            feed.runner.store_came_back(self._ctx.soon_s())
        callers = list(self._held)
        for start in range(0, len(callers), RESTORED_AT_ONCE):
            chunk = callers[start : start + RESTORED_AT_ONCE]
            heads = await self._store.ledger.heads(chunk)
            copies = [
                self._held[caller].runner.copy
                for caller, head in zip(chunk, heads, strict=True)
                if caller in self._held and self._held[caller].runner.copy.lacking(head)
            ]
            results = await asyncio.gather(*(copy.restore() for copy in copies), return_exceptions=True)
            for result in results:
                if isinstance(result, LedgerUnavailable):
                    raise result
                if isinstance(result, BaseException):
                    # The trouble of one caller; its feed compares, and finds out.
                    log.warning(
                        "a ledger could not be restored: %s",
                        type(result).__name__,
                        extra={"action": "restore_failed", **SELDOM},
                    )
        self._reporter.repeat()

    def _obey(self, group: asyncio.TaskGroup, order: Order) -> None:
        """An operator's order; the daemon that runs the feed acts."""
        if order.caller in self._held and not self._draining:
            group.create_task(self._carry_out(order))  # belongs to the group

    async def _carry_out(self, order: Order) -> None:
        async def act() -> None:
            if order.what == "rest":
                await self._store.activations.retire(order.caller)
                self._placement.known.discard(order.caller)
            await self._placement.give_up([order.caller])
            self._replan.set()

        await self._try(act)

    async def _every(
        self, period_s: float, step: Callable[[], Awaitable[None]], *, sooner: asyncio.Event | None = None
    ) -> None:
        """Do a step about once per period, and when ``sooner`` is set, whatever becomes of it."""
        sooner = sooner or asyncio.Event()
        while True:
            sooner.clear()
            await self._try(step)
            with suppress(TimeoutError):
                async with asyncio.timeout(period_s * self._rng.uniform(0.9, 1.1)):
                    await sooner.wait()

    async def _try(self, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except LedgerError as error:
            self._store_doubt = True
            log.debug("a step waits for the store: %s", error, extra={"action": "daemon_step_put_off"})
            return False
        except Exception:
            # A daemon that ends because of one fault leaves thousands of callers without a socket.
            log.exception("a step of the daemon failed", extra={"action": "daemon_step_failed", **SELDOM})
            return False
        return True

    async def _beat(self) -> None:
        doubt = self._heartbeat.silent()
        host = self._host_outage
        if await self._heartbeat.beat(
            load=len(self._held), draining=self._draining, host_lost_at_s=host.lost_at_s, host_error=host.reason
        ):
            self._fleet_changed()
        if doubt:
            await self._placement.audit()
            self._heartbeat.trust()
            self._moving.set()
        self._after_look()

    async def _look(self) -> None:
        if await self._heartbeat.look():
            self._fleet_changed()
        self._after_look()

    def _after_look(self) -> None:
        if self._heartbeat.forgotten:
            self._heartbeat.forgotten = False
            self._store_doubt = True
        if self._store_doubt:
            self._scan_now.set()

    def _fleet_changed(self) -> None:
        present = self._heartbeat.present(self._heartbeat.members)
        log.info("the fleet changed", extra={"action": "fleet_changed", "members": len(present), **SELDOM})
        self._replan.set()

    async def _scan(self) -> None:
        self._hinted.clear()
        active = set(await self._store.activations.active())
        # Each part of the store has answered just now, also where one node of a cluster failed over in silence.
        doubted, self._store_doubt = self._store_doubt, False
        if doubted:
            await self._give_back()
        self._placement.known = known = active | self._hinted
        self._scanned = True
        now_s = self._clock()
        over: list[CallerKey] = []
        for caller, feed in self._held.items():
            if caller in known:
                feed.missing_since_s = None
            elif feed.missing_since_s is None:
                feed.missing_since_s = now_s
                feed.runner.reconcile_within(self._ctx.soon_s())
                self._reporter.changed(caller)
            elif now_s - feed.missing_since_s >= self._settings.missing_grace_s:
                over.append(caller)
        if over:
            await self._placement.give_up(over)
            for caller in over:
                # What was reported of it meanwhile must not outlive the feed.
                await self._store.activations.retire(caller, unless_asked_since_s=0.0)
        if not self._heartbeat.silent():
            await (self._placement.audit() if doubted else self._placement.audit_some())
        await self._rest_idle(now_s)
        self._replan.set()
        self._moving.set()

    async def _rest_idle(self, now_s: float) -> None:
        """End the feeds nobody asked for in a long time."""
        longest_s = self._settings.idle_after_s
        perhaps = [
            (caller, feed)
            for caller, feed in self._held.items()
            if now_s - feed.asked_at_s >= longest_s and feed.owned and feed.missing_since_s is None
        ]
        for caller, feed in perhaps[:IDLE_AT_ONCE]:
            activation = await self._store.activations.get(caller)
            if activation is None:
                continue
            feed.asked_at_s = activation.asked_at_s
            if now_s - activation.asked_at_s < longest_s:
                continue
            if await self._store.activations.retire(caller, unless_asked_since_s=activation.asked_at_s):
                log.info("a caller rests", extra={"action": "feed_rests", "caller": caller})
                self._placement.known.discard(caller)
                await self._placement.give_up([caller])

    async def _plans(self) -> None:
        while True:
            await self._replan.wait()
            self._replan.clear()
            if not self._heartbeat.members:
                await self._try(self._beat)
            planned = await self._try(lambda: self._placement.plan(draining=self._draining))
            if planned and self._scanned:
                self.ready.set()
            self._moving.set()
            await asyncio.sleep(max(REPLAN_S, REPLAN_REST * self._placement.planning_s))

    async def _moves(self) -> None:
        while True:
            await self._moving.wait()
            if not self._placement.moving:
                self._moving.clear()
                continue
            await self._try(self._placement.move)
            await asyncio.sleep(self._settings.handover_round_s)

    async def _drain(self) -> None:
        """Let others take our callers over, for as long as there are others and time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._settings.drain_s
        self._draining = True
        takes_s = round(len(self._held) / steady_per_s(self._settings.connects_per_s), 1)
        log.info("draining", extra={"action": "drain", "feeds": len(self._held), "takes_s": takes_s})
        if not await self._try(self._beat):
            return
        self._replan.set()
        await self._try(self._give_up_unasked)
        while self._held and self._heartbeat.present(self._heartbeat.members) and loop.time() < deadline_s:
            await self._try(lambda: self._placement.give_up(self._placement.without_socket()))
            await asyncio.sleep(self._settings.handover_round_s)
        self._tell_of_the_left()

    def _tell_of_the_left(self) -> None:
        """Say how many sockets close before others are open: nothing is lost, but it shows."""
        left = len(self._held) - len(self._placement.without_socket())
        if left and self._heartbeat.present(self._heartbeat.members):
            takes_s = left / steady_per_s(self._settings.connects_per_s)
            log.warning(
                "the time to drain is over before others took all callers: %d are polled for until they have, in about "
                "%.0f s. Give FMSG_DAEMON_DRAIN_SECONDS, and the service manager's stop timeout, that much more",
                left,
                takes_s,
                extra={"action": "drain_cut", "left": left, "takes_s": round(takes_s, 1)},
            )

    async def _give_up_unasked(self) -> None:
        """Leave the callers whose activation is gone, with a store that was emptied: no other daemon knows of them."""
        active = frozenset(await self._store.activations.active())
        await self._placement.give_up([caller for caller in self._held if caller not in active])

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._try(lambda: self._placement.give_up(list(self._held)))
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._try(lambda: self._store.fleet.leave(self.id))
        except TimeoutError:
            log.warning("could not leave in time", extra={"action": "leave_timeout"})
