"""A daemon's context without a daemon, for tests of one part."""

from __future__ import annotations

import random
import time

from daemon.feed.context import FeedContext, Spawn
from daemon.feed.machine import State
from ledger.values import CallerKey
from tests.daemon.world import World, quick


class Parts:
    """Watches feeds and owns their tasks."""

    def __init__(self, world: World, spawn: Spawn) -> None:
        self.states: list[State] = []
        """What feeds became, in order."""
        self.losses = 0
        """How often a loss was told."""
        self.ctx = FeedContext(
            world.store,
            world.http,
            settings=quick(),
            clock=time.time,
            rng=random.Random(1),
            spawn=spawn,
            watcher=self,
        )

    def changed(self, caller: CallerKey, state: State) -> None:
        """See `daemon.feed.context.Watcher`."""
        self.states.append(state)

    def lost(self) -> None:
        """See `daemon.feed.context.Watcher`."""
        self.losses += 1
