"""Where a request comes from, and how many wrong keys may come from there."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from mcp_front.settings import Budgets, budget_name

WINDOW_S = 60.0
"""What `Budgets.auth_failures` is counted over."""
MAX_SOURCES = 20_000
"""Sources remembered; a flood from more addresses than that is not told apart by address anyway."""
IPV6_PREFIX = 64
"""What one IPv6 subscriber has: a whole /64 counts as one source."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks of ``FMSG_MCP_TRUSTED_PROXIES``. Raises `ValueError` naming the one that is none."""
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise ValueError(
                f"FMSG_MCP_TRUSTED_PROXIES: {text!r} is no network. Write it as 10.0.0.0/8 or 192.0.2.7."
            ) from None
    return tuple(networks)


def is_trusted(peer: str | None, proxies: Sequence[Network]) -> bool:
    """Whether the peer of a connection is one of the proxies."""
    address = _address(peer)
    return address is not None and any(address in network for network in proxies)


def source_of(peer: str | None, forwarded: Iterable[bytes], proxies: Sequence[Network]) -> str:
    """The address a request comes from: the peer's, or behind trusted proxies the last one they did not add.

    ``forwarded`` are the values of ``X-Forwarded-For``; what an untrusted peer writes there is ignored.
    """
    source = _address(peer)
    if source is None:
        return "unknown"
    if is_trusted(peer, proxies):
        hops = [hop.strip() for value in forwarded for hop in value.decode("latin-1").split(",")]
        for hop in reversed(hops):
            address = _address(_without_port(hop))
            if address is None:
                break
            source = address
            if not any(address in network for network in proxies):
                break
    if isinstance(source, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((source, IPV6_PREFIX), strict=False))
    return str(source)


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if text is None:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address


class TooManyGuesses(Exception):
    """A source has sent too many keys that the host refused."""

    def __init__(self, retry_after_s: float, limit: int) -> None:
        super().__init__(
            f"more than {limit} keys from your network address were refused within {WINDOW_S:.0f} s "
            f"({budget_name('auth_failures')}). Try again in {retry_after_s:.0f} s with the right key."
        )
        self.retry_after_s = retry_after_s


class _Source:
    __slots__ = ("failures", "places", "until_s", "users")

    def __init__(self, places: int) -> None:
        self.failures = 0
        self.until_s = 0.0
        self.users = 0
        self.places = asyncio.Semaphore(places)


class Guesses:
    """Counts refused keys per source. Keys that turn out good cost their source nothing. ``now`` is monotonic."""

    def __init__(self, budgets: Budgets, *, now: Callable[[], float]) -> None:
        self._budgets = budgets
        self._now = now
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    @asynccontextmanager
    async def looking_up(self, source: str) -> AsyncIterator[None]:
        """One of the source's places for keys that have to be looked up. Raises `TooManyGuesses`."""
        found = self._sources.get(source)
        if found is None:
            self._make_room()
            found = self._sources[source] = _Source(self._budgets.exchanges_per_source)
        self._check(found)
        found.users += 1
        try:
            async with found.places:
                self._check(found)
                yield
        finally:
            found.users -= 1
            if not found.users and (not found.failures or found.until_s <= self._now()):
                self._sources.pop(source, None)

    def failed(self, source: str) -> None:
        """A key of the source was refused."""
        found = self._sources.get(source)
        if found is None:
            self._make_room()
            found = self._sources[source] = _Source(self._budgets.exchanges_per_source)
        if found.until_s <= self._now():
            found.failures = 0
            found.until_s = self._now() + WINDOW_S
        found.failures += 1
        self._sources.move_to_end(source)

    def check(self, source: str) -> None:
        """Raises `TooManyGuesses` where the source is over its budget."""
        found = self._sources.get(source)
        if found is not None:
            self._check(found)

    def _check(self, found: _Source) -> None:
        left_s = found.until_s - self._now()
        if left_s > 0 and found.failures >= self._budgets.auth_failures:
            raise TooManyGuesses(max(1.0, left_s), self._budgets.auth_failures)

    def _make_room(self) -> None:
        while len(self._sources) >= MAX_SOURCES:
            self._sources.popitem(last=False)
