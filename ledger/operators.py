"""What operators see of the processes of a deployment, and what they may ask of its daemons.

Both are for people. No wait needs them, and no message is lost or late because of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from ledger.values import CallerKey


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs: ``id`` is unique per start, ``name`` says where it runs.

    ``metrics`` is the host and port of its metrics, None where it offers none. ``facts`` are a few numbers it says of
    itself, such as the waits it holds; never anything about a caller. ``heard_at_s`` is when it was announced last, in
    POSIX seconds of the store's clock; the store fills it in.
    """

    id: str
    role: str
    name: str
    version: str
    since_s: float
    metrics: str | None = None
    facts: Mapping[str, float] = {}
    heard_at_s: float = 0.0


class Processes(Protocol):
    """Which processes run, or fell silent without a withdrawal within the last `LedgerLimits.presence_ttl_s`."""

    async def announce(self, process: Process) -> None:
        """Say that a process runs, and how it does; again and again. Raises `LedgerUnavailable`."""
        ...

    async def withdraw(self, process_id: str) -> None:
        """Say that it has ended. Raises `LedgerUnavailable`."""
        ...

    async def present(self) -> Sequence[Process]:
        """All of them, by role, name and id; `Process.heard_at_s` tells which run. Raises `LedgerUnavailable`."""
        ...


def in_order(processes: Iterable[Process]) -> Sequence[Process]:
    """Processes by role, name and id."""
    return tuple(sorted(processes, key=lambda process: (process.role, process.name, process.id)))


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator wants done to a caller's feed, by the daemon that runs it.

    ``reconnect``: close it and begin anew. ``rest``: close it; the next request of the caller wakes it.
    """

    what: Literal["reconnect", "rest"]
    caller: CallerKey


class Orders(Protocol):
    """From operators to daemons. An order may be lost: look whether it was carried out."""

    async def give(self, order: Order) -> None:
        """Tell all daemons; the one that runs the feed acts. Raises `LedgerUnavailable`."""
        ...

    def listen(self, obey: Callable[[Order], None]) -> Callable[[], None]:
        """Call ``obey`` (must not block) for each order; returns the function that ends it."""
        ...
