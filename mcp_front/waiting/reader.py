"""The arrivals after a position, as far as one wait has read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ledger.port import Ledger
from ledger.values import Arrival, CallerKey, LedgerState, Slice
from mcp_front.waiting.backlog import Moved, Past
from mcp_front.waiting.decide import Progress, thread_of
from mcp_front.waiting.positions import Position, Start

CHUNK = 250
"""Entries per read: a quarter of a full ledger, one or two milliseconds of decoding."""
READ_AHEAD = 1000
"""Entries held beyond the first that is not passed over. A thread's later messages are looked for so far; what lies
behind comes with the next call."""


class Reader:
    """Reads a ledger from a `Start` on, and drops what the position has moved past."""

    def __init__(
        self, ledger: Ledger, caller: CallerKey, start: Start, *, saw: Callable[[Slice], None] | None = None
    ) -> None:
        """``saw`` is told of everything that is read of the ledger."""
        self.entries: list[Arrival] = list(start.past.entries) if start.past else []
        self.position: Position = start.position
        self.start = start
        self.state: LedgerState | None = start.past.state if start.past else None
        self.epoch = start.epoch
        self._ledger = ledger
        self._caller = caller
        self._read_n = start.after_n
        self._verify = start.verify
        self._saw = saw
        self._more = False

    @property
    def past(self) -> Past | None:
        """The part before the ledger, if there was any."""
        return self.start.past

    @property
    def before_ledger(self) -> bool:
        """Whether more follows before the ledger does, so that this reader ends with what it holds."""
        return self.past is not None and not self.past.complete

    @property
    def complete(self) -> bool:
        """Whether everything that follows the position has been read."""
        return not (self._more or self.before_ledger)

    @property
    def at_rest(self) -> bool:
        """Whether everything has been read and decided."""
        return self.complete and not self.entries

    async def read(self) -> None:
        """Read what is new. Raises `Moved` or `StaleEpoch` where the ledger does not go on from what was read."""
        if self.before_ledger:
            return
        self._reread_rootless()
        while len(self.entries) < READ_AHEAD:
            after_n = self._read_n - 1 if self._verify else self._read_n
            slice_ = await self._ledger.read(self._caller, after_n, CHUNK, since=self.state)
            entries = self._check(slice_.entries, slice_.state, after_n)
            self.state = slice_.state
            if self._saw is not None:
                self._saw(slice_)
            self.entries.extend(entries)
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

    def set_roots(self, roots: Mapping[int, int]) -> None:
        """Fill in roots that were found."""
        self.entries = [
            msgspec.structs.replace(entry, root=roots[entry.id]) if not entry.root and roots.get(entry.id) else entry
            for entry in self.entries
        ]

    def position_after(self, count: int) -> Position:
        """The position behind the first ``count`` entries."""
        if not count:
            return self.position
        entry = self.entries[count - 1]
        if entry.n:
            return Position(entry.id, entry.n, self.epoch)
        return Position(entry.id, 0, self.epoch, self.past.offsets.get(entry.id) if self.past else None)

    def met_again_from(self, count: int) -> frozenset[int]:
        """Ids that lie before the start and are met again from the position behind the first ``count`` entries."""
        ids = frozenset(entry.id for entry in self.entries[count:] if entry.id in self.start.over)
        if count and self.past is not None and self.entries[count - 1].id in self.past.early:
            return ids | self.past.beside | self.start.over
        return ids

    def doubtful_from(self, count: int) -> frozenset[int]:
        """Ids behind the first ``count`` entries that may have been returned before."""
        return frozenset(entry.id for entry in self.entries[count:] if entry.id in self.start.doubtful)

    def advance(self, progress: Progress) -> tuple[Arrival, ...]:
        """Move the position; returns what it moved past."""
        self.position = self.position_after(progress.count)
        passed = tuple(self.entries[: progress.count])
        del self.entries[: progress.count]
        return passed
