"""Thread roots that a push did not bring: looked up after the append, so that no message waits for them."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.port import Ledger
from ledger.thread_roots import ThreadApi, resolve_roots
from ledger.values import CallerKey, Seen

MAX_MISSING = 64
"""Kept per feed. More at a time means a host in trouble; the workers' sweep finds what is dropped here."""

DELAYS_S = (2.0, 8.0, 30.0, 120.0)
"""Between the tries: a message can be pushed an instant before it is readable, and a host in trouble takes minutes.
With the last one, a line ends at an ancestor that cannot be found."""


class LateRoots:
    """The messages of one caller whose root is not known yet."""

    __slots__ = ("_missing", "_tries")

    def __init__(self) -> None:
        self._missing: dict[int, Seen] = {}
        self._tries = 0

    def __len__(self) -> int:
        return len(self._missing)

    def add(self, seen: Iterable[Seen]) -> None:
        """More messages without a root."""
        for one in seen:
            if len(self._missing) < MAX_MISSING:
                self._missing[one.id] = one
                self._tries = 0

    async def find(self, api: ThreadApi, ledger: Ledger, caller: CallerKey) -> float | None:
        """Look once; the seconds until the next try, or None where nothing is left to be found.

        Raises what the ledger raises; then nothing is forgotten.
        """
        asked = list(self._missing.values())
        last_try = self._tries >= len(DELAYS_S)
        roots = await resolve_roots(api, ledger, caller, asked, last_try=last_try)
        found = {message_id: root for message_id, root in roots.items() if root}
        if found:
            await ledger.set_roots(caller, found)
        for one in asked:
            if one.id in found or last_try:
                self._missing.pop(one.id, None)
        if not self._missing:
            self._tries = 0
            return None
        delay_s = DELAYS_S[min(self._tries, len(DELAYS_S) - 1)]
        self._tries += 1
        return delay_s
