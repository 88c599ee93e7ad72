"""A server that runs already: any MCP endpoint with the same tools, with keys that the user brings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.bench.client import CallFailed
from ops.bench.measure import Cost, costs_of
from ops.bench.target import Person, StoreState, TooFewCallers, connect

SENDING_AT_ONCE = 16
"""Messages being sent at the same time when many are to arrive at once."""


class Remote:
    """See `ops.bench.target.Target`. Messages are sent with the server's own tool, as the last of the callers."""

    bare_url: str | None = None
    """There is no yardstick beside a server that is not ours."""

    def __init__(self, mcp_url: str, people: Sequence[Person], pids: dict[str, int]) -> None:
        self.mcp_url = mcp_url
        self._people = list(people[:-1])
        self._sender = people[-1]
        self._pids = pids

    def pids(self) -> dict[str, int]:
        """See `Target`: those the user named."""
        return self._pids

    def costs(self) -> dict[str, Cost]:
        """See `Target`."""
        return costs_of(self._pids)

    async def callers(self, count: int) -> list[Person]:
        """See `Target`."""
        if count > len(self._people):
            raise TooFewCallers(
                f"this needs {count:,} callers and one to send, and there are {len(self._people) + 1:,} keys. "
                "Give more keys, or a smaller --size."
            )
        return self._people[:count]

    async def deliver(self, people: Sequence[Person], *, body: str) -> None:
        """See `Target`. Raises `CallFailed`."""
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
        """See `Target`."""
        return None

    async def host_stats(self) -> dict[str, Any] | None:
        """See `Target`."""
        return None

    async def store(self) -> StoreState | None:
        """See `Target`."""
        return None


async def remote(mcp_url: str, keys: Sequence[str], pids: dict[str, int]) -> Remote:
    """Ask the server who the keys are. Raises `CallFailed`, `OSError`."""
    people: list[Person] = []
    for key in keys:
        client = await connect(mcp_url, key)
        answer = await client.call("whoami", {})
        client.close()
        people.append(Person(address=str(answer.content["address"]), api_key=key))
    if len(people) < 2:
        raise TooFewCallers("two keys at least are needed: one waits, one sends")
    return Remote(mcp_url, people, pids)


def read_keys(path: Path) -> list[str]:
    """The keys in a file, one a line. Raises `OSError`."""
    return [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
