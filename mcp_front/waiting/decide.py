"""What a wait returns, decided from plain values: no clock, no store, no host.

The rules, over the arrivals after a position, in order:

- *Passed over*: the caller's own messages, reactions, ``no_reply`` messages, senders other than ``from``, threads other
  than ``thread_of``; and, silently, what a subscription was given before.
- *Held back*: a message whose thread is not known yet, while that matters. It is neither returned nor passed, and its
  root is asked for. After a while without an answer it is returned alone rather than lost.
- The first other message *opens* the batch. The batch is what qualifies of its thread and arrived within the settle
  window, counted from the opener's arrival by the ledger's clock, or was there when the call began.
- What was returned before, above a position, is met again and returned again, marked; but behind an opener of that kind
  only what moves the position: the rest was returned before and is met in its turn.
- It is returned once there is nothing to wait for any more: the window is over, the batch is full, or the call ends.
- The *position* is the last arrival below which everything was passed over or returned. What qualifies and stays behind
  (other threads, what is beyond a full batch) is *pending* and comes with the next calls.

Two calls with the same position, one after the other or on two replicas, so get the same first batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from fmsg.address import fold
from ledger.values import Arrival
from mcp_front.waiting.request import Reason

MAX_BATCH = 100
"""Messages in one result, where the settings name no other number."""
SHOWN = 100
"""Pending and passed-over messages named in a result; the rest is only counted."""
ROOT_PATIENCE_S = 120.0
"""How long a message is held back whose thread cannot be found. Feeds and workers try again meanwhile; held for ever
it would stop the position, passed over it would be lost."""
CLOCK_STEP = 2.0
"""A window that seems to last longer than so many settle times is no window: the ledger's clock was set back."""

CUT_BY_TIME = "time limit cut the settle window"


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Whose wait it is and what it is for."""

    address: str
    """The caller's, in lower case and never folded wider: what another mailbox sent is not the caller's own."""
    from_: str | None = None
    """The only sender, case-folded (`fmsg.address.fold`)."""
    thread_root: int | None = None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a decision is made.

    ``entries`` are the arrivals after the position ``after_id``, without holes; ``complete`` is False where more follow
    than were read. ``now_s`` and ``began_s`` are the ledger's clock now and when the call began. ``given``: ids that
    are silently passed over; ``returned``: ids that an earlier call returned above its position; ``asked``: ids whose
    roots the host was asked for.
    """

    entries: Sequence[Arrival]
    after_id: int
    now_s: float
    began_s: float
    complete: bool = True
    given: Collection[int] = frozenset()
    returned: Collection[int] = frozenset()
    asked: Collection[int] = frozenset()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a position moves: past the first ``count`` entries, to ``after_id``; what it passed over, and why."""

    count: int
    after_id: int
    skipped: tuple[tuple[int, Reason], ...] = ()


class Return(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with this batch. ``above`` are those of its ids that lie above the position."""

    batch: tuple[Arrival, ...]
    progress: Progress
    thread_root: int | None
    reply_target: int | None
    above: tuple[int, ...] = ()
    pending: tuple[Arrival, ...] = ()
    pending_count: int = 0
    due_s: float = 0.0
    """When there was nothing to wait for any more, by the ledger's clock."""
    note: str | None = None


class WaitUntil(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for more arrivals, until ``until_s`` (ledger's clock) at the latest where that is given.

    ``ask``: messages whose roots have to be asked for before anything else can be decided.
    """

    progress: Progress
    until_s: float | None = None
    ask: tuple[Arrival, ...] = ()


Decision = Return | WaitUntil
Verdict = Reason | Literal["given", "held", "qualifies"]


def decide(
    view: View, filters: Filters, *, settle_s: float, closing: bool = False, max_batch: int = MAX_BATCH
) -> Decision:
    """What to do now. ``closing``: the call ends, so whatever is there is returned."""
    scan = _Scan(view, filters, settle_s=settle_s, max_batch=max_batch)
    scan.run()
    if scan.ask:
        return WaitUntil(progress=scan.progress(()), until_s=view.now_s, ask=tuple(scan.ask))
    if scan.opener is None:
        return WaitUntil(progress=scan.progress(()))
    window_end_s = scan.opener.arrived_at_s + settle_s
    left_s = window_end_s - view.now_s
    full = len(scan.batch) >= max_batch
    open_ = not full and view.complete and 0 < left_s <= CLOCK_STEP * settle_s
    if open_ and not closing:
        return WaitUntil(progress=scan.progress(()), until_s=window_end_s)
    due_s = scan.batch[-1].arrived_at_s if full else max(window_end_s, view.began_s)
    return scan.answer(due_s=due_s, note=CUT_BY_TIME if open_ else None)


def cut(view: View, filters: Filters, *, settle_s: float, count: int) -> Return:
    """The answer again with at most ``count`` messages; the position is held back accordingly."""
    decision = decide(view, filters, settle_s=settle_s, closing=True, max_batch=max(count, 1))
    if not isinstance(decision, Return):
        raise ValueError("only an answer can be cut: decide first")
    return decision


class _Scan:
    """One pass over the entries."""

    def __init__(self, view: View, filters: Filters, *, settle_s: float, max_batch: int) -> None:
        self.opener: Arrival | None = None
        self.batch: list[Arrival] = []
        self.ask: list[Arrival] = []
        self._pending: list[Arrival] = []
        self._pending_count = 0
        self._verdicts: list[Verdict] = []
        self._held = False
        self._stays = False
        """Whether something before stays behind, so that the position cannot move past what follows."""
        self._cutoff_s = 0.0
        self._view = view
        self._filters = filters
        self._settle_s = settle_s
        self._max_batch = max_batch

    def run(self) -> None:
        for entry in self._view.entries:
            verdict = self._verdict(entry)
            self._verdicts.append(verdict)
            if verdict == "held":
                self._held = self._stays = True
                if not self._is_asked(entry):
                    self.ask.append(entry)
            elif verdict == "qualifies":
                self._take(entry)

    def _take(self, entry: Arrival) -> None:
        if self.opener is None and not self._waits_behind(entry):
            self.opener = entry
            self._cutoff_s = max(entry.arrived_at_s + self._settle_s, self._view.began_s)
        if self._belongs(entry):
            self.batch.append(entry)
            return
        self._stays = True
        if entry.id not in self._view.returned:
            self._pending_count += 1
            if len(self._pending) < SHOWN:
                self._pending.append(entry)

    def _waits_behind(self, entry: Arrival) -> bool:
        """Behind a held-back message the position stands still: what was returned must not be returned for ever."""
        return self._held and entry.id in self._view.returned

    def _belongs(self, entry: Arrival) -> bool:
        if self.opener is None or len(self.batch) >= self._max_batch:
            return False
        if entry.id == self.opener.id:
            return True
        returned = self._view.returned
        if self._stays and entry.id in returned and self.opener.id in returned:
            return False
        return thread_of(entry) == thread_of(self.opener) != 0 and entry.arrived_at_s <= self._cutoff_s

    def _verdict(self, entry: Arrival) -> Verdict:
        filters = self._filters
        if entry.id in self._view.given:
            return "given"
        if entry.from_.lower() == filters.address:
            return "own"
        if entry.reaction:
            return "reaction"
        if entry.no_reply:
            return "no_reply"
        if filters.from_ is not None and fold(entry.from_) != filters.from_:
            return "from_mismatch"
        root = thread_of(entry)
        if root == 0 and self._is_held(entry):
            return "held"
        if filters.thread_root is not None and root not in (0, filters.thread_root):
            return "other_thread"
        return "qualifies"

    def _is_held(self, entry: Arrival) -> bool:
        if not self._is_asked(entry):
            return True
        if self._filters.thread_root is None:
            return False
        return entry.arrived_at_s + ROOT_PATIENCE_S > self._view.now_s

    def _is_asked(self, entry: Arrival) -> bool:
        return entry.id in self._view.asked

    def progress(self, batch: Collection[int]) -> Progress:
        """How far the position moves when the batch is returned."""
        count = 0
        after_id = self._view.after_id
        skipped: list[tuple[int, Reason]] = []
        for entry, verdict in zip(self._view.entries, self._verdicts, strict=True):
            if verdict == "held" or (verdict == "qualifies" and entry.id not in batch):
                break
            if verdict != "qualifies" and verdict != "given":
                skipped.append((entry.id, verdict))
            count += 1
            after_id = entry.id
        return Progress(count=count, after_id=after_id, skipped=tuple(skipped))

    def answer(self, *, due_s: float, note: str | None) -> Return:
        """The batch as an answer."""
        ids = frozenset(entry.id for entry in self.batch)
        progress = self.progress(ids)
        below = frozenset(entry.id for entry in self._view.entries[: progress.count])
        open_ended = [entry.id for entry in self.batch if not entry.terminal]
        return Return(
            batch=tuple(self.batch),
            progress=progress,
            thread_root=thread_of(self.batch[0]) or None,
            reply_target=open_ended[-1] if open_ended else None,
            above=tuple(entry.id for entry in self.batch if entry.id not in below),
            pending=tuple(self._pending),
            pending_count=self._pending_count,
            due_s=due_s,
            note=note,
        )


def thread_of(entry: Arrival) -> int:
    """The root of the entry's thread, 0 while unknown. What replies to nothing is its own root."""
    return entry.root or (entry.id if entry.pid is None else 0)
