"""Who has a socket at the host, looked at again and again: who had none and for how long, who had two."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import Any

import aiohttp
import msgspec

from tests.chaos.cluster import Control

LOOK_S = 0.25
"""Between two looks: shorter gaps may be missed, and 2,000 callers make an answer of 60 kB."""


class SocketGaps(msgspec.Struct, kw_only=True):
    """What was seen within a stretch of time. Seconds; per caller, added up where there were several gaps."""

    without: dict[str, float] = {}
    doubled: dict[str, float] = {}
    looks: int = 0
    most_sockets: int = 0

    @property
    def longest_without_s(self) -> float:
        """Of any caller."""
        return max(self.without.values(), default=0.0)

    @property
    def longest_doubled_s(self) -> float:
        """Of any caller."""
        return max(self.doubled.values(), default=0.0)


class SocketCount:
    """Looks at the host's count of sockets per identity while it runs."""

    def __init__(self, control: Control, addresses: Collection[str]) -> None:
        self.gaps = SocketGaps()
        self.stats: dict[str, Any] = {}
        """What the host said last."""
        self._control = control
        self._addresses = [address.lower() for address in addresses]
        self._seen = asyncio.Event()

    async def run(self) -> None:
        """Look for ever."""
        before_s = time.monotonic()
        while True:
            # A host that refuses connections has no sockets, and cannot say so.
            counts: dict[str, int] = {}
            with contextlib.suppress(aiohttp.ClientError):
                self.stats = await self._control.call("stats")
                counts = {address.lower(): count for address, count in self.stats["sockets"].items()}
            now_s = time.monotonic()
            self._note(counts, now_s - before_s)
            before_s = now_s
            self._seen.set()
            await asyncio.sleep(LOOK_S)

    def _note(self, counts: dict[str, int], elapsed_s: float) -> None:
        gaps = self.gaps
        gaps.looks += 1
        gaps.most_sockets = max(gaps.most_sockets, sum(counts.values()))
        for address in self._addresses:
            count = counts.get(address, 0)
            if count == 0:
                gaps.without[address] = gaps.without.get(address, 0.0) + elapsed_s
            elif count > 1:
                gaps.doubled[address] = gaps.doubled.get(address, 0.0) + elapsed_s

    def begin(self) -> None:
        """Count anew."""
        self.gaps = SocketGaps()

    async def everybody(self, *, within_s: float) -> bool:
        """Wait until every caller has exactly one socket; False where that takes too long."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    self._seen.clear()
                    await self._seen.wait()
                    sockets = {address.lower(): count for address, count in self.stats.get("sockets", {}).items()}
                    if all(sockets.get(address) == 1 for address in self._addresses):
                        return True
        except TimeoutError:
            return False
