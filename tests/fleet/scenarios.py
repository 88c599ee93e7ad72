"""What an operator does to a fleet, or what happens to it, one after another."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from ledger.embedded import EmbeddedRedis
from tests.chaos.house import House

Shape = Literal["standalone", "sentinel", "cluster"]


class Fleet(msgspec.Struct, frozen=True):
    """A house and the Redis servers behind it: the standalone one, primary and replica, or a Cluster's primaries."""

    house: House
    redis: Sequence[EmbeddedRedis]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One of them. ``redis_away``: for a moment Redis does not answer everybody. ``rolling``: no call may fail."""

    name: str
    shape: Shape
    act: Callable[[Fleet], Awaitable[None]]
    rolling: bool = False
    redis_away: bool = False


async def rolling_restart(fleet: Fleet) -> None:
    """SIGTERM to one process after another, each started again before the next one is told."""
    for role in ("worker", "daemon", "front"):
        for part in fleet.house.of(role):
            await part.kill(signal.SIGTERM)
            # As an orchestrator does: the next one only once this one takes calls again.
            await asyncio.sleep(TAKEN_IN_S if role == "front" else SETTLED_S)


TAKEN_IN_S = 4.0
"""A proxy asks a front every second and takes it in after two good answers."""
SETTLED_S = 2.0
"""A daemon that joins is given its callers in the first seconds."""
STOPPED_S = 30.0
"""How long a daemon is stopped: three times as long as its heartbeat holds."""
DOWN_S = 3.0
"""A host that is restarted."""


async def daemon_killed(fleet: Fleet) -> None:
    """kill -9 of one of them."""
    await fleet.house.of("daemon")[0].kill()


async def daemon_stopped(fleet: Fleet) -> None:
    """SIGSTOP for 30 s; then it goes on as if nothing had been."""
    part = fleet.house.of("daemon")[1]
    part.pause()
    try:
        await asyncio.sleep(STOPPED_S)
    finally:
        part.resume()


async def daemon_joins(fleet: Fleet) -> None:
    """One more."""
    await fleet.house.open(fleet.house.plan("daemon"))


async def host_restarts(fleet: Fleet) -> None:
    """All sockets are gone at once, and for a while nobody can connect."""
    await fleet.house.control.call("reset_stats")
    await fleet.house.control.call("restart", down_s=DOWN_S)
    await asyncio.sleep(DOWN_S)


async def redis_failover(fleet: Fleet) -> None:
    """kill -9 of the primary that Sentinel watches."""
    fleet.redis[0].kill()
    await asyncio.sleep(1.0)


async def primary_lost(fleet: Fleet) -> None:
    """kill -9 of one primary of three, which comes back with its data."""
    fleet.redis[1].kill()
    await asyncio.sleep(DOWN_S)
    await fleet.redis[1].restart_async(empty=False)


SCENARIOS = (
    Scenario(name="rolling restart of everything", shape="standalone", act=rolling_restart, rolling=True),
    Scenario(name="kill -9 of a daemon", shape="standalone", act=daemon_killed),
    Scenario(name="SIGSTOP of a daemon for 30 s", shape="standalone", act=daemon_stopped),
    Scenario(name="a new daemon joins", shape="standalone", act=daemon_joins),
    Scenario(name="the host restarts", shape="standalone", act=host_restarts),
    Scenario(name="Redis fails over (Sentinel)", shape="sentinel", act=redis_failover, redis_away=True),
    Scenario(name="a Cluster of three loses a primary", shape="cluster", act=primary_lost, redis_away=True),
)
