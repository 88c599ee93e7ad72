"""So that one busy caller leaves the others their share of the connections to the host."""

from __future__ import annotations

import asyncio

from ledger.values import CallerKey


class _Queue:
    __slots__ = ("places", "users")

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.users = 0


class Turns:
    """Requests to the host that one caller has under way; further ones wait for their turn, first come first served."""

    def __init__(self, per_caller: int) -> None:
        self._per_caller = per_caller
        self._queues: dict[CallerKey, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    async def take(self, caller: CallerKey) -> None:
        """Wait for a turn; whoever gets one has to `give_back`."""
        queue = self._queues.get(caller)
        if queue is None:
            queue = self._queues[caller] = _Queue(self._per_caller)
        queue.users += 1
        try:
            await queue.places.acquire()
        except BaseException:
            self._leave(caller, queue)
            raise

    def give_back(self, caller: CallerKey) -> None:
        """End a turn."""
        queue = self._queues[caller]
        queue.places.release()
        self._leave(caller, queue)

    def _leave(self, caller: CallerKey, queue: _Queue) -> None:
        queue.users -= 1
        if not queue.users:
            del self._queues[caller]
