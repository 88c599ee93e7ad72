"""Topics of threads, remembered per caller: a thread's topic stands only on its root and never changes.

It saves a request for each message that wakes an agent. A topic is used only beside a message of the thread that the
host has just shown to the same caller.
"""

from __future__ import annotations

from collections import OrderedDict

from ledger.values import CallerKey

MOST_TOPICS = 50_000
"""Some 10 MB. The least recently used is forgotten and asked for again."""


class Topics:
    """A bounded memory of topics."""

    def __init__(self, most: int = MOST_TOPICS) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[CallerKey, int], str] = OrderedDict()

    def get(self, caller: CallerKey, root_id: int) -> str | None:
        """The topic, or None where it is not known."""
        topic = self._kept.get((caller, root_id))
        if topic is not None:
            self._kept.move_to_end((caller, root_id))
        return topic

    def put(self, caller: CallerKey, root_id: int, topic: str) -> None:
        """Remember a topic."""
        self._kept[caller, root_id] = topic
        self._kept.move_to_end((caller, root_id))
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)


TOPICS = Topics()
"""Of this process."""
