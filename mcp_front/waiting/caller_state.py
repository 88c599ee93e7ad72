"""What the waits of one process share: per caller the activation, the feed's state and the looks at the host's list;
per process whether the store can be used and which daemons live.

However many calls of a caller are held, the host is asked once, and the store is asked for the feed once in a while.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from fmsg.address import fold
from fmsg.errors import FmsgError
from ledger.catch_up import CaughtUp, catch_up
from ledger.deadlines import in_time
from ledger.port import Documents, Ledger, LedgerError, LedgerUnavailable, Store
from ledger.values import CallerKey, Head
from mcp_front.caller import Caller
from mcp_front.waiting.backlog import KnownRoots
from mcp_front.waiting.decide import Filters
from mcp_front.waiting.positions import Positions
from mcp_front.waiting.request import TRANSIENT, Transport, WaitRequest, WaitSettings, retry_after_s
from mcp_front.waiting.resets import load_reset, save_reset
from mcp_front.waiting.threads import root_named_by

IDLE_STATES = 10_000
"""States kept without a wait, so that a caller that calls again at once is not reported active again. 1 kB each."""
CREDENTIAL_RETRY_S = 5.0
"""How soon a feed that asks for a credential is given one, though its caller was reported active a moment ago."""
SPREAD_S = 1.0
"""Over how long waits are woken that all have a reason to read at the same moment."""

Look = Callable[[], Awaitable[CaughtUp]]
"""Compares the host's list with the caller's ledger."""


class OneAtATime:
    """One caller asks the store while the others queue; they share its failure.

    Without this each of thousands would find out in turn, for as long as a frozen server holds a command, that the
    store is away.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Queue, then ask. Raises `LedgerUnavailable` where another has failed to meanwhile."""
        failures = self._failures
        async with in_time(), self._lock:
            if self._failures != failures:
                raise LedgerUnavailable("The store gave no answer a moment ago.")
            try:
                yield
            except LedgerUnavailable:
                self._failures += 1
                raise


MAX_HANDED_OUT = 16
"""Positions that a process remembers per caller, some 200 bytes each: those of the agents that call now."""
LIVE_LATELY_S = 60.0
"""A daemon whose feed was live so long ago still holds the end of the ledger."""
RESTORE_WITHIN_S = 8.0
"""Within this time of a flush a daemon has noticed it and written its ledgers back: in a second or two, unless the
machine is busy. A front that begins a ledger before has much come again. Less than the shortest call may take."""
RESTORE_LOOK_S = 0.5
"""Between looks whether it has."""


class LiveDaemons:
    """The ids of the live daemons, read from the store once in a while for all waits."""

    def __init__(self, store: Store, *, cache_s: float, absent_s: float) -> None:
        self._store = store
        self._cache_s = cache_s
        self._absent_s = absent_s
        self._ids = frozenset[str]()
        self._read_at = float("-inf")
        self._asking = OneAtATime()

    async def alive(self, daemon: str) -> bool:
        """Whether a daemon's heartbeat was there a moment ago. Raises what the store raises."""
        if daemon in self._ids and asyncio.get_running_loop().time() - self._read_at < self._cache_s:
            return True
        async with self._asking.turn():
            now = asyncio.get_running_loop().time()
            if now - self._read_at >= (self._cache_s if daemon in self._ids else self._absent_s):
                self._ids = frozenset(member.id for member in await self._store.fleet.members())
                self._read_at = now
        return daemon in self._ids


class CallerState:
    """What the waits of one caller share. Times are the event loop's unless they say otherwise."""

    def __init__(self, caller: CallerKey, shared: Shared) -> None:
        self.trouble: FmsgError | None = None
        """Why the last look at the host failed; None after one that did not."""
        self._caller = caller
        self._shared = shared
        self._epoch = ""
        self._reset_at_s: float | None = None
        self._reset_is_stored = True
        self._wakes: list[Callable[[], None]] = []
        self._activated_at = float("-inf")
        self._needs_credential = False
        self._left_token = ""
        self._transport: Transport = "poll"
        self._transport_at = float("-inf")
        self._asking = OneAtATime()
        self._look: asyncio.Task[CaughtUp] | None = None
        self._look_at = float("-inf")
        self._failures = 0
        self._live_at = float("-inf")
        self._lost_at: float | None = None
        self.handed_out: OrderedDict[int, Head] = OrderedDict()
        """The last positions that this process recorded, by message id. A flushed ledger that is written back under the
        same ids has lost its marks, and these are still exact there."""

    @property
    def idle(self) -> bool:
        """Whether no wait of the caller is held."""
        return not self._wakes

    def join(self, wake: Callable[[], None]) -> None:
        """A wait begins; ``wake`` is called after each look at the host."""
        self._wakes.append(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        """A wait is over. The last one ends the look that is going on."""
        self._wakes.remove(wake)
        if not self._wakes and self._look is not None:
            # A wait that joins before the look has ended must not end with it: a renewed wait comes at once.
            look, self._look = self._look, None
            look.cancel()

    # The ledger's resets

    def saw_epoch(self, epoch: str) -> None:
        """The life of the ledger that was read just now; another one than before means a reset."""
        if self._epoch and epoch != self._epoch:
            self.was_reset()
        self._epoch = epoch

    def may_be_restored(self) -> bool:
        """Whether a daemon may still write back what the store lost of the ledger: its feed was live a moment ago.

        A ledger that is begun anew has another order, so that much would come again.
        """
        now = _now()
        if not self._was_live_lately:
            return False
        if self._lost_at is None:
            self._lost_at = now
            self._activated_at = float("-inf")  # the store may have forgotten that the caller is active, too
        return now < self._lost_at + RESTORE_WITHIN_S

    @property
    def _was_live_lately(self) -> bool:
        return self._transport == "websocket" or _now() - self._live_at <= LIVE_LATELY_S

    def ledger_is_there(self) -> None:
        """The ledger was read as it was expected."""
        self._lost_at = None

    def note_handed_out(self, message_id: int, head: Head) -> None:
        """The ledger recorded a position."""
        self.handed_out[message_id] = head
        self.handed_out.move_to_end(message_id)
        if len(self.handed_out) > MAX_HANDED_OUT:
            self.handed_out.popitem(last=False)

    def was_reset(self) -> None:
        """The ledger began anew or lost its end."""
        self._activated_at = float("-inf")  # the store may have forgotten that the caller is active, too
        self._reset_at_s = self._shared.clock()
        self._reset_is_stored = False

    async def last_reset(self, epoch: str) -> float | None:
        """When any replica saw the last reset (POSIX), given the ledger's present life. Raises as the store does."""
        self.saw_epoch(epoch)
        stored = await load_reset(self._shared.store.documents, self._caller, now_s=self._shared.clock())
        return max((at_s for at_s in (stored, self._reset_at_s) if at_s is not None), default=None)

    async def store_reset(self) -> None:
        """Tell the other replicas of a reset seen here. Raises what the store raises."""
        if self._reset_at_s is not None and not self._reset_is_stored:
            await save_reset(self._shared.store.documents, self._caller, self._reset_at_s)
            self._reset_is_stored = True

    # The activation and the feed

    @property
    def next_activation_at(self) -> float:
        """When the caller is to be reported active again."""
        if self._needs_credential:
            return self._activated_at + CREDENTIAL_RETRY_S
        settings = self._shared.settings
        live = self._transport == "websocket"
        return self._activated_at + (settings.activate_s if live else settings.activate_unsettled_s)

    async def activate(self, caller: Caller) -> None:
        """Say now and then that the caller is active and leave its token for the feed. Raises as the store does."""
        if _now() < self.next_activation_at:
            return
        before, self._activated_at = self._activated_at, _now()
        try:
            token = await caller.token()
            if self._needs_credential and token.value == self._left_token:
                # The feed has it and asks for another one: the host refuses it, or will soon.
                await caller.confirm(within_s=0.0)
                token = await caller.token()
            await self._shared.store.activations.activate(
                self._caller,
                address=caller.address,
                api_url=caller.api_url,
                token=token.value,
                token_expires_at_s=token.expires_at_s,
            )
            self._left_token = token.value
        except BaseException:
            self._activated_at = before
            raise

    def doubt(self) -> None:
        """Ask anew for the feed's state with the next step."""
        self._transport_at = float("-inf")

    async def transport(self) -> Transport:
        """Whether a live feed records this caller's arrivals. Raises what the store raises."""
        if self._knows_transport():
            return self._transport
        async with self._asking.turn():
            if not self._knows_transport():
                report = await self._shared.store.activations.feed(self._caller)
                live = report is not None and report.live and await self._shared.daemons.alive(report.daemon)
                if live or self._transport == "websocket":
                    self._live_at = _now()
                self._needs_credential = report is not None and report.needs_credential
                self._transport = "websocket" if live else "poll"
                self._transport_at = _now()
        return self._transport

    def _knows_transport(self) -> bool:
        settings = self._shared.settings
        believed_s = settings.feed_cache_s if self._transport == "websocket" else settings.no_feed_cache_s
        return _now() - self._transport_at < believed_s

    # Looks at the host's list

    @property
    def next_look_at(self) -> float:
        """When the host is to be asked again while no feed is live; never, while it is being asked."""
        return float("inf") if self._look is not None else self._look_at

    async def look(self, compare: Look) -> CaughtUp:
        """Look at the host's list now, together with other waits that do. Raises what host and store raise."""
        others = self._look is not None
        try:
            return await asyncio.shield(self._looking(compare))
        except FmsgError as error:
            if not others or isinstance(error, TRANSIENT):
                raise
        # It was the key of another of this caller's waits that the host refused.
        return await self.look(compare)

    def poll(self, compare: Look, refused: Callable[[Exception], None]) -> None:
        """Look at the host's list if it is time to; ``refused`` hears of an answer that this caller's key gets."""
        if self._look is not None or _now() < self._look_at:
            return

        def ended(task: asyncio.Task[CaughtUp]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception) and not isinstance(error, (*TRANSIENT, LedgerError)):
                refused(error)

        self._looking(compare).add_done_callback(ended)

    def _looking(self, compare: Look) -> asyncio.Task[CaughtUp]:
        if self._look is None or self._look.done():
            # Ended by `leave` of the caller's last wait.
            self._look = asyncio.get_running_loop().create_task(self._run_look(compare))
            self._look.add_done_callback(self._looked)
        return self._look

    def _looked(self, task: asyncio.Task[CaughtUp]) -> None:
        if self._look is task:
            self._look = None
        if not task.cancelled():
            task.exception()  # the wait that wanted the result may be over: the loop must not complain of the error
        for wake in tuple(self._wakes):
            wake()

    async def _run_look(self, compare: Look) -> CaughtUp:
        settings, rng = self._shared.settings, self._shared.rng
        try:
            while self._was_live_lately:
                if await self._shared.store.ledger.state(self._caller) is not None or not self.may_be_restored():
                    break
                await asyncio.sleep(RESTORE_LOOK_S)
            caught_up = await compare()
        except TRANSIENT as error:
            self.trouble = error
            self._failures += 1
            self._look_at = _now() + retry_after_s(error, self._failures, longest_s=settings.poll_max_s, rng=rng)
            raise
        except Exception:
            self._look_at = _now() + settings.poll_s
            raise
        self.trouble = None
        self._failures = 0
        self._look_at = _now() + settings.poll_s * rng.uniform(0.8, 1.2)
        return caught_up


class Shared:
    """What all waits of one process share. ``clock`` is the wall clock."""

    def __init__(self, store: Store, settings: WaitSettings, *, clock: Callable[[], float], rng: random.Random) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.daemons = LiveDaemons(store, cache_s=settings.feed_cache_s, absent_s=settings.no_feed_cache_s)
        self.known_roots = KnownRoots()
        self._callers: OrderedDict[CallerKey, CallerState] = OrderedDict()

    @property
    def store_is_away(self) -> bool:
        """Whether the store takes no writes."""
        return self.store.availability.away_since_s is not None

    def caller(self, key: CallerKey) -> CallerState:
        """The caller's state. The one unused for longest is dropped where there are too many."""
        state = self._callers.get(key)
        if state is None:
            state = self._callers[key] = CallerState(key, self)
        self._callers.move_to_end(key)
        if len(self._callers) > IDLE_STATES:
            oldest = next(iter(self._callers))
            if self._callers[oldest].idle:
                del self._callers[oldest]
            else:
                self._callers.move_to_end(oldest)
        return state


@dataclass(frozen=True, slots=True)
class StepContext:
    """What one step of a wait works with."""

    caller: CallerKey
    ledger: Ledger
    documents: Documents
    positions: Positions
    state: CallerState
    look: Look
    transport: Transport
    filters: Filters
    elapsed: Callable[[], float]
    """Seconds since the call began."""


class Participant:
    """One wait's part in its caller's state: it hears of arrivals and polls, and asks for what a step needs."""

    def __init__(
        self,
        caller: Caller,
        request: WaitRequest,
        shared: Shared,
        *,
        wake: Callable[[], None],
        store_is_back: Callable[[], None],
    ) -> None:
        """``wake`` is called when something may have changed."""
        self.state = shared.caller(caller.key)
        self._caller = caller
        self._request = request
        self._store = store = shared.store
        self._wake = wake
        self._filters: Filters | None = None
        to = (caller.api, store.ledger, caller.key, caller.address)
        self._compare = partial(catch_up, *to, source="poll")
        self._positions = Positions(
            caller.api,
            store.ledger,
            store.documents,
            caller.key,
            caller.address,
            look=partial(self.state.look, self._compare),
            last_reset=self.state.last_reset,
            handed_out=self.state.handed_out,
            roots=shared.known_roots,
        )
        self.state.join(wake)
        self._ends = (store.notifications.listen(caller.key, wake), store.availability.listen(store_is_back))

    def release(self) -> None:
        """The wait is over."""
        self.state.leave(self._wake)
        for end in self._ends:
            end()

    async def activate(self) -> None:
        """Say that the caller is active, if it is time to. Raises as the store does."""
        # Without a token now the feed goes on with the one it has, and the next step tries again.
        with suppress(*TRANSIENT):
            await self.state.activate(self._caller)

    async def look(self) -> tuple[bool, Head | None]:
        """Whether a live feed fills the ledger, and where that ends now; None where there is none yet.

        Marks the caller active, and has the host's list looked at where no feed does. Raises as the store does.
        """
        await self.activate()
        live = await self.state.transport() == "websocket"
        state = await self._store.ledger.state(self._caller.key)
        if not live or state is None:
            self.state.poll(self._compare, lambda error: None)  # a key that is refused ends its requests by itself
        return live, None if state is None else state.head

    async def prepare(self, *, elapsed: Callable[[], float]) -> StepContext:
        """Mark the caller active, ask for the feed's state, resolve the filters. Raises as host and store do."""
        await self.state.store_reset()
        await self.activate()
        transport = await self.state.transport()
        if self._filters is None:
            self._filters = await self._resolve_filters()
        return StepContext(
            caller=self._caller.key,
            ledger=self._store.ledger,
            documents=self._store.documents,
            positions=self._positions,
            state=self.state,
            look=self._compare,
            transport=transport,
            filters=self._filters,
            elapsed=elapsed,
        )

    async def _resolve_filters(self) -> Filters:
        request, root = self._request, None
        if request.thread_of is not None:
            root = await root_named_by(self._caller.api, self._store.ledger, self._caller.key, request.thread_of)
        return Filters(
            address=self._caller.address.lower(),
            from_=None if request.from_ is None else fold(request.from_),
            thread_root=root,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
