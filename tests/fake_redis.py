"""Redis within the test's process: fakeredis behind the same port as a real one."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import fakeredis
from redis.asyncio.client import PubSub

from ledger.redis.scripts import Commands
from ledger.redis.topology import Topology


class FakeTopology(Topology):
    """A `ledger.redis.topology.Topology` whose server is fakeredis, speaking Redis 6.2.

    Closing it fails where a key was left that would stay for ever.
    """

    shown = "fakeredis"

    def __init__(self, *, prefix: str = "fmsg") -> None:
        super().__init__(prefix)
        self.client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(version=(6, 2)))

    @property
    def commands(self) -> Commands:
        """See `ledger.redis.topology.Topology`."""
        commands: Commands = self.client
        return commands

    def pubsub(self) -> AbstractAsyncContextManager[PubSub]:
        """See `ledger.redis.topology.Topology`."""
        reader: PubSub = self.client.pubsub()
        return reader

    async def aclose(self) -> None:
        """See `ledger.redis.topology.Topology`."""
        endless = [key for key in await self.client.keys() if await self.client.ttl(key) == -1]
        await self.client.aclose()
        assert endless == []


class FreezingTopology(FakeTopology):
    """A server that stops answering while ``frozen``: commands hang, and nothing but who sent them ends that."""

    frozen = False

    @property
    def commands(self) -> Commands:
        """See `ledger.redis.topology.Topology`."""
        return self

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        """Send a command, or hang."""
        if self.frozen:
            await asyncio.get_running_loop().create_future()
        return await super().commands.execute_command(*words)
