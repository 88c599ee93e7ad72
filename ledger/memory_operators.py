"""What operators see and ask for, within one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ledger.operators import Order, Process


class MemoryProcesses:
    """`ledger.operators.Processes` of one process."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._known: dict[str, Process] = {}

    async def announce(self, process: Process) -> None:
        """See `ledger.operators.Processes`."""
        self._known[process.id] = msgspec.structs.replace(process, heard_at_s=self._clock())

    async def withdraw(self, process_id: str) -> None:
        """See `ledger.operators.Processes`."""
        self._known.pop(process_id, None)

    async def present(self) -> Sequence[Process]:
        """See `ledger.operators.Processes`."""
        since_s = self._clock() - self._ttl_s
        self._known = {id_: process for id_, process in self._known.items() if process.heard_at_s > since_s}
        return in_order(self._known.values())


class MemoryOrders:
    """`ledger.operators.Orders` of one process."""

    def __init__(self) -> None:
        self._ears: dict[int, Callable[[Order], None]] = {}
        self._ear_ids = itertools.count()

    async def give(self, order: Order) -> None:
        """See `ledger.operators.Orders`."""
        self.heard(order)

    def heard(self, order: Order) -> None:
        """Tell whoever listens."""
        for obey in tuple(self._ears.values()):
            obey(order)

    def listen(self, obey: Callable[[Order], None]) -> Callable[[], None]:
        """See `ledger.operators.Orders`."""
        ear = next(self._ear_ids)
        self._ears[ear] = obey

        def stop() -> None:
            self._ears.pop(ear, None)

        return stop


def in_order(processes: Iterable[Process]) -> Sequence[Process]:
    """Processes by role, name and id."""
    return tuple(sorted(processes, key=lambda process: (process.role, process.name, process.id)))
