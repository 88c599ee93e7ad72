"""One caller's ledger in memory: its entries, what it forgets, and what is old news to it.

What counts as news. A message the host lists and the ledger does not hold was there before, or was forgotten, or has
arrived; only the last must be recorded. Three things tell:

- ``old``: ids up to one and times up to one are old news. Begins as the baseline the ledger began with.
- ``complete_id``: when this mark passed an id, everything available with that id was in the ledger or old news. Pushes
  are recorded while older messages are still missing, so what is above the mark proves nothing of what lies below it.
- ``gone``: what was forgotten and may not move ``old`` yet, by id with its time. An entry above the mark may not, since
  missing messages would become old news with it. Nor may one whose time is ahead of the clock (its sender's runs
  wrong): messages that become available from now on would be old news before they are sent.

So ``old`` passes only what was compared, and its time never passes the arrival of the oldest entry held; but for floods
of more than ``max_gone``, where the ledger gives up on what lies below.
"""

from __future__ import annotations

from collections import deque

from fmsg.reference import MAX_ID
from ledger.limits import MAX_LATECOMERS
from ledger.redis.entry import micros
from ledger.values import Arrival, Baseline, Latecomer, LedgerState, Seen, Source


class Book:
    """See `ledger.port.Ledger` for what its operations promise. `ledger.redis.lua_book` says the same in Lua."""

    __slots__ = (
        "baseline",
        "began",
        "complete_id",
        "entries",
        "epoch",
        "gone",
        "last_n",
        "latecomers",
        "old",
        "places",
        "seed_n",
        "top_id",
        "touched_s",
    )

    def __init__(self, epoch: str, baseline: Baseline) -> None:
        self.epoch = epoch
        self.began = self.baseline = self.old = baseline
        self.top_id = self.complete_id = 0
        self.latecomers: deque[Latecomer] = deque(maxlen=MAX_LATECOMERS)
        self.entries: deque[Arrival] = deque()
        self.places: dict[int, int] = {}
        self.gone: dict[int, float] = {}
        self.last_n = 0
        self.seed_n = 0
        self.touched_s = 0.0

    @property
    def first_n(self) -> int:
        """The offset of the oldest entry held."""
        return self.last_n - len(self.entries) + 1

    def state(self, now_s: float) -> LedgerState:
        """The ledger at a moment of its clock."""
        return LedgerState(
            epoch=self.epoch,
            first_n=self.first_n,
            last_n=self.last_n,
            seed_n=self.seed_n,
            baseline=self.baseline,
            now_s=now_s,
            complete_id=self.complete_id,
            tip=micros(self.entries[-1].arrived_at_s) if self.entries else 0,
        )

    def continues(self, before: LedgerState) -> bool:
        """Whether this is what became of a ledger that stood so. What was trimmed since cannot tell any more."""
        if before.epoch != self.epoch or before.last_n > self.last_n:
            return False
        index = before.last_n - self.first_n
        return index < 0 or micros(self.entries[index].arrived_at_s) == before.tip

    def knows(self, message_id: int) -> bool:
        """Whether the message is held, or was and is remembered."""
        return message_id in self.places or message_id in self.gone

    def stands(self, message_id: int, n: int) -> bool:
        """Whether the message has the offset, as far as that can be told: what was trimmed had it."""
        return n < self.first_n or self.places.get(message_id) == n

    def is_news(self, seen: Seen) -> bool:
        """Whether a message that the ledger does not know has arrived, rather than been there before."""
        return seen.id > self.old.newest_id or seen.sent_at_s > self.old.time_s

    def add(self, seen: Seen, *, arrived_at_s: float, source: Source) -> int:
        """Add an entry; its offset."""
        self.last_n += 1
        fields = {name: getattr(seen, name) for name in Seen.__struct_fields__}
        self.entries.append(Arrival(n=self.last_n, arrived_at_s=arrived_at_s, source=source, **fields))
        self.places[seen.id] = self.last_n
        if seen.id < self.top_id:
            self.latecomers.append(Latecomer(n=self.last_n, id=seen.id, top_id=self.top_id))
        self.top_id = max(self.top_id, seen.id)
        return self.last_n

    def begun(self) -> None:
        """The seeds are added: nothing up to the newest of them, or of what was there, is missing."""
        self.seed_n = self.last_n
        self.top_id = self.complete_id = max(self.top_id, self.began.newest_id)

    def compared(self, complete_id: int, max_gone: int) -> None:
        """Everything up to an id was compared with the host's list and added."""
        if complete_id > self.complete_id:
            self.complete_id = complete_id
            self._settle(max_gone)

    def trim(self, max_entries: int, max_gone: int) -> None:
        """Forget what is too old. The baseline moves past it at once, ``old`` where that loses nothing."""
        while len(self.entries) > max_entries:
            entry = self.entries.popleft()
            del self.places[entry.id]
            self.baseline = _past(self.baseline, entry.id, entry.sent_at_s)
            if entry.id > self.complete_id or entry.sent_at_s > entry.arrived_at_s:
                self.gone[entry.id] = entry.sent_at_s
            else:
                self.old = _past(self.old, entry.id, entry.sent_at_s)
        if len(self.gone) > max_gone:
            self._settle(max_gone)

    def _settle(self, max_gone: int) -> None:
        if not self.gone:
            return
        horizon_s = self.entries[0].arrived_at_s
        self._cover(horizon_s, up_to_id=self.complete_id)
        if len(self.gone) > max_gone:
            self._cover(horizon_s)
        while len(self.gone) > max_gone:
            self._cover(max(min(self.gone.values()), sum(self.gone.values()) / len(self.gone)))
        self.complete_id = max(self.complete_id, self.old.newest_id)

    def _cover(self, until_s: float, *, up_to_id: int = MAX_ID) -> None:
        for id_, sent_at_s in tuple(self.gone.items()):
            if sent_at_s <= until_s and id_ <= up_to_id:
                self.old = _past(self.old, id_, sent_at_s)
                del self.gone[id_]


def _past(baseline: Baseline, message_id: int, sent_at_s: float) -> Baseline:
    return Baseline(newest_id=max(baseline.newest_id, message_id), time_s=max(baseline.time_s, sent_at_s))
