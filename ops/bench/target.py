"""What is measured: an MCP endpoint, the callers there are, and what can be known of the processes behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from ops.bench.client import BenchClient, CallFailed
from ops.bench.measure import Cost, costs_of

HOST, STORE = "the host", "Redis"
"""What `BenchTarget.peers` names: connections to both are kept in pools."""


class BenchCaller(msgspec.Struct, frozen=True, kw_only=True):
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


class BenchTarget(Protocol):
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

    def peers(self) -> dict[int, str]:
        """What they are connected to, by port, as far as known."""
        ...

    async def callers(self, count: int) -> list[BenchCaller]:
        """So many callers, made where possible. Raises `TooFewCallers`."""
        ...

    async def deliver(self, people: Sequence[BenchCaller], *, body: str) -> None:
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
    target: BenchTarget, *, longest_s: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
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


SENDING_AT_ONCE = 16
"""Messages being sent at the same time when many are to arrive at once."""


class RunningServer:
    """A server that runs already. Messages are sent with its own tool, by the last of the callers."""

    bare_url: str | None = None
    """There is no yardstick beside a server that is not ours."""

    def __init__(self, mcp_url: str, people: Sequence[BenchCaller], pids: dict[str, int]) -> None:
        self.mcp_url = mcp_url
        self._people = list(people[:-1])
        self._sender = people[-1]
        self._pids = pids

    def pids(self) -> dict[str, int]:
        return self._pids

    def costs(self) -> dict[str, Cost]:
        return costs_of(self._pids)

    def peers(self) -> dict[int, str]:
        return {}

    async def callers(self, count: int) -> list[BenchCaller]:
        if count > len(self._people):
            raise TooFewCallers(
                f"this needs {count:,} callers and one to send, and there are {len(self._people) + 1:,} keys. "
                "Give more keys, or a smaller --size."
            )
        return self._people[:count]

    async def deliver(self, people: Sequence[BenchCaller], *, body: str) -> None:
        client = await asyncio.gather(*(connect(self.mcp_url, self._sender.api_key) for _ in people[:SENDING_AT_ONCE]))
        left = list(people)

        async def send(number: int) -> None:
            while left:
                arguments = {"to": [left.pop().address], "body": body}
                answer = await client[number].call("send_message", arguments)
                if answer.is_error:
                    raise CallFailed(answer.text[:200])

        try:
            await asyncio.gather(*(send(number) for number in range(len(client))))
        finally:
            for one in client:
                one.close()

    async def held(self) -> int | None:
        return None

    async def host_stats(self) -> dict[str, Any] | None:
        return None

    async def store(self) -> StoreState | None:
        return None


async def remote(mcp_url: str, keys: Sequence[str], pids: dict[str, int]) -> RunningServer:
    """Ask the server who the keys are. Raises `CallFailed`, `OSError`."""
    people: list[BenchCaller] = []
    for key in keys:
        client = await connect(mcp_url, key)
        answer = await client.call("whoami", {})
        client.close()
        people.append(BenchCaller(address=str(answer.content["address"]), api_key=key))
    if len(people) < 2:
        raise TooFewCallers("two keys at least are needed: one waits, one sends")
    return RunningServer(mcp_url, people, pids)


def read_keys(path: Path) -> list[str]:
    """The keys in a file, one a line. Raises `OSError`."""
    return [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
