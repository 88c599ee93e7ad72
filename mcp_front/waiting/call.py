"""One held call of ``wait_for_message``: reading, deciding and sleeping in turn, until there is an answer.

Nothing is decided here: `decide` says what to return, `positions` where to go on, the call's `policy` keeps the
position. Trouble is waited out: a host that is down, a ledger that began anew, and a store that is away. Without the
store nothing is read and nothing is returned, since only what the store has recorded has a position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec

from fmsg.errors import FmsgError, HostUnreachable
from ledger.deadlines import GaveUp, answered_by
from ledger.port import LedgerUnavailable, NoLedger, StaleEpoch
from ledger.values import CallerKey, Head
from mcp_front.caller import Caller
from mcp_front.gather import gather_with
from mcp_front.waiting.backlog import Moved
from mcp_front.waiting.caller_state import RESTORE_LOOK_S, Participant, Shared, StepContext
from mcp_front.waiting.cursor import Cursor, Decided
from mcp_front.waiting.decide import Return, WaitUntil
from mcp_front.waiting.policy import Policy, pending_after
from mcp_front.waiting.positions import OlderUnread, Start
from mcp_front.waiting.request import (
    TRANSIENT,
    Fit,
    SubscriptionAway,
    Transport,
    WaitOutcome,
    WaitRequest,
    retry_after_s,
)
from mcp_front.waiting.results import answer, answer_again, answer_nothing, notes_on
from mcp_front.waiting.subscriptions import SubscriptionDelivery
from mcp_front.waiting.sweep import Sweep
from telemetry.metrics import GAPS, POLL_FALLBACKS, WAKE_LATENCY

SHORTEST_S = 10.0
"""A call may take so long whatever its time limit: one with a short limit must get something, too."""
GRACE_S = 1.0
"""The last look, and a store that hangs, may make a call so much longer than its limit. The agent's own timer may be
hardly longer."""
END_S = 1.5
"""So long after its limit a call ends at the latest, whatever the host does."""
COALESCE_S = 0.05
"""While a settle window is open, notifications are answered so much later: only a full batch ends a window early, and a
burst brings one per message."""
TIMER_S = 0.001
"""Timers ring so much later: uvloop rounds to milliseconds, and one too soon costs steps until the moment comes."""
STEADY_S = 0.5
"""Pause between stretches of the backlog where nothing qualifies."""
STORE_PAUSE_S = 1.0
"""After a store command failed, while the store answers others: half of it to one and a half."""
BEGIN_WITHIN_S = 5.0
"""So soon after its beginning a call may still take the newest message for its position."""
HOST_PAGE = 100
"""The longest page a host gives: drafts are listed too, and are no position."""
MOVES_AT_ONCE = 4
"""How often in a row a position is found anew before the wait takes a breath, of a second."""

_Answer = TypeVar("_Answer")


class Alarm:
    """Wakes one wait: at a time, or when something may have changed."""

    def __init__(self) -> None:
        self.rung = False
        """Whether something may have changed since this was last reset."""
        self._sleeper: asyncio.Future[None] | None = None
        self._deaf = False

    def ring(self, *, urgent: bool = False) -> None:
        """Something may have changed; never blocks. ``urgent``: wakes a wait that is deaf to all else, too."""
        self.rung = True
        if self._sleeper is not None and (urgent or not self._deaf):
            _end(self._sleeper)

    async def sleep(self, until: float, *, deaf: bool) -> None:
        """Until a time of the event loop's, or the next ring; ``deaf``: the next urgent one."""
        loop = asyncio.get_running_loop()
        sleeper = self._sleeper = loop.create_future()
        self._deaf = deaf
        timer = loop.call_at(until + TIMER_S, _end, sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleeper = None


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class Timing:
    """When one call is over and what is due before, in the event loop's time."""

    def __init__(self, timeout_s: float, *, progress_s: float) -> None:
        self.began = self.read_at = self.reread_at = asyncio.get_running_loop().time()
        self.deadline = self.began + max(timeout_s, 0.0)
        self.end = max(self.deadline + END_S, self.began + SHORTEST_S)
        """Here the call ends, whatever host and store do."""
        self.progress_at = self.began + progress_s
        self.resume_at: float | None = None
        self.window_ends_at: float | None = None
        self.look_again_at: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Since the call began."""
        return asyncio.get_running_loop().time() - self.began

    def due(self, *more: float | None) -> float:
        """The first of what is due."""
        times = (self.deadline, self.resume_at, self.window_ends_at, self.look_again_at, *more)
        return min(at for at in times if at is not None)

    def store_deadline(self) -> AbstractContextManager[None]:
        """Around what is asked of the store: one that hangs must not make the call late."""
        return answered_by(max(self.deadline, asyncio.get_running_loop().time()) + GRACE_S)


class Held:
    """One call, made and released by `mcp_front.waiting.wait.Waiting`."""

    def __init__(
        self,
        caller: Caller,
        request: WaitRequest,
        policy: Policy,
        shared: Shared,
        sweep: Sweep,
        *,
        progress: Callable[[float], Awaitable[None]] | None,
        drain: asyncio.Event | None,
        fit: Fit | None,
    ) -> None:
        self.transport: Transport = "poll"
        """How arrivals were found, as far as is known."""
        self._caller = caller
        self._request = request
        self._policy = policy
        self._shared = shared
        self._sweep = sweep
        self._progress = progress
        self._drain = drain
        self._fit = fit
        self._alarm = Alarm()
        self._timing = Timing(request.timeout_s, progress_s=shared.settings.progress_s)
        self._participant = Participant(caller, request, shared, wake=self.wake, store_is_back=self.wake_now)
        self._context: StepContext | None = None
        self._cursor: Cursor | None = None
        self._refusal: Exception | None = None
        self._trouble: Exception | None = None
        self._began_id: int | None = request.after_id
        self._older: OlderUnread | None = None
        self._backs_off = False
        self._polls = False
        self._failures = self._moves = 0

    # What others see of it

    @property
    def caller(self) -> CallerKey:
        """Whose it is."""
        return self._caller.key

    @property
    def head(self) -> Head | None:
        """Where the ledger ended when this wait last read it."""
        state = None if self._cursor is None else self._cursor.state
        return None if state is None else state.head

    def doubt(self) -> None:
        """Read on, and see anew whether the caller has a live feed."""
        self._participant.state.doubt()
        self.wake()

    def wake(self) -> None:
        """Something may have changed; never blocks."""
        self._alarm.ring()

    def wake_now(self) -> None:
        """The process is about to end, or the store is back; never blocks."""
        self._alarm.ring(urgent=True)

    def refuse(self, error: Exception) -> None:
        """The host refused this call's key when it was asked in the background."""
        self._refusal = error
        self._alarm.ring(urgent=True)

    def release(self) -> None:
        """Let go of everything. The call is over.

        Long-lived objects are collected rarely, so a cycle here would leak ended waits.
        """
        self._participant.release()
        self._context = self._cursor = None
        del self._participant, self._policy

    # The call

    async def run(self) -> WaitOutcome:
        """Wait. Raises `WaitError`, and what the host answers about the key or the arguments."""
        while True:
            closing = self._closing
            if not self._shared.store_is_away:
                outcome = await self._try(closing)
                if outcome is not None:
                    return outcome
            if self._policy.position_id is None:
                await self._begin_without_store()
            if closing or self._is_late:
                return await self._give_up()
            await self._sleep()

    async def _begin_without_store(self) -> None:
        """Take the newest message the host lists for the position of a call that begins now: one request.

        Without it the call would end without a position, and the next one would begin later than this one did.
        """
        failed = self._shared.store_is_away or isinstance(self._trouble, LedgerUnavailable)
        if not failed or self._request.subscription or self._timing.elapsed_s > BEGIN_WITHIN_S:
            return
        try:
            async with asyncio.timeout_at(self._timing.end):
                page = await self._caller.api.list_received(limit=HOST_PAGE)
        except (TimeoutError, *TRANSIENT) as error:
            self._trouble = self._trouble or error
            return
        self._policy.begin(max((message.id for message in page.messages if not message.is_draft), default=0))

    @property
    def _closing(self) -> bool:
        now = asyncio.get_running_loop().time()
        return now >= self._timing.deadline or (self._drain is not None and self._drain.is_set())

    @property
    def _is_late(self) -> bool:
        return asyncio.get_running_loop().time() >= self._timing.end

    async def _try(self, closing: bool) -> WaitOutcome | None:
        """One step, and what may go wrong with it."""
        timing, loop = self._timing, asyncio.get_running_loop()
        self._alarm.rung = self._backs_off = False
        timing.resume_at = timing.window_ends_at = None
        if timing.look_again_at is not None and timing.look_again_at <= loop.time():
            self._cursor = None
        try:
            async with asyncio.timeout_at(timing.end):
                with timing.store_deadline():
                    step = await self._step(closing)
                outcome = await self._respond(step)
        except TimeoutError:
            self._trouble = self._trouble or HostUnreachable("the host did not answer before the time limit")
        except Moved as moved:
            self._begin_anew(moved.cause)
        except (NoLedger, StaleEpoch):
            if self._cursor is not None and await self._may_be_restored(self._cursor):
                # Nothing else that is due can be done without a ledger, and would only end the sleep at once.
                timing.resume_at, self._backs_off = loop.time() + RESTORE_LOOK_S, True
            else:
                self._begin_anew("epoch")
        except GaveUp as error:
            self._trouble = error
        except LedgerUnavailable as error:
            self._store_failed(error)
        except TRANSIENT as error:
            self._back_off(error)
        else:
            self._moves = self._failures = 0
            self._participant.state.ledger_is_there()
            return outcome
        return None

    async def _may_be_restored(self, cursor: Cursor) -> bool:
        """Whether the ledger may still go on from where this wait stands. Another life of it does not."""
        try:
            state = await self._shared.store.ledger.state(self._caller.key)
            if state is not None and state.epoch != cursor.epoch:
                return False
            if not self._participant.state.may_be_restored():
                return False
            # The store may have forgotten that the caller is active, too: no daemon would serve it.
            await self._participant.activate()
        except LedgerUnavailable:
            pass
        return True

    async def _step(self, closing: bool) -> Decided | SubscriptionDelivery | None:
        """Read and decide. None: begin again at once."""
        if self._refusal is not None:
            raise self._refusal
        if self._cursor is not None and self._context is not None:
            # What came is read first. Only a call that goes on waiting asks for the feed's state.
            found = await self._read_on(self._cursor, closing)
            if not isinstance(found.decision, Return):
                self._poll(await self._prepare(), closing)
            return found
        context = await self._prepare()
        start = await self._policy.start(context)
        again_s = self._policy.look_again_s
        self._timing.look_again_at = None if again_s is None else asyncio.get_running_loop().time() + again_s
        if start is None or isinstance(start, SubscriptionDelivery):
            self._alarm.rung = start is None
            return start
        self._poll(context, closing)
        return await self._read_on(self._begin(start, context), closing)

    async def _prepare(self) -> StepContext:
        timing = self._timing
        context = self._context = await self._participant.prepare(elapsed=lambda: timing.elapsed_s)
        self.transport = context.transport
        self._trouble = context.state.trouble if context.transport == "poll" else None
        return context

    def _begin(self, start: Start, context: StepContext) -> Cursor:
        self._older = start.older or self._older
        if self._began_id is None:
            self._began_id = start.position.id
        if start.backlog is not None and not start.backlog.is_empty:
            GAPS.labels("history").inc()
        self._cursor = Cursor(
            self._caller.api,
            context.ledger,
            context.caller,
            context.positions,
            start,
            filters=self._policy.filters(context.filters),
            settle_s=self._request.settle_s,
            max_batch=self._shared.settings.max_batch,
        )
        return self._cursor

    async def _read_on(self, cursor: Cursor, closing: bool) -> Decided:
        timing = self._timing
        timing.read_at = asyncio.get_running_loop().time()
        if timing.read_at >= timing.reread_at:
            jitter = self._shared.rng.uniform(0.85, 1.15)
            timing.reread_at = timing.read_at + self._shared.settings.reread_s * jitter
            cursor.forget_questions()
        found = await cursor.pursue(
            elapsed_s=timing.elapsed_s, closing=closing, given=self._policy.given, marks=self._policy.marks
        )
        self._participant.state.saw_epoch(cursor.epoch)
        self._plan(found)
        return found

    def _poll(self, context: StepContext, closing: bool) -> None:
        """Look at the host's list where no feed does, if it is time to."""
        if context.transport != "poll" or closing:
            return
        if not self._polls:
            self._polls = True
            POLL_FALLBACKS.labels("feed").inc()
        context.state.poll(context.look, self.refuse)

    def _plan(self, found: Decided) -> None:
        """When to look again, whatever the notifications say."""
        now = asyncio.get_running_loop().time()
        if found.paused:
            self._timing.resume_at = now + STEADY_S
        if isinstance(found.decision, WaitUntil) and found.decision.until_s is not None:
            self._timing.window_ends_at = now + max(found.decision.until_s - found.view.now_s, 0.0)

    # Trouble

    def _begin_anew(self, cause: str) -> None:
        """The position has to be found anew: by its id, in whatever ledger there is now."""
        GAPS.labels(cause).inc()
        if cause in ("epoch", "shorter"):
            self._participant.state.was_reset()
        self._policy.moved(self._cursor, foreign=cause != "trimmed")
        self._cursor = None
        self._moves += 1
        pause_s = 0.0 if self._moves <= MOVES_AT_ONCE else 1.0
        self._timing.resume_at = asyncio.get_running_loop().time() + pause_s

    def _store_failed(self, error: LedgerUnavailable) -> None:
        self._trouble = error
        self._policy.store_failed()
        pause_s = STORE_PAUSE_S * self._shared.rng.uniform(0.5, 1.5)
        self._timing.resume_at = asyncio.get_running_loop().time() + pause_s
        self._backs_off = True

    def _back_off(self, error: FmsgError) -> None:
        self._trouble = error
        self._failures += 1
        longest_s = self._shared.settings.poll_max_s
        delay_s = retry_after_s(error, self._failures, longest_s=longest_s, rng=self._shared.rng)
        self._timing.resume_at = asyncio.get_running_loop().time() + delay_s
        self._backs_off = True

    # The answer

    async def _respond(self, step: Decided | SubscriptionDelivery | None) -> WaitOutcome | None:
        """The answer, if there is one and it is ours to give. What comes from the ledger needs an accepted key."""
        if step is None or (isinstance(step, Decided) and not isinstance(step.decision, Return)):
            return None
        await self._caller.confirm(within_s=self._shared.settings.confirm_s)
        if isinstance(step, SubscriptionDelivery):
            return await self._give_again(step)
        if isinstance(step.decision, Return) and self._cursor is not None and self._context is not None:
            return await self._give(step, step.decision, self._cursor, self._context)
        return None

    async def _give(self, found: Decided, decision: Return, cursor: Cursor, context: StepContext) -> WaitOutcome | None:
        ready_at = asyncio.get_running_loop().time()
        early = self._policy.record_early(context, cursor, decision) if self._fit is not None else None
        if self._fit is not None and early is not None:
            await gather_with(self._fit(decision.batch), self._in_time(early))
        elif self._fit is not None:
            count = await self._fit(decision.batch)
            decision = cursor.shorten(found, count) if count < len(decision.batch) else decision
        record = self._policy.record(context, cursor, decision, done=early is not None)
        after_id = await self._in_time(record)
        if after_id is None:
            self._cursor = None
            self._alarm.rung = True
            return None
        now_s = found.view.now_s + asyncio.get_running_loop().time() - ready_at
        WAKE_LATENCY.observe(max(now_s - max(decision.due_s, found.view.began_s), 0.0))
        outcome = answer(found, decision, cursor, after_id=after_id, transport=self.transport, notes=self._notes())
        return self._with_hints(outcome)

    async def _give_again(self, delivery: SubscriptionDelivery) -> WaitOutcome | None:
        again = not self._policy.is_own(delivery)
        max_batch = self._shared.settings.max_batch
        pending = await pending_after(self._policy, self._context, self._caller.api, max_batch=max_batch)
        outcome = answer_again(delivery, pending, again=again, transport=self.transport, notes=self._notes())
        if self._fit is not None:
            await self._fit(outcome.ids)
        if again and not await self._in_time(self._policy.record_again(delivery)):
            self._alarm.rung = True
            return None
        return outcome

    async def _in_time(self, work: Awaitable[_Answer]) -> _Answer:
        with self._timing.store_deadline():
            return await work

    async def _give_up(self) -> WaitOutcome:
        """The time is over: a normal result with a good position. Raises where there is no position to name yet."""
        accepted = False
        after_id = self._policy.position_id
        if not self._shared.store_is_away:
            try:
                async with asyncio.timeout_at(self._timing.end):
                    await self._caller.confirm(within_s=self._shared.settings.confirm_s)
                    accepted = True
                    if self._context is not None and self._cursor is not None:
                        after_id = await self._in_time(self._policy.close(self._context, self._cursor))
            except (TimeoutError, LedgerUnavailable, NoLedger, StaleEpoch, *TRANSIENT) as error:
                self._trouble = self._trouble or error
        if after_id is None:
            raise self._without_position()
        cursor = self._cursor if accepted else None
        outcome = answer_nothing(cursor, after_id=after_id, transport=self.transport, notes=self._notes())
        return self._with_hints(outcome) if accepted else outcome

    def _with_hints(self, outcome: WaitOutcome) -> WaitOutcome:
        """With what the agent can go back to: where the call began, and what was unread then."""
        outcome = msgspec.structs.replace(outcome, began_id=self._began_id or 0)
        if self._older is None or self._context is None:
            return outcome
        from_ = self._context.filters.from_
        coming = {entry.id for entry in (*outcome.ids, *outcome.pending)}
        older = [id_ for id_, sender in self._older.senders.items() if id_ not in coming and from_ in (None, sender)]
        return msgspec.structs.replace(outcome, older_unread=len(older), older_unread_more=self._older.more)

    def _without_position(self) -> Exception:
        trouble = self._trouble
        if self._shared.store_is_away or isinstance(trouble, LedgerUnavailable):
            if self._request.subscription:
                return SubscriptionAway(self._request.subscription)
            return trouble or LedgerUnavailable("The server's store is away.")
        return trouble or HostUnreachable("the host did not answer before the time limit; call again")

    def _notes(self) -> tuple[str, ...]:
        away = LedgerUnavailable("away") if self._shared.store_is_away else None
        return (*self._policy.notes, *notes_on(away or self._trouble))

    # Sleeping

    async def _sleep(self) -> None:
        """Until a notification comes or something is due. A host or store in trouble is left alone till it is time."""
        timing = self._timing
        away = self._shared.store_is_away
        deaf = away or self._backs_off
        window = timing.window_ends_at
        if self._alarm.rung and window is None and not deaf:
            return
        until = self._next_at(away=away)
        if self._alarm.rung and window is not None and not away:
            deaf = True
            until = min(until, timing.read_at + COALESCE_S)
        rests = self._rests and not away
        if rests:
            self._sweep.add(self)
        try:
            await self._alarm.sleep(until, deaf=deaf)
        finally:
            if rests:
                self._sweep.discard(self)
        if self._progress is not None and asyncio.get_running_loop().time() >= timing.progress_at:
            timing.progress_at += self._shared.settings.progress_s
            await self._progress(timing.elapsed_s)

    @property
    def _rests(self) -> bool:
        """Whether a live feed fills the ledger, all of it was read and nothing is open: the sweep re-reads it."""
        return (
            self._cursor is not None
            and self._context is not None
            and self._context.transport == "websocket"
            and not self._backs_off
            and self._cursor.at_rest
        )

    def _next_at(self, *, away: bool) -> float:
        timing = self._timing
        progress_at = timing.progress_at if self._progress is not None else None
        if away:
            return min(timing.deadline, progress_at or timing.deadline)
        if self._cursor is None or self._context is None or self._backs_off:
            return timing.due(progress_at)
        state = self._context.state
        reread_at = max(state.next_activation_at, timing.reread_at) if self._rests else timing.reread_at
        look_at = state.next_look_at if self._context.transport == "poll" else None
        return timing.due(progress_at, reread_at, look_at)
