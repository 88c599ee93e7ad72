"""A daemon: runs the feeds of the callers that are its own, as long as somebody asks for them."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from daemon.feed.context import FeedContext
from daemon.feed.machine import State
from daemon.heartbeat import Heart
from daemon.holding import Holding
from daemon.pace import steady_per_s
from daemon.placement import Placing
from daemon.reports import Reporter
from daemon.settings import DaemonSettings
from fmsg.http import HostHttp
from ledger.operators import Order, Orders
from ledger.port import LedgerError, Store
from ledger.values import CallerKey

log = logging.getLogger(__name__)

REPLAN_REST = 20.0
"""The plan rests this many times as long as it took: planning never costs more than a twentieth of the time."""

REPLAN_S = 0.02
"""The least rest: callers that come together are planned together."""

IDLE_AT_ONCE = 500
"""Callers that may be idle looked at in one scan: while a feed is live, requests do not ring, and only a look at its
activation tells. The rest comes with the next scan."""

LEAVE_WITHIN_S = 5.0
"""How long a daemon that ends tries to say so in the store. Without it, others notice when its heartbeat expires."""

SETTLE_WITHIN_S = 120.0
"""For so long after its start a daemon may be called unsettled. A whole fleet of thousands that starts at once takes
longer to connect, and nobody should wait for that to go on."""

FEW = 50
"""One of so many callers may be on its way for long: one whose token expired stays where its socket is open."""

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
        self._holdings: dict[CallerKey, Holding] = {}
        self._heart = Heart(store.fleet, id_=self.id, name=name, settings=settings, clock=clock, now=time.monotonic)
        self._reporter = Reporter(store.activations, self._holdings, self._heart, clock=clock, rng=self._rng)
        self._replan = asyncio.Event()
        self._moving = asyncio.Event()
        self._hinted: set[CallerKey] = set()
        self._draining = False
        self._store_failed = self._store_was_away = False
        self._scanned = False
        self._settled = False
        self._began_s = time.monotonic()
        self._ctx: FeedContext
        self._placing: Placing

    def feeds(self) -> Mapping[State, int]:
        """How many feeds are in which state."""
        return Counter(holding.runner.state for holding in self._holdings.values())

    def unsettled(self) -> str | None:
        """Why a daemon that was started a moment ago has not got its callers yet; None once it had them.

        Whoever restarts one daemon after the other waits for this: the callers of two that move at a time want more new
        sockets than the host is asked for in the time that a daemon takes to stop.
        """
        if not self._settled:
            if time.monotonic() - self._began_s < SETTLE_WITHIN_S:
                if not self.ready.is_set():
                    return "starting: the active callers are not known yet"
                waiting = self._placing.on_their_way
                if waiting > len(self._holdings) // FEW:
                    return f"starting: {waiting} callers are on their way to this daemon"
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
                watcher=self,
            )
            self._placing = Placing(
                self._ctx, self._store.fleet, self._heart, self._holdings, self._reporter, now=loop.time
            )
            deaf = [self._store.activations.listen(self._wake, again=self._store_came_back)]
            if self._orders is not None:
                deaf.append(self._orders.listen(lambda order: self._obey(group, order)))
            loops = [
                group.create_task(self._every(self._settings.heartbeat_s, self._beat, "heartbeat")),
                group.create_task(self._every(self._settings.look_s, self._look, "look")),
                group.create_task(self._every(self._settings.scan_s, self._scan, "scan")),
                group.create_task(self._plans()),
                group.create_task(self._moves()),
                group.create_task(self._reporter.run()),
                group.create_task(self._ctx.schedule.run()),
            ]
            try:
                await stop.wait()
                await self._drain()
            finally:
                for end in deaf:
                    end()
                for task in loops:
                    task.cancel()
                await self._leave()

    def changed(self, caller: CallerKey, state: State) -> None:
        """See `daemon.feed.context.Watcher`."""
        self._reporter.changed(caller)

    def lost(self) -> None:
        """See `daemon.feed.context.Watcher`. What one listener of the host lost for one it lost for others."""
        if self._ctx.pace.alarm(asyncio.get_running_loop().time()):
            for holding in self._holdings.values():
                holding.runner.reconcile_within(self._ctx.pace.soon_s(feeds=self._ctx.feeds))

    def _wake(self, caller: CallerKey) -> None:
        """Somebody asked for a caller that has a new token or, as far as the store knows, no live feed."""
        holding = self._holdings.get(caller)
        if holding is not None:
            holding.asked_at_s = self._clock()
            holding.runner.poke()
            if holding.owned:
                # A store that was emptied forgot what we reported, and maybe the ledger with it.
                self._reporter.changed(caller)
                holding.runner.reconcile_within(self._ctx.pace.soon_s(feeds=self._ctx.feeds))
        elif not self._draining:
            self._hinted.add(caller)
            self._placing.known.add(caller)
            self._replan.set()

    def _store_came_back(self) -> None:
        """The store was away. A replica that was promoted lacks what came last: reports, and maybe messages."""
        self._store_failed = False
        self._store_was_away = True
        self._reporter.repeat()
        for holding in self._holdings.values():
            holding.runner.store_came_back(self._ctx.pace.soon_s(feeds=self._ctx.feeds))

    def _obey(self, group: asyncio.TaskGroup, order: Order) -> None:
        """An operator's order; the daemon that runs the feed acts."""
        if order.caller in self._holdings and not self._draining:
            group.create_task(self._carry_out(order))  # belongs to the group

    async def _carry_out(self, order: Order) -> None:
        async def act() -> None:
            if order.what == "rest":
                await self._store.activations.retire(order.caller)
                self._placing.known.discard(order.caller)
            await self._placing.give_up([order.caller])
            self._replan.set()

        await self._try(act, "order")

    async def _every(self, period_s: float, step: Callable[[], Awaitable[None]], action: str) -> None:
        """Do a step now and then about once per period, whatever becomes of it."""
        while True:
            await self._try(step, action)
            await asyncio.sleep(period_s * self._rng.uniform(0.9, 1.1))

    async def _try(self, step: Callable[[], Awaitable[None]], action: str) -> bool:
        try:
            await step()
        except LedgerError as error:
            self._store_failed = True
            log.warning("the store failed: %s", error or type(error).__name__, extra={"action": f"{action}_put_off"})
            return False
        except Exception:
            # A daemon that ends because of one fault leaves thousands of callers without a socket.
            log.exception("a step of the daemon failed", extra={"action": f"{action}_failed"})
            return False
        return True

    async def _beat(self) -> None:
        doubt = self._heart.silent()
        if await self._heart.beat(load=len(self._holdings), draining=self._draining):
            self._fleet_changed()
        if doubt:
            await self._placing.audit()
            self._heart.trust()
            self._moving.set()

    async def _look(self) -> None:
        if len(self._heart.members) > 1 and await self._heart.look():
            self._fleet_changed()

    def _fleet_changed(self) -> None:
        present = self._heart.present(self._heart.members)
        log.info("the fleet changed", extra={"action": "fleet_changed", "members": len(present)})
        self._ctx.connect_rate.set_rate(self._settings.connects_per_s / max(1, len(present)))
        self._replan.set()

    async def _scan(self) -> None:
        self._hinted.clear()
        active = set(await self._store.activations.active())
        if self._store_failed:
            # Each part of it has answered just now. One node of a cluster fails over without the doorbell's noticing.
            self._store_came_back()
        was_away, self._store_was_away = self._store_was_away, False
        self._placing.known = known = active | self._hinted
        self._scanned = True
        now_s = self._clock()
        over: list[CallerKey] = []
        for caller, holding in self._holdings.items():
            if caller in known:
                holding.missing_since_s = None
            elif holding.missing_since_s is None:
                holding.missing_since_s = now_s
                holding.runner.reconcile_within(self._ctx.pace.soon_s(feeds=self._ctx.feeds))
                self._reporter.changed(caller)
            elif now_s - holding.missing_since_s >= self._settings.missing_grace_s:
                over.append(caller)
        if over:
            await self._placing.give_up(over)
            for caller in over:
                # What was reported of it meanwhile must not outlive the feed.
                await self._store.activations.retire(caller, unless_asked_since_s=0.0)
        if not self._heart.silent():
            await (self._placing.audit() if was_away else self._placing.audit_some())
        await self._rest_idle(now_s)
        self._replan.set()
        self._moving.set()

    async def _rest_idle(self, now_s: float) -> None:
        """End the feeds nobody asked for in a long time."""
        longest_s = self._settings.idle_after_s
        perhaps = [
            (caller, holding)
            for caller, holding in self._holdings.items()
            if now_s - holding.asked_at_s >= longest_s and holding.owned and holding.missing_since_s is None
        ]
        for caller, holding in perhaps[:IDLE_AT_ONCE]:
            activation = await self._store.activations.get(caller)
            if activation is None:
                continue
            holding.asked_at_s = activation.asked_at_s
            if now_s - activation.asked_at_s < longest_s:
                continue
            if await self._store.activations.retire(caller, unless_asked_since_s=activation.asked_at_s):
                log.info("a caller rests", extra={"action": "feed_rests", "caller": caller})
                self._placing.known.discard(caller)
                await self._placing.give_up([caller])

    async def _plans(self) -> None:
        while True:
            await self._replan.wait()
            self._replan.clear()
            if not self._heart.members:
                await self._try(self._beat, "heartbeat")
            planned = await self._try(lambda: self._placing.plan(draining=self._draining), "plan")
            if planned and self._scanned:
                self.ready.set()
            self._moving.set()
            await asyncio.sleep(max(REPLAN_S, REPLAN_REST * self._placing.planning_s))

    async def _moves(self) -> None:
        while True:
            await self._moving.wait()
            if not self._placing.moving:
                self._moving.clear()
                continue
            await self._try(self._placing.move, "hand_over")
            await asyncio.sleep(self._settings.handover_round_s)

    async def _drain(self) -> None:
        """Let others take our callers over, for as long as there are others and time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._settings.drain_s
        self._draining = True
        takes_s = round(len(self._holdings) / steady_per_s(self._settings.connects_per_s), 1)
        log.info("draining", extra={"action": "drain", "feeds": len(self._holdings), "takes_s": takes_s})
        if not await self._try(self._beat, "drain"):
            return
        self._replan.set()
        await self._try(self._give_up_unasked, "drain")
        while self._holdings and self._heart.present(self._heart.members) and loop.time() < deadline_s:
            await self._try(lambda: self._placing.give_up(self._placing.without_socket()), "drain")
            await asyncio.sleep(self._settings.handover_round_s)
        self._tell_of_the_left()

    def _tell_of_the_left(self) -> None:
        """Say how many sockets close before others are open: nothing is lost, but it shows."""
        left = len(self._holdings) - len(self._placing.without_socket())
        if left and self._heart.present(self._heart.members):
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
        await self._placing.give_up([caller for caller in self._holdings if caller not in active])

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._try(lambda: self._placing.give_up(list(self._holdings)), "leave")
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._try(lambda: self._store.fleet.leave(self.id), "leave")
        except TimeoutError:
            log.warning("could not leave in time", extra={"action": "leave_timeout"})
