"""Carries out what `daemon.feed.machine` decides for one caller: the socket, the comparisons, the timers.

A feed at rest costs one task that reads its socket and one entry in the schedule; whatever else it does it does in
tasks that end by themselves. All of them belong to the daemon's task group.
"""

from __future__ import annotations

import asyncio
import logging

from daemon.feed.comparer import Comparer
from daemon.feed.context import FeedContext
from daemon.feed.copy import LedgerCopy
from daemon.feed.diagnosis import ASK_MAX_S, STEADY_S, Diagnosis
from daemon.feed.machine import WITH_SOCKET, Signal, State, after
from daemon.feed.recorder import Recorder, read_push
from daemon.feed.socket import FeedSocket
from daemon.feed.tokens import ActivationTokens
from daemon.pacing import NEVER
from fmsg.backoff import backoff_s
from fmsg.errors import CredentialMissing
from fmsg.events import Event
from fmsg.webapi import WebApi
from ledger.catch_up import CaughtUp
from ledger.port import FeedReport, LedgerError
from ledger.values import CallerKey, Source
from telemetry.logs import SELDOM
from telemetry.metrics import FEEDS, RECONNECT_DELAY

log = logging.getLogger(__name__)


STORE_RETRY_S = 10.0
"""A feed whose part of the store is away tries again at least this often: its socket is open, and a try costs little.
The daemon itself notices only when all of the store was away."""


class FeedRunner:
    """The feed of one caller. Everything happens on the event loop; no method but `close` takes time."""

    __slots__ = (
        "_again",
        "_asked_until_s",
        "_asks",
        "_check_at_s",
        "_comparer",
        "_ctx",
        "_failures",
        "_list_at_s",
        "_live_since_s",
        "_looking",
        "_pages",
        "_poll_at_s",
        "_quiet_rounds",
        "_recorder",
        "_retry_at_s",
        "_socket",
        "_tokens",
        "address",
        "caller",
        "copy",
        "due_at_s",
        "error",
        "needs_credential",
        "since_s",
        "state",
    )

    def __init__(self, ctx: FeedContext, caller: CallerKey, address: str) -> None:
        self.caller = caller
        self.address = address
        self.state = State.IDLE
        self.since_s = ctx.clock()
        self.error: str | None = None
        self.needs_credential = False
        self.due_at_s = NEVER
        self.copy = LedgerCopy(ctx.ledger, caller)
        """The end of the ledger, to be written back where the store loses it."""
        self._ctx = ctx
        self._tokens = ActivationTokens(ctx.activations, caller, address, clock=ctx.clock)
        api = WebApi(ctx.http, self._tokens)
        self._socket = FeedSocket(ctx, caller, api, self)
        self._recorder = Recorder(ctx, caller, api, self.copy, self)
        self._comparer = Comparer(ctx, caller, address, api, self.copy, self)
        self._failures = 0
        self._retry_at_s = self._list_at_s = self._check_at_s = self._poll_at_s = self._live_since_s = NEVER
        self._asked_until_s = 0.0
        self._asks = 0
        self._quiet_rounds = 0
        self._pages = 1
        self._again = False
        self._looking: asyncio.Task[None] | None = None

    def report(self, daemon: str) -> FeedReport:
        """What there is to say of the feed now."""
        return FeedReport(
            state=self.state.value,
            daemon=daemon,
            since_s=self.since_s,
            error=self.error,
            needs_credential=self.needs_credential,
        )

    def start(self, *, gap: bool) -> None:
        """Begin. ``gap``: nobody listened until now, so the list is compared further down, and connecting is urgent."""
        self._pages = self._ctx.settings.reconnect_pages if gap else 1
        self._move(Signal.WAKE)
        self._connect(urgent=gap)

    def connect(self) -> bool:
        """Open the socket if the feed still waits for that; called at the feed's turn."""
        if self.state is not State.CONNECTING:
            return False
        self._socket.open()
        return True

    def poke(self) -> None:
        """A request came and may have left a new token."""
        if (self.needs_credential or self.state is State.STOPPED) and self._looking is None:
            self._looking = self._ctx.spawn(self._look_for_token())

    def reconcile_within(self, delay_s: float) -> None:
        """Compare the list with the ledger in so many seconds, if not sooner anyway."""
        if self.state is State.LIVE and not self.needs_credential:
            self._list_at_s = min(self._list_at_s, self._now() + delay_s)
            self._arm()

    def store_came_back(self, within_s: float) -> None:
        """The store was away, for all feeds: compare, or try again, in so many seconds."""
        if self.state is State.LIVE:
            self._comparer.cancel()
            self.reconcile_within(within_s)
        elif self.state is State.STALLED:
            self._retry_within(within_s)

    def host_came_back(self, within_s: float) -> None:
        """The host was away, for all feeds: try again in so many seconds instead of when the delay is over."""
        if self.state in {State.BACKING_OFF, State.STALLED}:
            self._retry_within(within_s)
        elif self._failures:
            self.reconcile_within(within_s)

    async def close(self) -> None:
        """Give up the socket and end everything under way."""
        self._ctx.connects.drop(self)
        if self.state is not State.IDLE:
            self._move(Signal.REST)
        self._ctx.schedule.at(self, NEVER)
        ending = [self._socket.cancel(), self._comparer.cancel(), self._looking]
        if self._looking is not None:
            self._looking.cancel()
        await self._recorder.close()
        tasks = [task for task in ending if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def due(self, now_s: float) -> None:
        """Do what the schedule has for this feed."""
        if now_s >= self._retry_at_s:
            self._retry_at_s = NEVER
            self._retry()
        if now_s >= self._list_at_s:
            self._list_at_s = NEVER
            if self.state is State.LIVE:
                # What a deaf listener lost may lie deeper than the first page: a draft sent late keeps its old id.
                deep = self._ctx.pace.alarmed(now_s)
                self._comparer.start("reconcile", pages=self._ctx.settings.reconnect_pages if deep else 1)
            elif self.state is State.BACKING_OFF:
                self._comparer.start("poll")
        if now_s >= self._check_at_s:
            self._check_at_s = NEVER
            if self._comparer.count_losses():
                self._check_at_s = now_s + self._ctx.settings.lost_grace_s
            if not self.needs_credential:
                self._recorder.find_roots()
        self._arm()

    def opened(self) -> None:
        self._set_needs_credential(False)
        self._move(Signal.OPENED)
        self._backfill()

    def take(self, event: Event) -> None:
        self._comparer.losses.pushed(event.message.id)
        pushed = read_push(event, self.address)
        if pushed is None:
            return
        if self._quiet_rounds:
            self._quiet_rounds = 0
            self.reconcile_within(self._interval_s())
        self._recorder.keep(pushed)
        if self.state is State.LIVE:
            self._recorder.write()

    def closed(self, reason: str) -> None:
        self._comparer.cancel()
        self._comparer.losses.clear()
        if self._now() - self._live_since_s >= STEADY_S:
            self._failures = 0
        self._live_since_s = NEVER
        self._pages = self._ctx.settings.reconnect_pages
        self._move(Signal.CLOSED, error=reason or "the socket closed")
        self._back_off()

    def connect_failed(self, diagnosis: Diagnosis) -> None:
        if diagnosis.remedy == "stop":
            self._stop(diagnosis)
        elif diagnosis.remedy == "credential":
            self._tokens.refuse()
            self._move(Signal.UNAUTHORIZED, error=diagnosis.reason)
            self._set_needs_credential(True)
            self._ask_later()
        else:
            self._move(Signal.FAILED, error=diagnosis.reason)
            self._back_off(diagnosis)

    def check_within(self, delay_s: float) -> None:
        self._check_at_s = min(self._check_at_s, self._now() + delay_s)
        self._arm()

    def fell_behind(self) -> None:
        if self.state is State.BACKFILLING:
            self._again = True
        elif self.state in WITH_SOCKET and self._move(Signal.BEHIND) is State.BACKFILLING:
            self._backfill()

    def write_failed(self, diagnosis: Diagnosis) -> None:
        if self.state in {State.LIVE, State.BACKFILLING}:
            self._stall(Signal.FAILED, diagnosis)

    def compared(self, result: CaughtUp, source: Source) -> None:
        self._set_needs_credential(False)
        self._recorder.add_rootless(result.rootless)
        self._recorder.find_roots()
        if self.state is State.BACKFILLING:
            if self._again:
                self._backfill()
                return
            self._pages = 1
            self._live_since_s = self._now()
            self._poll_at_s = NEVER
            self._move(Signal.CAUGHT_UP)
            self._recorder.write()
            self._list_at_s = self._now() + min(self._ctx.settings.reconcile_reconnected_s, self._interval_s())
        elif self.state is State.LIVE:
            if self.error is not None:
                self.error = None
                self._ctx.changed(self.caller)
            if self._comparer.reconciled(result, waiting=self._recorder):
                self.check_within(self._ctx.settings.lost_grace_s)
            if result.began:
                # The store was emptied, and with it what it knew of this feed.
                self._ctx.changed(self.caller)
            if self._now() - self._live_since_s >= STEADY_S:
                self._failures = 0
            self._quiet_rounds = 0 if result.new else self._quiet_rounds + 1
            self._list_at_s = self._now() + self._interval_s()
        elif self.state is State.BACKING_OFF:
            self._recorder.write()
            self._poll_later()
        self._arm()

    def far_behind(self) -> None:
        # A reader that trusts a live feed would miss what is still to be found.
        if self.state is State.LIVE:
            self._move(Signal.BEHIND)

    def compare_failed(self, diagnosis: Diagnosis, source: Source) -> None:
        if diagnosis.remedy == "stop":
            self._stop(diagnosis)
        elif diagnosis.remedy == "credential":
            self._tokens.refuse()
            self._set_needs_credential(True)
            if self.state is State.BACKFILLING:
                self._stall(Signal.UNAUTHORIZED, diagnosis)
            else:
                self._move(Signal.UNAUTHORIZED, error=diagnosis.reason)
                self._list_at_s = NEVER
            self._ask_later()
        elif self.state is State.BACKFILLING or (self.state is State.LIVE and diagnosis.trouble == "store"):
            self._stall(Signal.FAILED, diagnosis)
        elif self.state is State.BACKING_OFF:
            self._poll_later(diagnosis)
        else:
            self._list_at_s = self._now() + self._delay_s(diagnosis)
            self._arm()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _arm(self) -> None:
        if self.state is not State.IDLE:
            self._ctx.schedule.at(self, min(self._retry_at_s, self._list_at_s, self._check_at_s))

    def _move(self, signal: Signal, *, error: str | None = None) -> State:
        before = self.state
        self.state = after(before, signal)
        if error is not None:
            self.error = error
        elif self.state is State.LIVE:
            self.error = None
        if self.state is before:
            return before
        self.since_s = self._ctx.clock()
        for state, change in ((before, -1), (self.state, 1)):
            if state is not State.IDLE:  # those that rest are not counted
                FEEDS.labels(state.value).inc(change)
        self._ctx.changed(self.caller)
        return self.state

    def _set_needs_credential(self, needed: bool) -> None:
        if not needed:
            self._asks = 0
        if needed is not self.needs_credential:
            self.needs_credential = needed
            self._ctx.changed(self.caller)

    def _interval_s(self) -> float:
        return self._ctx.pace.interval_s(self._now(), quiet_rounds=self._quiet_rounds, feeds=self._ctx.feeds)

    def _delay_s(self, diagnosis: Diagnosis | None = None) -> float:
        settings = self._ctx.settings
        self._failures += 1
        delay_s = backoff_s(self._failures, self._ctx.rng, base_s=settings.backoff_base_s, cap_s=settings.backoff_cap_s)
        if diagnosis is None:
            return delay_s
        self._asked_until_s = self._now() + diagnosis.retry_after_s
        if diagnosis.trouble == "store":
            delay_s = min(delay_s, STORE_RETRY_S)
        return max(delay_s, diagnosis.retry_after_s)

    def _retry(self) -> None:
        if self.state is State.BACKING_OFF:
            self._move(Signal.DUE)
            self._connect()
        elif self.state is State.STALLED and not self.needs_credential:
            self._move(Signal.DUE)
            self._backfill()
        else:
            self.poke()

    def _retry_within(self, delay_s: float) -> None:
        self._failures = 0
        self._retry_at_s = min(self._retry_at_s, max(self._asked_until_s, self._now() + delay_s))
        self._arm()

    def _backfill(self) -> None:
        self._again = False
        self._comparer.start("backfill", pages=self._pages, fresh=True)

    def _stall(self, signal: Signal, diagnosis: Diagnosis) -> None:
        self._comparer.cancel()
        self._list_at_s = NEVER
        self._move(signal, error=diagnosis.reason)
        self._retry_at_s = self._now() + self._delay_s(diagnosis)
        self._arm()

    def _stop(self, diagnosis: Diagnosis) -> None:
        """The host refuses the caller: no socket and no comparisons, until another token comes."""
        log.warning(
            "a feed stopped: %s", diagnosis.reason, extra={"action": "feed_stopped", "caller": self.caller, **SELDOM}
        )
        self._move(Signal.REFUSED, error=diagnosis.reason)
        self._tokens.refuse()
        self._comparer.cancel()
        self._socket.cancel()
        self._list_at_s = self._check_at_s = NEVER
        self._ask_later()

    def _ask_later(self) -> None:
        self._asks += 1
        ask_s = self._ctx.settings.ask_s
        delay_s = backoff_s(self._asks, self._ctx.rng, base_s=ask_s, cap_s=ASK_MAX_S, least=0.5)
        self._retry_at_s = self._now() + delay_s
        self._arm()

    async def _look_for_token(self) -> None:
        try:
            await self._tokens.token()
        except (CredentialMissing, LedgerError):
            self._looking = None
            self._ask_later()
            return
        self._looking = None
        if self.state is State.STOPPED and self._ctx.clock() - self.since_s < self._ctx.settings.stopped_s:
            self._ask_later()
            return
        self._set_needs_credential(False)
        if self.state in {State.ASKING, State.STOPPED}:
            self._retry_at_s = NEVER
            self._move(Signal.CREDENTIAL)
            self._connect()
        elif self.state is State.STALLED:
            self._retry_at_s = NEVER
            self._move(Signal.CREDENTIAL)
            self._backfill()
        elif self.state is State.LIVE:
            self._comparer.start("reconcile")
        self._recorder.find_roots()
        self._arm()

    def _back_off(self, diagnosis: Diagnosis | None = None) -> None:
        delay_s = self._delay_s(diagnosis)
        RECONNECT_DELAY.observe(delay_s)
        self._retry_at_s = self._now() + delay_s
        if self._poll_at_s == NEVER:
            self._poll_later(diagnosis)
        else:
            # Attempts to connect in between do not put the poll off.
            self._list_at_s = self._poll_at_s
            self._arm()

    def _poll_later(self, diagnosis: Diagnosis | None = None) -> None:
        delay_s = self._ctx.settings.poll_s * self._ctx.rng.uniform(0.5, 1.0)
        self._poll_at_s = self._now() + max(delay_s, diagnosis.retry_after_s if diagnosis is not None else 0.0)
        self._list_at_s = self._poll_at_s
        self._arm()

    def _connect(self, *, urgent: bool = True) -> None:
        self._comparer.cancel()
        self._list_at_s = NEVER
        self._arm()
        self._ctx.connects.ask(self, urgent=urgent)
