"""All waits of one process.

A held call costs a coroutine of its own request, one listener for notifications and one timer: no task, no connection
and no blocked command. What many of them need (a feed's state, a look at the host's list) is asked for once.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from ledger.deadlines import BEST_EFFORT_S, answered_within
from ledger.port import LedgerError, Store
from ledger.values import CallerKey
from mcp_front.caller import Caller
from mcp_front.waiting.call import Held
from mcp_front.waiting.caller_state import SPREAD_S, Participant, Shared
from mcp_front.waiting.policy import AgentPolicy, Policy
from mcp_front.waiting.request import Fit, WaitOutcome, WaitRequest, WaitSettings
from mcp_front.waiting.subscribed import (
    SubscriptionPolicy,
    SubscriptionRecord,
    Summary,
    delete_subscription,
    list_subscriptions,
)
from mcp_front.waiting.sweep import Sweep
from telemetry.metrics import BATCH_SIZE, WAITS, WAITS_HELD

PULSE_S = 2.0
"""Between looks at the store and at which daemons live. A daemon's death is noticed so soon after its heartbeat ran
out, and so is a store that takes no writes."""


class Waiting:
    """Serves ``wait_for_message`` in one process.

    ``clock`` is the wall clock; timers go by the event loop's.
    """

    def __init__(
        self,
        store: Store,
        *,
        settings: WaitSettings | None = None,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        settings = settings or WaitSettings()
        self._store = store
        self._clock = clock
        self._rng = rng or random.Random()
        self._shared = Shared(store, settings, clock=clock, rng=self._rng)
        self._sweep = Sweep(store, every_s=settings.reread_s)
        self._held: dict[Held, None] = {}
        """In the order they came; a dict, since a set would wake them in another order in every process."""
        self._pulse: asyncio.Task[None] | None = None
        self._drains: dict[asyncio.Event, tuple[asyncio.Task[None], dict[Held, None]]] = {}

    @property
    def held(self) -> int:
        """Calls held now."""
        return len(self._held)

    async def wait(
        self,
        caller: Caller,
        request: WaitRequest,
        *,
        progress: Callable[[float], Awaitable[None]] | None = None,
        drain: asyncio.Event | None = None,
        fit: Fit | None = None,
    ) -> WaitOutcome:
        """The next batch for the caller, or ``timeout`` when the time limit or the drain comes first.

        ``progress`` is told the seconds since the call began, now and then. ``fit``: see `request.Fit`. Cancelled, it
        lets go of everything at once. Raises `mcp_front.waiting.request.WaitError`; what the host answers about the key
        or the arguments; and, where there is no position to return yet, what kept it from being found.
        """
        held = Held(
            caller,
            request,
            self._policy(caller, request),
            self._shared,
            self._sweep,
            progress=progress,
            drain=drain,
            fit=fit,
        )
        outcome = "failed"
        self._enter(held, drain)
        try:
            answer = await held.run()
            outcome = answer.status
            if answer.ids:
                BATCH_SIZE.observe(len(answer.ids))
            return answer
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._leave(held, drain)
            WAITS.labels(outcome, held.transport).inc()

    def inbox(self, caller: Caller, wake: Callable[[], None]) -> Participant:
        """The caller's shared state for a stream of changes; ``wake`` is called when something may have changed.

        It is to be released.
        """
        return Participant(caller, WaitRequest(), self._shared, wake=wake, store_is_back=wake)

    async def subscriptions(self, caller: CallerKey) -> Sequence[Summary]:
        """The caller's subscriptions, by name. Raises what the store raises."""
        return await list_subscriptions(self._store.documents, caller)

    async def delete_subscription(self, caller: CallerKey, name: str) -> bool:
        """Forget one; whether there was one. Raises `SubscriptionRefused` for a bad name and what the store raises."""
        return await delete_subscription(self._store.documents, caller, name)

    def _policy(self, caller: Caller, request: WaitRequest) -> Policy:
        if request.subscription is None:
            return AgentPolicy(request.after_id)
        call = secrets.token_hex(6)
        documents = self._store.documents
        record = SubscriptionRecord(documents, caller.key, request.subscription, call=call, clock=self._clock)
        return SubscriptionPolicy(record, request.after_id, clock=self._clock)

    def _enter(self, held: Held, drain: asyncio.Event | None) -> None:
        self._held[held] = None
        WAITS_HELD.inc()
        loop = asyncio.get_running_loop()
        if self._pulse is None:
            # Ended by `_leave` of the last held call.
            self._pulse = loop.create_task(self._watch_daemons())
        if drain is not None:
            if drain not in self._drains:
                # Ended by `_leave` of the last call that was given this event.
                self._drains[drain] = (loop.create_task(self._watch_drain(drain)), {})
            self._drains[drain][1][held] = None

    def _leave(self, held: Held, drain: asyncio.Event | None) -> None:
        held.release()
        del self._held[held]
        WAITS_HELD.dec()
        if drain is not None:
            task, waiting = self._drains[drain]
            del waiting[held]
            if not waiting:
                task.cancel()
                del self._drains[drain]
        if not self._held and self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
            self._sweep.stop()

    async def _watch_drain(self, drain: asyncio.Event) -> None:
        await drain.wait()
        for held in tuple(self._drains[drain][1]):
            held.wake_now()

    async def _watch_daemons(self) -> None:
        """Check the store, and wake the waits when a daemon is gone: they see for themselves what it means to them."""
        alive: frozenset[str] | None = None
        while True:
            await asyncio.sleep(PULSE_S)
            if self._shared.store_is_away:
                continue
            try:
                with answered_within(BEST_EFFORT_S):
                    await self._store.ping()  # a store that takes no writes must be noticed where nothing is written
                    now = frozenset(member.id for member in await self._store.fleet.members())
            except LedgerError:
                continue
            if alive is not None and alive - now:
                loop = asyncio.get_running_loop()
                for held in tuple(self._held):
                    loop.call_later(self._rng.uniform(0.0, SPREAD_S), held.wake)
            alive = now
