"""One wait's way along the arrivals after its position: reading on, asking for roots, deciding, moving the position."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from ledger.port import Ledger
from ledger.thread_roots import resolve_roots
from ledger.values import START, Arrival, CallerKey, Head, LedgerState
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
from mcp_front.waiting.positions import CUT_S, Position, Positions, Start
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


class Decided(msgspec.Struct, frozen=True, kw_only=True):
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
        self.skipped_counts: Counter[Reason] = Counter()
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
        self._go(start)

    def _go(self, start: Start) -> None:
        backlog = start.backlog
        self.position: Position = start.position
        """Where the wait stands."""
        self.entries: list[Arrival] = list(backlog.entries) if backlog else []
        """What follows the position, as far as it was read."""
        self.state: LedgerState | None = backlog.state if backlog else None
        self._start = start
        self._after = start.after
        self._since = start.position.head or Head(start.epoch)
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

    @property
    def epoch(self) -> str:
        """The life of the ledger that is read."""
        return self._since.epoch

    async def pursue(self, *, elapsed_s: float, closing: bool, given: frozenset[int], marks: bool) -> Decided:
        """Read what is new and decide. ``given`` is passed over silently; ``marks``: mark what was returned before.

        Raises `Moved`, what the ledger raises, and before the ledger what the host raises.
        """
        steps = 0
        while True:
            await self.read()
            view = self._view(elapsed_s, given, marks=marks)
            decision = decide(view, self.filters, settle_s=self.settle_s, closing=closing, max_batch=self.max_batch)
            if isinstance(decision, Return):
                return Decided(decision=decision, view=view)
            if decision.ask and await self._ask(decision.ask, view.now_s):
                continue
            self._advance(decision)
            if not self.before_ledger or self.entries:
                return Decided(decision=decision, view=view)
            steps += 1
            if steps >= STEPS_AT_ONCE or closing:
                return Decided(decision=decision, view=view, paused=True)
            self._go(await self._positions.after(self.position))

    def shorten(self, found: Decided, count: int) -> Return:
        """The answer with at most ``count`` messages."""
        return cut(found.view, self.filters, settle_s=self.settle_s, count=count)

    def _view(self, elapsed_s: float, given: frozenset[int], *, marks: bool) -> View:
        start = self._start
        returned = frozenset(entry.id for entry in self.entries if entry.returned) if marks else frozenset[int]()
        now_s = self.state.now_s if self.state else 0.0
        return View(
            entries=tuple(self.entries),
            after_id=self.position.id,
            now_s=now_s,
            began_s=now_s - elapsed_s + CUT_S,
            complete=self.complete,
            given=given | start.over if start.over else given,
            returned=returned | start.doubtful,
            asked=self._asked.keys(),
        )

    def _advance(self, decision: WaitUntil) -> None:
        """Move the position past what does not qualify."""
        progress = decision.progress
        self.position = self.position_after(progress.count)
        self.passed.update(entry.id for entry in self.entries[: progress.count])
        del self.entries[: progress.count]
        self.skipped.extend(progress.skipped)
        self.skipped_counts.update(reason for _, reason in progress.skipped)

    # Reading

    async def read(self) -> None:
        """Read what is new. Raises `Moved` or `StaleEpoch` where the ledger does not go on from what was read."""
        if self.before_ledger:
            return
        self._reread_rootless()
        while len(self.entries) < READ_AHEAD:
            slice_ = await self._ledger.read(self._caller, self._after, CHUNK, since=self._since)
            if self._after < slice_.state.low:
                raise Moved("trimmed")
            self.entries.extend(slice_.entries)
            self.state = slice_.state
            self._since = slice_.state.head
            if slice_.entries:
                self._after = slice_.entries[-1].at
            if len(slice_.entries) < CHUNK:
                self._more = False
                return
        self._more = True

    def _reread_rootless(self) -> None:
        """Entries whose root was unknown may have one by now: read on from the first of them."""
        for at, entry in enumerate(self.entries):
            if entry.at != START and not thread_of(entry):
                del self.entries[at:]
                self._after = entry.at.before()
                return

    # Positions behind what was read

    def position_after(self, count: int) -> Position:
        """The position behind the first ``count`` entries."""
        if not count:
            return self.position
        entry = self.entries[count - 1]
        backlog = self._start.backlog
        return Position(entry.id, self.epoch, entry.at, backlog.offsets.get(entry.id) if backlog else None)

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
        remembered = self._positions.roots
        roots = await resolve_roots(
            self._api, self._ledger, self._caller, chosen, last_try=not patient, known=remembered.of(self._caller)
        )
        known = {id_: root for id_, root in roots.items() if root}
        self._asked.update((entry.id, now_s) for entry in chosen)
        self.entries = [
            msgspec.structs.replace(entry, root=known[entry.id]) if not entry.root and entry.id in known else entry
            for entry in self.entries
        ]
        held = {entry.id for entry in chosen if entry.at != START}
        remembered.learn(self._caller, {id_: root for id_, root in known.items() if id_ not in held})
        recorded = {id_: root for id_, root in known.items() if id_ in held}
        if recorded:
            await self._ledger.set_roots(self._caller, recorded)
        return True

    def forget_questions(self) -> None:
        """Roots that were asked for some time ago may be asked for again."""
        now_s = self.state.now_s if self.state else 0.0
        self._asked = {id_: at_s for id_, at_s in self._asked.items() if at_s + ASK_AGAIN_S > now_s}
