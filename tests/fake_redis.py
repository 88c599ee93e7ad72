"""Redis within the test's process: fakeredis behind the same port as a real one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import fakeredis
from redis.asyncio.client import PubSub

from ledger.scripts import Commands
from ledger.topology import Topology


class FakeTopology(Topology):
    """A `ledger.topology.Topology` whose server is fakeredis, speaking Redis 6.2.

    Closing it fails where a key was left that would stay for ever.
    """

    shown = "fakeredis"

    def __init__(self, *, prefix: str = "fmsg") -> None:
        super().__init__(prefix)
        self.client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(version=(6, 2)))

    @property
    def commands(self) -> Commands:
        """See `ledger.topology.Topology`."""
        commands: Commands = self.client
        return commands

    def pubsub(self) -> AbstractAsyncContextManager[PubSub]:
        """See `ledger.topology.Topology`."""
        reader: PubSub = self.client.pubsub()
        return reader

    async def aclose(self) -> None:
        """See `ledger.topology.Topology`."""
        endless = [key for key in await self.client.keys() if await self.client.ttl(key) == -1]
        await self.client.aclose()
        assert endless == []
