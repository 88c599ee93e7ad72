"""One wait's way along the arrivals after its position: reading on, asking for roots, deciding, moving the position."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from ledger.port import Ledger
from ledger.thread_roots import resolve_roots
from ledger.values import Arrival, CallerKey, LedgerState
from mcp_front.waiting.backlog import Moved, WaitApi
from mcp_front.waiting.decide import (
    ROOT_PATIENCE_S,
    SHOWN,
    Decision,
    Filters,
    Return,
    View,
    WaitUntil,
    cut,
    decide,
    thread_of,
)
from mcp_front.waiting.positions import Position, Positions, Start
from mcp_front.waiting.request import Reason

CHUNK = 250
"""Entries per read: a quarter of a full ledger, one or two milliseconds of decoding."""
READ_AHEAD = 1000
"""Entries held beyond the first that is not passed over. A thread's later messages are looked for so far; what lies
behind comes with the next call."""
ASK_AT_ONCE = 20
"""Roots asked for in one go: what a page of the sent list and a few requests answer."""
ASK_AT_MOST = 60
"""Roots one wait asks for; the rest of a long unsorted backlog is left for the next call."""
ASK_AGAIN_S = 15.0
"""When a root that could not be found is asked for again: by then the feed may have found it, too."""
STEPS_AT_ONCE = 5
"""Stretches of the backlog read in one go where nothing qualifies. Each is one or two requests to the host."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, and what it was made from."""

    decision: Decision
    view: View
    paused: bool = False
    """There is more of the backlog to read, but not at once."""


class Cursor:
    """Reads the backlog, then the ledger, from a `Start` on. ``settle_s`` and ``filters`` are the call's."""

    def __init__(
        self,
        api: WaitApi,
        ledger: Ledger,
        caller: CallerKey,
        positions: Positions,
        start: Start,
        *,
        filters: Filters,
        settle_s: float,
        max_batch: int,
    ) -> None:
        self.skipped: deque[tuple[int, Reason]] = deque(maxlen=SHOWN)
        self.skipped_count = 0
        self.passed: set[int] = set()
        """Ids the position moved past since the start."""
        self.filters = filters
        self.settle_s = settle_s
        self.max_batch = max_batch
        self._api = api
        self._ledger = ledger
        self._caller = caller
        self._positions = positions
        self._asked: dict[int, float] = {}
        self._returned = frozenset[int]()
        self._marks_read: set[int] = set()
        self._go(start)

    def _go(self, start: Start) -> None:
        backlog = start.backlog
        self.position: Position = start.position
        """Where the wait stands."""
        self.entries: list[Arrival] = list(backlog.entries) if backlog else []
        """What follows the position, as far as it was read."""
        self.state: LedgerState | None = backlog.state if backlog else None
        self.epoch = start.epoch
        self._start = start
        self._read_n = start.after_n
        self._verify = start.verify
        self._more = False

    @property
    def before_ledger(self) -> bool:
        """Whether more of the backlog follows than was read."""
        return self._start.backlog is not None and not self._start.backlog.complete

    @property
    def complete(self) -> bool:
        """Whether everything that follows the position has been read."""
        return not (self._more or self.before_ledger)

    @property
    def at_rest(self) -> bool:
        """Whether everything has been read and decided."""
        return self.complete and not self.entries

    async def pursue(self, *, elapsed_s: float, closing: bool, given: frozenset[int], marks: bool) -> Found:
        """Read what is new and decide. ``given`` is passed over silently; ``marks``: look up what was returned before.

        Raises `Moved`, what the ledger raises, and before the ledger what the host raises.
        """
        steps = 0
        while True:
            await self.read()
            view = self._view(elapsed_s, given)
            decision = decide(view, self.filters, settle_s=self.settle_s, closing=closing, max_batch=self.max_batch)
            if isinstance(decision, Return):
                if marks and await self._read_marks(decision):
                    continue
                return Found(decision=decision, view=view)
            if decision.ask and await self._ask(decision.ask, view.now_s):
                continue
            self._advance(decision)
            if not self.before_ledger or self.entries:
                return Found(decision=decision, view=view)
            steps += 1
            if steps >= STEPS_AT_ONCE or closing:
                return Found(decision=decision, view=view, paused=True)
            self._go(await self._positions.after(self.position))

    def shorten(self, found: Found, count: int) -> Return:
        """The answer with at most ``count`` messages."""
        return cut(found.view, self.filters, settle_s=self.settle_s, count=count)

    def _view(self, elapsed_s: float, given: frozenset[int]) -> View:
        start = self._start
        now_s = self.state.now_s if self.state else 0.0
        return View(
            entries=tuple(self.entries),
            after_id=self.position.id,
            now_s=now_s,
            began_s=now_s - elapsed_s,
            complete=self.complete,
            given=given | start.over if start.over else given,
            returned=self._returned | start.doubtful if start.doubtful else self._returned,
            asked=self._asked.keys(),
        )

    def _advance(self, decision: WaitUntil) -> None:
        """Move the position past what does not qualify."""
        progress = decision.progress
        self.position = self.position_after(progress.count)
        self.passed.update(entry.id for entry in self.entries[: progress.count])
        del self.entries[: progress.count]
        self.skipped.extend(progress.skipped)
        self.skipped_count += len(progress.skipped)

    # Reading

    async def read(self) -> None:
        """Read what is new. Raises `Moved` or `StaleEpoch` where the ledger does not go on from what was read."""
        if self.before_ledger:
            return
        self._reread_rootless()
        while len(self.entries) < READ_AHEAD:
            after_n = self._read_n - 1 if self._verify else self._read_n
            slice_ = await self._ledger.read(self._caller, after_n, CHUNK, since=self.state)
            self.entries.extend(self._check(slice_.entries, slice_.state, after_n))
            self.state = slice_.state
            if len(slice_.entries) < CHUNK:
                self._more = False
                return
        self._more = True

    def _check(self, entries: tuple[Arrival, ...], state: LedgerState, after_n: int) -> tuple[Arrival, ...]:
        """The entries, if they are those that follow. Moves on behind them."""
        if self.epoch and state.epoch != self.epoch:
            raise Moved("epoch")
        if state.last_n < self._read_n:
            raise Moved("shorter")
        if entries and entries[0].n != after_n + 1:
            raise Moved("trimmed")
        if self._verify:
            if not entries or entries[0].id != self.position.id:
                raise Moved("epoch")
            self._verify = False
            self.position = Position(self.position.id, self._read_n, state.epoch)
            entries = entries[1:]
        self.epoch = state.epoch
        self._read_n += len(entries)
        return entries

    def _reread_rootless(self) -> None:
        """Entries whose root was unknown may have one by now: read on from the first of them."""
        for at, entry in enumerate(self.entries):
            if entry.n and not thread_of(entry):
                del self.entries[at:]
                self._read_n = entry.n - 1
                return

    async def _read_marks(self, decision: Return) -> bool:
        """Look up which messages of an answer were returned before; whether that is news."""
        wanted = [entry.id for entry in (*decision.batch, *decision.pending) if entry.id not in self._marks_read]
        if not wanted:
            return False
        found = await self._ledger.returned(self._caller, wanted)
        self._marks_read.update(wanted)
        self._returned |= found
        return bool(found)

    # Positions behind what was read

    def position_after(self, count: int) -> Position:
        """The position behind the first ``count`` entries."""
        if not count:
            return self.position
        entry = self.entries[count - 1]
        if entry.n:
            return Position(entry.id, entry.n, self.epoch)
        backlog = self._start.backlog
        return Position(entry.id, 0, self.epoch, backlog.offsets.get(entry.id) if backlog else None)

    def met_again_from(self, count: int) -> frozenset[int]:
        """Ids that lie before the start and are met again from the position behind the first ``count`` entries."""
        start = self._start
        ids = frozenset(entry.id for entry in self.entries[count:] if entry.id in start.over)
        if count and start.backlog is not None and self.entries[count - 1].id in start.backlog.early:
            return ids | start.backlog.beside | start.over
        return ids

    def perhaps_returned_from(self, count: int) -> frozenset[int]:
        """Ids behind the first ``count`` entries that are met again and may have been returned before."""
        doubtful = self._start.doubtful
        return self.met_again_from(count).union(entry.id for entry in self.entries[count:] if entry.id in doubtful)

    # Roots

    async def _ask(self, entries: Sequence[Arrival], now_s: float) -> bool:
        """Ask for roots; whether something may be decided differently now."""
        room = ASK_AT_MOST - len(self._asked)
        chosen = entries[: max(min(room, ASK_AT_ONCE), 0)]
        if not chosen:
            # The rest counts as asked: unknown threads are returned one by one, or held back by a thread filter.
            self._asked.update((entry.id, now_s) for entry in entries)
            return True
        patient = all(entry.arrived_at_s + ROOT_PATIENCE_S > now_s for entry in chosen)
        roots = await resolve_roots(self._api, self._ledger, self._caller, chosen, last_try=not patient)
        known = {id_: root for id_, root in roots.items() if root}
        self._asked.update((entry.id, now_s) for entry in chosen)
        self.entries = [
            msgspec.structs.replace(entry, root=known[entry.id]) if not entry.root and entry.id in known else entry
            for entry in self.entries
        ]
        recorded = {entry.id: known[entry.id] for entry in chosen if entry.n and entry.id in known}
        if recorded:
            await self._ledger.set_roots(self._caller, recorded)
        return True

    def forget_questions(self) -> None:
        """Roots that were asked for some time ago may be asked for again."""
        now_s = self.state.now_s if self.state else 0.0
        self._asked = {id_: at_s for id_, at_s in self._asked.items() if at_s + ASK_AGAIN_S > now_s}
