"""Hosts on real ports and people on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from sandbox.host import SandboxHost, serve
from sandbox.switches import Limits, Switches
from tests.sandbox.people import Person


class Clock:
    """A clock that stands still until it is moved. Starts at a whole second of 2026."""

    def __init__(self) -> None:
        self.now_s = 1_780_000_000.0

    def __call__(self) -> float:
        """POSIX seconds."""
        return self.now_s


class Cluster:
    """Hosts that federate, and the people on them; everything ends with the test."""

    def __init__(self, stack: AsyncExitStack, session: aiohttp.ClientSession, clock: Callable[[], float]) -> None:
        self.hosts: dict[str, SandboxHost] = {}
        self.urls: dict[str, str] = {}
        self._stack = stack
        self._session = session
        self._clock = clock

    async def host(
        self,
        domain: str = "a.test",
        *,
        switches: Switches = Switches(),  # noqa: B008 - a frozen value
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
        store: str | Path = "memory",
        federated: bool = True,
    ) -> SandboxHost:
        """A host on a port, federated with those there are."""
        host = SandboxHost(domain, switches=switches, limits=limits, store=store, clock=self._clock)
        if federated:
            host.federate(*self.hosts.values())
        self.urls[domain] = await self._stack.enter_async_context(serve(host))
        self.hosts[domain] = host
        return host

    async def person(self, address: str, *, sign_in: bool = True) -> Person:
        """Somebody with an account, a key and a token. The host of the domain is made where it is missing."""
        domain = address.rpartition("@")[2].lower()
        if domain not in self.hosts:
            await self.host(domain)
        host = self.hosts[domain]
        person = Person(self._session, host, self.urls[domain], address, host.control.create_key(address))
        if sign_in:
            assert (await person.sign_in()).status == 200
        return person


@pytest.fixture
def clock() -> Clock:
    """The clock of all hosts of a test."""
    return Clock()


@pytest.fixture
async def cluster(clock: Clock) -> AsyncIterator[Cluster]:
    """An empty cluster."""
    async with aiohttp.ClientSession() as session, AsyncExitStack() as stack:
        yield Cluster(stack, session, clock)


@pytest.fixture
async def alice(cluster: Cluster) -> Person:
    """Alice of a.test."""
    return await cluster.person("@alice@a.test")


@pytest.fixture
async def bob(cluster: Cluster) -> Person:
    """Bob of a.test, on the same host as Alice."""
    return await cluster.person("@bob@a.test")


@pytest.fixture
async def carol(cluster: Cluster) -> Person:
    """Carol of b.test, another host."""
    return await cluster.person("@carol@b.test")
