"""What all waits of one caller in this process share: the activation, the word on the feed, and the looks at the host.

However many calls of a caller are held, the host is asked once, and the store is asked for the feed once in a while.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from fmsg.errors import FmsgError
from ledger.catch_up import CaughtUp
from ledger.deadlines import in_time
from ledger.port import LedgerError, LedgerUnavailable, NoLedger, Store
from ledger.values import CallerKey
from mcp_front.caller import Caller
from mcp_front.waiting.positions import Positions
from mcp_front.waiting.recent import Recent
from mcp_front.waiting.request import Transport, WaitSettings
from mcp_front.waiting.resets import LOOK_BACK_S, Unrest, load_unrest, save_unrest
from mcp_front.waiting.trouble import PASSING, retry_after_s

IDLE_DESKS = 10_000
"""Desks kept without a wait, so that a caller that calls again at once is not reported active again. 1 kB each."""
MAX_OWED_MARKS = 500
"""Returned messages of one caller that a store which is away is told of later; more come again unmarked, if at all."""
CREDENTIAL_RETRY_S = 5.0
"""How soon a feed that asks for a credential is given one, though its caller was reported active a moment ago."""


class _Turn:
    """One asks the store at a time, for all who queue here; they share its failure, too.

    Else each of thousands would find out in turn, for as long as a frozen server holds a command, that it is away.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Queue, then ask. Raises `LedgerUnavailable` where somebody has failed to meanwhile."""
        failures = self._failures
        async with in_time(), self._lock:
            if self._failures != failures:
                raise LedgerUnavailable("The store gave no answer a moment ago.")
            try:
                yield
            except LedgerUnavailable:
                self._failures += 1
                raise


class Members:
    """The live daemons, asked for once in a while by whoever needs them."""

    def __init__(self, store: Store, *, cache_s: float, absent_s: float) -> None:
        self._store = store
        self._cache_s = cache_s
        self._absent_s = absent_s
        self._ids = frozenset[str]()
        self._read_at = float("-inf")
        self._turn = _Turn()

    async def alive(self, daemon: str) -> bool:
        """Whether a daemon's heartbeat was there a moment ago. Raises what the store raises."""
        if daemon in self._ids and asyncio.get_running_loop().time() - self._read_at < self._cache_s:
            return True
        async with self._turn.take():
            now = asyncio.get_running_loop().time()
            if now - self._read_at >= (self._cache_s if daemon in self._ids else self._absent_s):
                self._ids = frozenset(member.id for member in await self._store.fleet.members())
                self._read_at = now
        return daemon in self._ids


class Desk:
    """One caller's shared state on one store. Times are the event loop's."""

    def __init__(self, caller: CallerKey, store: Store, members: Members, settings: WaitSettings, rng: random.Random):
        self.epoch = ""
        """The life of the caller's ledger, as last read."""
        self.unrest: Unrest | None = None
        """The last change of ledgers this process saw."""
        self.unrest_is_stored = True
        """Whether the other replicas can know of it."""
        self._away_since_s = float("inf")
        self._owed_marks: dict[int, None] = {}
        self.recent = Recent()
        """What this process read of the ledger."""
        self.trouble: FmsgError | None = None
        """Why the last look at the host failed; None after one that did not."""
        self._caller = caller
        self._store = store
        self._members = members
        self._settings = settings
        self._rng = rng
        self._wakes: list[Callable[[], None]] = []
        self._activated_at = float("-inf")
        self._needs_credential = False
        self._transport: Transport = "poll"
        self._transport_at = float("-inf")
        self._turn = _Turn()
        self._look: asyncio.Task[CaughtUp] | None = None
        self._look_at = float("-inf")
        self._failures = 0

    @property
    def idle(self) -> bool:
        """Whether no wait sits here."""
        return not self._wakes

    @property
    def next_look_at(self) -> float:
        """When the host is to be asked again while no feed is live; never, while it is being asked."""
        return float("inf") if self._look is not None else self._look_at

    def join(self, wake: Callable[[], None]) -> None:
        """A wait sits down; ``wake`` is called after each look at the host."""
        self._wakes.append(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        """A wait is over. The last one ends the look that is going on."""
        self._wakes.remove(wake)
        if not self._wakes and self._look is not None:
            # Whoever sits down before it has ended must not end with it: a renewed wait comes at once.
            look, self._look = self._look, None
            look.cancel()

    def away_since(self, since_s: float) -> None:
        """The store does not answer, and positions are handed out without it. POSIX seconds."""
        self._away_since_s = min(self._away_since_s, since_s)

    def saw_epoch(self, epoch: str, *, now_s: float) -> None:
        """The life of the ledger that was read from; another than before is a change. ``now_s``: POSIX seconds."""
        if self.epoch and epoch != self.epoch:
            self.changed(now_s=now_s)
        self.epoch = epoch
        self._away_since_s = float("inf")

    def changed(self, *, now_s: float) -> None:
        """The ledger began anew or lost its end, some time before ``now_s``; while it did not answer, if it did not."""
        self.recent.end()
        # What was emptied may have forgotten that the caller is active, too.
        self._activated_at = float("-inf")
        self.unrest = Unrest(min(now_s, self._away_since_s) - LOOK_BACK_S, now_s).joined(self.unrest)
        self.unrest_is_stored = False

    async def known_unrest(self, *, now_s: float) -> Unrest | None:
        """The last change that any replica saw, as of ``now_s`` (POSIX). Raises what the store raises."""
        stored = await load_unrest(self._store.documents, self._caller, now_s=now_s)
        return stored if self.unrest is None else self.unrest.joined(stored)

    async def store_unrest(self) -> None:
        """Tell the other replicas. Raises what the store raises."""
        if self.unrest is not None and not self.unrest_is_stored:
            await save_unrest(self._store.documents, self._caller, self.unrest)
            self.unrest_is_stored = True

    def owe_marks(self, message_ids: Iterable[int]) -> None:
        """Messages were returned while the store could not be told so."""
        self._owed_marks.update(dict.fromkeys(message_ids))
        for gone in list(self._owed_marks)[:-MAX_OWED_MARKS]:
            del self._owed_marks[gone]

    async def pay_marks(self) -> None:
        """Tell the store now, so that they are marked should they come again. Raises what the store raises."""
        if self._owed_marks:
            owed, self._owed_marks = self._owed_marks, {}
            try:
                with suppress(NoLedger):
                    await self._store.ledger.note_returned(self._caller, above=owed, position=0)
            except BaseException:
                self.owe_marks(owed)
                raise

    @property
    def next_activation_at(self) -> float:
        """When the caller is to be reported active again."""
        if self._needs_credential:
            return self._activated_at + CREDENTIAL_RETRY_S
        settled = self._transport == "websocket"
        return self._activated_at + (self._settings.activate_s if settled else self._settings.activate_unsettled_s)

    async def activate(self, caller: Caller) -> None:
        """Say now and then that the caller is active and leave its token for the feed. Raises as the store does."""
        if self._now() < self.next_activation_at:
            return
        before, self._activated_at = self._activated_at, self._now()
        try:
            token = await caller.token()
            await self._store.activations.activate(
                self._caller,
                address=caller.address,
                api_url=caller.api_url,
                token=token.value,
                token_expires_at_s=token.expires_at_s,
            )
        except BaseException:
            self._activated_at = before
            raise

    def doubt(self) -> None:
        """Do not believe the last word on the feed any more."""
        self._transport_at = float("-inf")

    async def transport(self) -> Transport:
        """Whether a live feed records this caller's arrivals. Raises what the store raises."""
        if self._knows_transport():
            return self._transport
        async with self._turn.take():
            if not self._knows_transport():
                report = await self._store.activations.feed(self._caller)
                live = report is not None and report.live and await self._members.alive(report.daemon)
                self._needs_credential = report is not None and report.needs_credential
                self._transport = "websocket" if live else "poll"
                self._transport_at = self._now()
        return self._transport

    def _knows_transport(self) -> bool:
        settings = self._settings
        believed_s = settings.feed_cache_s if self._transport == "websocket" else settings.no_feed_cache_s
        return self._now() - self._transport_at < believed_s

    async def look(self, positions: Positions) -> CaughtUp:
        """Look at the host's list now, with whoever else wants to. Raises what the host and the store raise."""
        others = self._look is not None
        try:
            return await asyncio.shield(self._looking(positions))
        except FmsgError as error:
            if not others or isinstance(error, PASSING):
                raise
        # It was the key of another of this caller's waits that the host refused.
        return await self.look(positions)

    def poll(self, positions: Positions, refused: Callable[[Exception], None]) -> None:
        """Look at the host's list if it is time to; ``refused`` hears of an answer that this caller's key gets."""
        if self._look is not None or self._now() < self._look_at:
            return

        def ended(task: asyncio.Task[CaughtUp]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception) and not isinstance(error, (*PASSING, LedgerError)):
                refused(error)

        self._looking(positions).add_done_callback(ended)

    def _looking(self, positions: Positions) -> asyncio.Task[CaughtUp]:
        if self._look is None or self._look.done():
            # Ended by `leave` of the last wait that sits here.
            self._look = asyncio.get_running_loop().create_task(self._run(positions))
            self._look.add_done_callback(self._looked)
        return self._look

    def _looked(self, task: asyncio.Task[CaughtUp]) -> None:
        if self._look is task:
            self._look = None
        if not task.cancelled():
            task.exception()  # whoever wanted the result may be gone: an error nobody asks for is no error of the loop
        for wake in tuple(self._wakes):
            wake()

    async def _run(self, positions: Positions) -> CaughtUp:
        try:
            caught_up = await positions.look()
        except PASSING as error:
            self.trouble = error
            self._failures += 1
            self._look_at = self._now() + retry_after_s(
                error, self._failures, longest_s=self._settings.poll_max_s, rng=self._rng
            )
            raise
        except Exception:
            self._look_at = self._now() + self._settings.poll_s
            raise
        else:
            self.trouble = None
            self._failures = 0
            self._look_at = self._now() + self._settings.poll_s * self._rng.uniform(0.8, 1.2)
            return caught_up

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class Desks:
    """The desks of one store."""

    def __init__(self, store: Store, settings: WaitSettings, rng: random.Random) -> None:
        self._store = store
        self._settings = settings
        self._rng = rng
        self._members = Members(store, cache_s=settings.feed_cache_s, absent_s=settings.no_feed_cache_s)
        self._desks: OrderedDict[CallerKey, Desk] = OrderedDict()

    def at(self, caller: CallerKey) -> Desk:
        """The caller's desk."""
        desk = self._desks.get(caller)
        if desk is None:
            desk = self._desks[caller] = Desk(caller, self._store, self._members, self._settings, self._rng)
        self._desks.move_to_end(caller)
        self._tidy()
        return desk

    def _tidy(self) -> None:
        """Drop the desk that was not used for longest, if there are too many; a busy one counts as used."""
        if len(self._desks) > IDLE_DESKS:
            oldest = next(iter(self._desks))
            if self._desks[oldest].idle:
                del self._desks[oldest]
            else:
                self._desks.move_to_end(oldest)
