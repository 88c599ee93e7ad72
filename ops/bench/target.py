"""What is measured: an MCP endpoint, the callers there are, and what can be known of the processes behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from ops.bench.client import BenchClient
from ops.bench.measure import Cost


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A caller of the bench."""

    address: str
    api_key: str


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet's Redis holds."""

    used_bytes: int
    keys: int
    lasting: int
    """Keys without a TTL."""


class TooFewCallers(Exception):
    """The scenario needs more callers than there are keys."""


class Target(Protocol):
    """The server under test."""

    @property
    def mcp_url(self) -> str:
        """Its endpoint."""
        ...

    @property
    def bare_url(self) -> str | None:
        """The yardstick, where one runs."""
        ...

    def pids(self) -> dict[str, int]:
        """The measured processes by name: front, daemon, redis, … as far as known."""
        ...

    def costs(self) -> dict[str, Cost]:
        """What each of them has cost so far."""
        ...

    async def callers(self, count: int) -> list[Person]:
        """So many callers, made where possible. Raises `TooFewCallers`."""
        ...

    async def deliver(self, people: Sequence[Person], *, body: str) -> None:
        """Have one message arrive for each of them, as nearly at once as can be."""
        ...

    async def held(self) -> int | None:
        """Waits that the server says it holds; None where it does not say."""
        ...

    async def host_stats(self) -> dict[str, Any] | None:
        """What the host counted: requests per route, open sockets. None where it cannot be asked."""
        ...

    async def store(self) -> StoreState | None:
        """What the store holds; None where it cannot be asked."""
        ...


async def connect(url: str, api_key: str, *, path: str | None = None) -> BenchClient:
    """Connect to an endpoint as a caller; to another path of the same server where one is given."""
    at = urlsplit(url)
    return await BenchClient.connect(
        at.hostname or "", at.port or 80, path=at.path if path is None else path, api_key=api_key
    )


async def connect_all(
    url: str, keys: Sequence[str], *, path: str | None = None, at_once: int = 128
) -> list[BenchClient]:
    """A connection for each key, so many being opened at a time."""
    clients: list[BenchClient] = []
    for start in range(0, len(keys), at_once):
        chunk = keys[start : start + at_once]
        clients += await asyncio.gather(*(connect(url, key, path=path) for key in chunk))
    return clients


BUSY_SHARE = 0.12
"""A process that uses less of a core than this over a second is taken to have settled."""


async def settle(
    target: Target, *, longest_s: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> float:
    """Wait until no measured process is busy any more, or for ``longest_s``; how long it took."""
    waited_s, quiet = 0.0, 0
    step_s = min(1.0, longest_s / 3)
    before = target.costs()
    while waited_s < longest_s and quiet < 2:
        await sleep(step_s)
        waited_s += step_s
        after = target.costs()
        busiest = max((after[name].cpu_s - before[name].cpu_s for name in before), default=0.0) / step_s
        quiet = quiet + 1 if busiest < BUSY_SHARE else 0
        before = after
    return waited_s
