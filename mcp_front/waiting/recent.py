"""What a ledger recorded lately, in its order, as far as this process read it.

Where a position has to be found by its id alone, without the ledger that handed it out, this tells what stood before it
there and need not come again: a draft that was sent late has a low id, and messages with higher ones stood before it.
"""

from __future__ import annotations

from array import array

from ledger.values import Slice

KEPT = 128
"""Ids kept per caller and ledger, 1 kB: the arrivals of some minutes. What is older comes again, marked."""


class _Run:
    """Ids in the order of their offsets, without holes; ``top_id`` is at least every id before them."""

    __slots__ = ("ids", "last_n", "top_id")

    def __init__(self) -> None:
        self.ids = array("q")
        self.top_id = 0
        self.last_n = 0

    def add(self, first_n: int, ids: list[int]) -> None:
        if first_n != self.last_n + 1:
            del self.ids[:]
            # Who knows what stood before the first: it may be late.
            self.top_id = ids[0] if first_n > 1 else 0
        self.ids.extend(ids)
        self.last_n = first_n + len(ids) - 1
        if len(self.ids) > KEPT:
            self.top_id = max(self.top_id, *self.ids[:-KEPT])
            del self.ids[:-KEPT]

    def before(self, message_id: int) -> frozenset[int]:
        found: list[int] = []
        top_id = self.top_id
        for id_ in self.ids[: self.ids.index(message_id)]:
            if id_ > top_id:
                found.append(id_)
                top_id = id_
        return frozenset(found)


class Recent:
    """The newest ids of the present ledger and, once that began anew, of the one before."""

    __slots__ = ("_epoch", "_former", "_run")

    def __init__(self) -> None:
        self._epoch = ""
        self._run = _Run()
        self._former = _Run()

    def saw(self, slice_: Slice) -> None:
        """The ledger was read. Seeds do not count: their order is an estimate."""
        state = slice_.state
        if state.epoch != self._epoch:
            self.end()
            self._epoch = state.epoch
        fresh = [entry for entry in slice_.entries if entry.n > max(self._run.last_n, state.seed_n)]
        if fresh:
            self._run.add(fresh[0].n, [entry.id for entry in fresh])

    def end(self) -> None:
        """The ledger lost its end or is gone. Positions that it handed out are still where they were."""
        if self._run.ids:
            self._former, self._run = self._run, _Run()

    def before(self, message_id: int) -> frozenset[int]:
        """What was recorded before a message, but for what was recorded late: below an id that had come already."""
        for run in (self._run, self._former):
            if message_id in run.ids:
                return run.before(message_id)
        return frozenset()
