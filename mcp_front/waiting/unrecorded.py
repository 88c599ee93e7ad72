"""What was returned while no ledger that lasts could record a position behind it.

A position is handed out only once the shared ledger knows it: by its id alone nobody could say later what lay before
it. While the store is away a call therefore ends with the position it began with, and the next one, which begins there
too, passes over what this process returned meanwhile. When the store is back, all of that comes once more, marked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ledger.values import CallerKey

MAX_POSITIONS = 20_000
"""Positions kept, those of the agents that called last; 300 bytes each and more with what was returned."""
MAX_IDS = 5000
"""Messages kept for one position, the newest: of more, the oldest come again."""


class Unrecorded:
    """Ids returned behind each position, by this process."""

    def __init__(self) -> None:
        self._returned: OrderedDict[tuple[CallerKey, int], dict[int, None]] = OrderedDict()

    def add(self, caller: CallerKey, position: int, message_ids: Iterable[int]) -> None:
        """Messages were returned to somebody who began at a position and goes on there."""
        ids = self._returned.setdefault((caller, position), {})
        self._returned.move_to_end((caller, position))
        ids.update(dict.fromkeys(message_ids))
        for gone in list(ids)[:-MAX_IDS]:
            del ids[gone]
        if len(self._returned) > MAX_POSITIONS:
            self._returned.popitem(last=False)

    def behind(self, caller: CallerKey, position: int) -> frozenset[int]:
        """What was returned behind a position."""
        return frozenset(self._returned.get((caller, position), ()))

    def clear(self) -> None:
        """The store is back."""
        self._returned.clear()
