"""One held call of ``wait_for_message``: reading, deciding and sleeping in turn, until there is an answer.

Nothing is decided here: what to return says `decide`, where to go on says `positions`, who keeps the position is the
`keeper`'s. What goes wrong meanwhile (the store away, the host down, the ledger begun anew) is waited out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from fmsg.errors import HostUnreachable
from ledger.deadlines import OutOfPatience, patient_until
from ledger.port import LedgerUnavailable, NoLedger, StaleEpoch
from ledger.values import CallerKey, Head
from mcp_front.caller import Caller
from mcp_front.gather import gather_with
from mcp_front.waiting.backlog import Moved
from mcp_front.waiting.behind import look_behind
from mcp_front.waiting.cursor import Found, Pursuit
from mcp_front.waiting.decide import Return, WaitUntil
from mcp_front.waiting.errors import SubscriptionAway
from mcp_front.waiting.grounds import Grounds
from mcp_front.waiting.policy import Keeper
from mcp_front.waiting.request import Fit, Transport, WaitOutcome, WaitRequest, WaitSettings
from mcp_front.waiting.results import answer, answer_again, answer_nothing, notes_on
from mcp_front.waiting.step_context import Footing, Stand
from mcp_front.waiting.subscriptions import Delivery
from mcp_front.waiting.sweep import Sweep
from mcp_front.waiting.trouble import PASSING, retry_after_s
from telemetry.metrics import GAPS, POLL_FALLBACKS, WAKE_LATENCY

FIRST_STEP_S = 10.0
"""Finding the position may take so long whatever the time limit: a call with a short one must get something, too."""
LAST_STEP_S = 3.0
"""The last look at the ledger, at the end of the call, may take so long."""
STORE_GRACE_S = 1.0
"""A store that hangs is waited for until so long after the time limit: the agent's own timer may be hardly longer."""
COALESCE_S = 0.05
"""While a settle window is open, bells are answered so much later: only a full batch ends a window early, and a burst
rings once per message."""
TIMER_S = 0.001
"""Timers ring so much later: uvloop rounds to milliseconds, and one too soon costs steps until the moment comes."""
STEADY_S = 0.5
"""Pause between stretches of history where nothing qualifies."""
MOVES_AT_ONCE = 4
"""How often in a row a position is found anew before the wait takes a breath, of a second."""

_Answer = TypeVar("_Answer")


class Held:
    """One call, made and released by `mcp_front.waiting.wait.Waiting`."""

    def __init__(
        self,
        caller: Caller,
        request: WaitRequest,
        keeper: Keeper,
        grounds: Grounds,
        sweep: Sweep,
        *,
        settings: WaitSettings,
        clock: Callable[[], float],
        rng: random.Random,
        progress: Callable[[float], Awaitable[None]] | None,
        drain: asyncio.Event | None,
        fit: Fit | None,
    ) -> None:
        self.transport: Transport = "poll"
        """How arrivals were found, as far as is known."""
        self._caller = caller
        self._request = request
        self._keeper = keeper
        self._sweep = sweep
        self._settings = settings
        self._rng = rng
        self._progress = progress
        self._drain = drain
        self._fit = fit
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._deadline = self._began + max(request.timeout_s, 0.0)
        self._footing = Footing(caller, request, grounds, settings, wake=self.wake, clock=clock)
        self._stand: Stand | None = None
        self._pursuit: Pursuit | None = None
        self._refusal: Exception | None = None
        self._trouble: Exception | None = None
        self._failures = self._moves = 0
        self._wake_up: asyncio.Future[None] | None = None
        self._rung = False
        self._backs_off = False
        self._read_at = self._began
        self._reread_at = self._began
        self._resume_at: float | None = None
        self._window_ends_at: float | None = None
        self._look_again_at: float | None = None
        self._polls = False
        self._progress_at = self._began + settings.progress_s

    @property
    def caller(self) -> CallerKey:
        """See `mcp_front.waiting.sweep.Resting`."""
        return self._caller.key

    @property
    def head(self) -> Head | None:
        """See `mcp_front.waiting.sweep.Resting`."""
        state = None if self._pursuit is None else self._pursuit.reader.state
        return None if state is None else state.head

    def doubt(self) -> None:
        """See `mcp_front.waiting.sweep.Resting`."""
        if self._stand is not None:
            self._stand.desk.doubt()
        self.wake()

    def wake(self) -> None:
        """Something may have changed; never blocks."""
        self._rung = True
        if self._wake_up is not None and not self._wake_up.done():
            self._wake_up.set_result(None)

    def refuse(self, error: Exception) -> None:
        """The host refused this call's key when it was asked in the background."""
        self._refusal = error
        self.wake()

    def release(self) -> None:
        """Let go of everything. The call is over.

        Also of what refers back here: the garbage collector looks at what is held for long as good as never, and ended
        waits would pile up until it does.
        """
        self._footing.release()
        self._stand = self._pursuit = None
        del self._footing, self._keeper

    async def run(self) -> WaitOutcome:
        """Wait. Raises `WaitError`, and what the host answers about the key or the arguments."""
        while True:
            closing = self._closing
            outcome = await self._try(closing)
            away = isinstance(self._trouble, LedgerUnavailable)
            if outcome is None and closing and away and not self._request.subscription:
                outcome = await self._try(closing)  # the host can be looked at without the store
            if outcome is not None:
                return outcome
            if closing or (away and self._request.subscription and self._closing):
                return await self._give_up()
            await self._sleep()

    @property
    def _closing(self) -> bool:
        return self._loop.time() >= self._deadline or (self._drain is not None and self._drain.is_set())

    @property
    def _elapsed_s(self) -> float:
        return self._loop.time() - self._began

    async def _try(self, closing: bool) -> WaitOutcome | None:
        """One step, and what may go wrong with it."""
        now = self._loop.time()
        limit = max(now + LAST_STEP_S if closing else self._deadline, self._began + FIRST_STEP_S)
        self._rung = self._backs_off = False
        self._resume_at = self._window_ends_at = None
        if self._look_again_at is not None and self._look_again_at <= now:
            self._pursuit = None
        try:
            with self._hurried():
                async with asyncio.timeout_at(limit):
                    step = await self._step(closing)
            outcome = await self._respond(step)
        except TimeoutError:
            return None
        except Moved as moved:
            self._begin_anew(moved.cause)
        except (NoLedger, StaleEpoch):
            self._begin_anew("epoch")
        except OutOfPatience as error:
            self._trouble = error
        except LedgerUnavailable as error:
            self._store_failed(error)
        except PASSING as error:
            self._trouble = error
            self._failures += 1
            delay_s = retry_after_s(error, self._failures, longest_s=self._settings.poll_max_s, rng=self._rng)
            self._resume_at = self._loop.time() + delay_s
            self._backs_off = True
        else:
            self._moves = self._failures = 0
            return outcome
        return None

    async def _step(self, closing: bool) -> Found | Delivery | None:
        """Read and decide. None: begin again at once."""
        if await self._footing.choose():
            self._begin_anew("store")
        stand = self._stand = await self._footing.stand(elapsed=lambda: self._elapsed_s)
        self.transport = stand.transport
        if self._pursuit is None:
            start = await self._keeper.start(stand)
            again_s = self._keeper.look_again_s
            self._look_again_at = None if again_s is None else self._loop.time() + again_s
            if start is None or isinstance(start, Delivery):
                self._rung = start is None
                return start
            if start.past is not None and not start.past.is_empty:
                GAPS.labels("history").inc()
            self._pursuit = Pursuit(
                self._caller.api,
                stand.ledger,
                stand.caller,
                stand.positions,
                start,
                filters=self._keeper.filters(stand.filters),
                settle_s=self._request.settle_s,
                max_batch=self._settings.max_batch,
                saw=stand.saw,
            )
        if stand.transport == "poll" and not closing:
            self._poll(stand)
        if self._refusal is not None:
            raise self._refusal
        self._read_at = self._loop.time()
        if self._read_at >= self._reread_at:
            self._reread_at = self._read_at + self._settings.reread_s * self._rng.uniform(0.85, 1.15)
            self._pursuit.forget_questions()
        found = await self._pursuit.pursue(
            elapsed_s=self._elapsed_s, closing=closing, given=self._keeper.given, marks=self._keeper.reads_marks
        )
        self._footing.saw_epoch(self._pursuit.reader.epoch)
        self._trouble = stand.desk.trouble if stand.transport == "poll" else None
        self._plan(found)
        return found

    def _poll(self, stand: Stand) -> None:
        if not self._polls:
            self._polls = True
            POLL_FALLBACKS.labels("store" if stand.emergency else "feed").inc()
        stand.desk.poll(stand.positions, self.refuse)

    def _plan(self, found: Found) -> None:
        """When to look again, whatever the bells say."""
        if found.paused:
            self._resume_at = self._loop.time() + STEADY_S
        if isinstance(found.decision, WaitUntil) and found.decision.until_s is not None:
            self._window_ends_at = self._loop.time() + max(found.decision.until_s - found.view.now_s, 0.0)

    def _begin_anew(self, cause: str) -> None:
        """The position has to be found anew: by its id, in whatever ledger there is now."""
        GAPS.labels(cause).inc()
        if cause in ("epoch", "shorter"):
            self._footing.disturbed()
        self._keeper.leave(self._pursuit, foreign=cause != "trimmed", away=cause == "store")
        self._pursuit = None
        self._moves += 1
        self._resume_at = self._loop.time() + (0.0 if self._moves <= MOVES_AT_ONCE else 1.0)

    def _store_failed(self, error: LedgerUnavailable) -> None:
        self._trouble = SubscriptionAway(self._request.subscription) if self._request.subscription else error
        self._footing.store_failed()
        self._keeper.leave(self._pursuit, foreign=True, away=True)
        self._pursuit = None
        pause_s = self._settings.retry_store_s if self._request.subscription else 0.0
        self._resume_at = self._loop.time() + pause_s

    async def _respond(self, step: Found | Delivery | None) -> WaitOutcome | None:
        """The answer, if there is one and it is ours to give. What comes from the ledger needs an accepted key."""
        if step is None or (isinstance(step, Found) and not isinstance(step.decision, Return)):
            return None
        await self._caller.confirm(within_s=self._settings.confirm_s)
        if isinstance(step, Delivery):
            return await self._give_again(step)
        if isinstance(step.decision, Return) and self._pursuit is not None:
            return await self._give(step, step.decision, self._pursuit)
        return None

    async def _give(self, found: Found, decision: Return, pursuit: Pursuit) -> WaitOutcome | None:
        if self._stand is None:
            raise RuntimeError("nothing was read yet")
        ready_s = self._loop.time()
        recorded: bool | None = None
        if self._fit is not None and (ahead := self._keeper.ahead(self._stand, pursuit, decision)) is not None:
            recorded = await gather_with(self._fit(decision.batch), self._hurry(ahead))
        elif self._fit is not None:
            count = await self._fit(decision.batch)
            decision = pursuit.shorten(found, count) if count < len(decision.batch) else decision
        after_id = await self._hurry(self._keeper.keep(self._stand, pursuit, decision, recorded=recorded))
        if after_id is None:
            self._pursuit = None
            self._rung = True
            return None
        now_s = found.view.now_s + self._loop.time() - ready_s
        WAKE_LATENCY.observe(max(now_s - max(decision.due_s, found.view.began_s), 0.0))
        return answer(found, decision, pursuit, after_id=after_id, transport=self.transport, notes=self._notes())

    async def _give_again(self, delivery: Delivery) -> WaitOutcome | None:
        again = not self._keeper.is_own(delivery)
        behind = await look_behind(self._keeper, self._stand, self._caller.api, max_batch=self._settings.max_batch)
        outcome = answer_again(delivery, behind, again=again, transport=self.transport, notes=self._notes())
        if self._fit is not None:
            await self._fit(outcome.ids)
        if again and not await self._hurry(self._keeper.keep_again(delivery)):
            self._rung = True
            return None
        return outcome

    def _hurried(self) -> AbstractContextManager[None]:
        """Around what is asked of the store: one that hangs must not make the call late."""
        return patient_until(max(self._deadline, self._loop.time()) + STORE_GRACE_S)

    async def _hurry(self, work: Awaitable[_Answer]) -> _Answer:
        with self._hurried():
            return await work

    async def _give_up(self) -> WaitOutcome:
        """The time is over: a normal result with a good position. Raises where there is no position to name yet."""
        accepted = False
        after_id = self._keeper.position_id
        try:
            with self._hurried():
                async with asyncio.timeout(LAST_STEP_S):
                    await self._caller.confirm(within_s=self._settings.confirm_s)
                    accepted = True
                    if self._stand is not None and self._pursuit is not None:
                        after_id = await self._keeper.close(self._stand, self._pursuit)
        except (TimeoutError, LedgerUnavailable, NoLedger, StaleEpoch, *PASSING) as error:
            self._trouble = self._trouble or error
        if after_id is None:
            raise self._trouble or HostUnreachable("the host did not answer before the time limit; call again")
        return answer_nothing(
            self._pursuit if accepted else None, after_id=after_id, transport=self.transport, notes=self._notes()
        )

    def _notes(self) -> tuple[str, ...]:
        emergency = self._stand is not None and self._stand.emergency
        own = notes_on(self._trouble, emergency=emergency, subscribed=self._request.subscription is not None)
        return (*self._keeper.notes, *own)

    async def _sleep(self) -> None:
        """Until a bell rings or something is due. A host in trouble is left alone, whatever rings."""
        window = self._window_ends_at
        if self._rung and window is None and not self._backs_off:
            return
        at = self._next_at()
        deaf = self._backs_off
        if self._rung and window is not None:
            deaf = True
            at = min(at, self._read_at + COALESCE_S)
        future: asyncio.Future[None] = self._loop.create_future()
        if not deaf:
            self._wake_up = future
        rests = self._rests
        if rests:
            self._sweep.add(self)
        timer = self._loop.call_at(at + TIMER_S, _ring, future)
        try:
            await future
        finally:
            timer.cancel()
            self._wake_up = None
            if rests:
                self._sweep.discard(self)
        if self._progress is not None and self._loop.time() >= self._progress_at:
            self._progress_at += self._settings.progress_s
            await self._progress(self._elapsed_s)

    @property
    def _rests(self) -> bool:
        """Whether a live feed fills the ledger, all of it was read and nothing is open: the sweep re-reads it."""
        return (
            self._pursuit is not None
            and self._stand is not None
            and self._stand.transport == "websocket"
            and not self._backs_off
            and self._pursuit.reader.at_rest
        )

    def _next_at(self) -> float:
        times = [self._deadline]
        if self._pursuit is not None and self._stand is not None and not self._backs_off:
            if self._rests:
                times.append(max(self._stand.desk.next_activation_at, self._reread_at))
            else:
                times.append(self._reread_at)
            if self._stand.transport == "poll":
                times.append(self._stand.desk.next_look_at)
        times.extend(at for at in (self._resume_at, self._window_ends_at, self._look_again_at) if at is not None)
        if self._progress is not None:
            times.append(self._progress_at)
        return min(times)


def _ring(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
