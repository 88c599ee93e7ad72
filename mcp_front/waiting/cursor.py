"""From a start to a decision: reading on, asking for roots, moving the position past what does not qualify."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from ledger.port import Ledger
from ledger.thread_roots import resolve_roots
from ledger.values import Arrival, CallerKey, Slice
from mcp_front.waiting.backlog import WaitApi
from mcp_front.waiting.decide import ROOT_PATIENCE_S, SHOWN, Decision, Filters, Return, View, WaitUntil, cut, decide
from mcp_front.waiting.positions import Position, Positions, Start
from mcp_front.waiting.reader import Reader
from mcp_front.waiting.request import Reason

ASK_AT_ONCE = 20
"""Roots asked for in one go: what a page of the sent list and a few requests answer."""
ASK_AT_MOST = 60
"""Roots one wait asks for; the rest of a long unsorted backlog is left for the next call."""
ASK_AGAIN_S = 15.0
"""When a root that could not be found is asked for again: by then the feed may have found it, too."""
STEPS_AT_ONCE = 5
"""Stretches of history read in one go where nothing qualifies. Each is one or two requests to the host."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, and what it was made from."""

    decision: Decision
    view: View
    paused: bool = False
    """There is more history to read, but not at once."""


class Pursuit:
    """One wait's way along the arrivals. ``settle_s`` and ``filters`` are the call's."""

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
        saw: Callable[[Slice], None] | None = None,
    ) -> None:
        self.reader = Reader(ledger, caller, start, saw=saw)
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
        self._saw = saw
        self._asked: dict[int, float] = {}
        self._returned = frozenset[int]()
        self._marks_read: set[int] = set()

    @property
    def position(self) -> Position:
        """Where the wait stands."""
        return self.reader.position

    async def pursue(self, *, elapsed_s: float, closing: bool, given: frozenset[int], marks: bool) -> Found:
        """Read what is new and decide. ``given`` is passed over silently; ``marks``: look up what was returned before.

        Raises `Moved`, what the ledger raises, and before the ledger what the host raises.
        """
        steps = 0
        while True:
            await self.reader.read()
            view = self._view(elapsed_s, given)
            decision = decide(view, self.filters, settle_s=self.settle_s, closing=closing, max_batch=self.max_batch)
            if isinstance(decision, Return):
                if marks and await self._read_marks(decision):
                    continue
                return Found(decision=decision, view=view)
            if decision.ask and await self._ask(decision.ask, view.now_s):
                continue
            self._advance(decision)
            if not self.reader.before_ledger or self.reader.entries:
                return Found(decision=decision, view=view)
            steps += 1
            if steps >= STEPS_AT_ONCE or closing:
                return Found(decision=decision, view=view, paused=True)
            start = await self._positions.after(self.position)
            self.reader = Reader(self._ledger, self._caller, start, saw=self._saw)

    def shorten(self, found: Found, count: int) -> Return:
        """The answer with at most ``count`` messages."""
        return cut(found.view, self.filters, settle_s=self.settle_s, count=count)

    def _view(self, elapsed_s: float, given: frozenset[int]) -> View:
        start = self.reader.start
        now_s = self.reader.state.now_s if self.reader.state else 0.0
        return View(
            entries=tuple(self.reader.entries),
            after_id=self.position.id,
            now_s=now_s,
            began_s=now_s - elapsed_s,
            complete=self.reader.complete,
            given=given | start.over if start.over else given,
            returned=self._returned | start.doubtful if start.doubtful else self._returned,
            asked=self._asked.keys(),
        )

    def _advance(self, decision: WaitUntil) -> None:
        passed = self.reader.advance(decision.progress)
        self.passed.update(entry.id for entry in passed)
        self.skipped.extend(decision.progress.skipped)
        self.skipped_count += len(decision.progress.skipped)

    async def _read_marks(self, decision: Return) -> bool:
        """Look up which messages of an answer were returned before; whether that is news."""
        wanted = [entry.id for entry in (*decision.batch, *decision.pending) if entry.id not in self._marks_read]
        if not wanted:
            return False
        self._marks_read.update(wanted)
        found = await self._ledger.returned(self._caller, wanted)
        self._returned |= found
        return bool(found)

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
        self.reader.set_roots(known)
        recorded = {entry.id: known[entry.id] for entry in chosen if entry.n and entry.id in known}
        if recorded:
            await self._ledger.set_roots(self._caller, recorded)
        return True

    def forget_questions(self) -> None:
        """Roots that were asked for some time ago may be asked for again."""
        now_s = self.reader.state.now_s if self.reader.state else 0.0
        self._asked = {id_: at_s for id_, at_s in self._asked.items() if at_s + ASK_AGAIN_S > now_s}
