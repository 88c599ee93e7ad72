"""What an operator does to a fleet, or what happens to it, one after another."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from ledger.embedded import EmbeddedRedis
from tests.chaos.cluster import ChaosCluster

Shape = Literal["standalone", "sentinel", "cluster"]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take, or are given. Seconds; the defaults go with the product's own."""

    check_s: float = 1.0
    """Between the proxy's questions whether a front is ready; after two answers it believes them."""
    notice_s: float = 4.0
    """From being unready to refusing connections (`FMSG_MCP_DRAIN_NOTICE_SECONDS`): above two of those."""
    stopped_s: float = 30.0
    """How long a daemon is stopped: three times as long as its heartbeat holds."""
    down_s: float = 3.0
    """How long a host or a Redis server is down that is restarted."""
    quiet_s: float = 5.0
    """Under load before each scenario and after it."""


class Fleet(msgspec.Struct, frozen=True):
    """The processes and the Redis servers behind them: one alone, primary and replica, or a Cluster's primaries."""

    cluster: ChaosCluster
    redis: Sequence[EmbeddedRedis]
    pace: Pace


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
        for part in fleet.cluster.of(role):
            await part.kill(signal.SIGTERM)
            # As an orchestrator does: the next one only once this one is ready, and a front in use again.
            await part.ready()
            await asyncio.sleep(3.0 * fleet.pace.check_s if role == "front" else 0)


async def daemon_killed(fleet: Fleet) -> None:
    """kill -9 of one of them."""
    await fleet.cluster.of("daemon")[0].kill()


async def daemon_stopped(fleet: Fleet) -> None:
    """SIGSTOP for a while; then it goes on as if nothing had been."""
    part = fleet.cluster.of("daemon")[1]
    part.pause()
    try:
        await asyncio.sleep(fleet.pace.stopped_s)
    finally:
        part.resume()


async def daemon_joins(fleet: Fleet) -> None:
    """One more, which is ready once its share of the callers has come to it."""
    part = fleet.cluster.plan("daemon")
    await fleet.cluster.open(part)
    await part.ready()


async def host_restarts(fleet: Fleet) -> None:
    """All sockets are gone at once, and for a while nobody can connect."""
    await fleet.cluster.control.call("reset_stats")
    await fleet.cluster.control.call("restart", down_s=fleet.pace.down_s)
    await asyncio.sleep(fleet.pace.down_s)


async def redis_failover(fleet: Fleet) -> None:
    """kill -9 of the primary that Sentinel watches."""
    fleet.redis[0].kill()
    await asyncio.sleep(1.0)


async def primary_lost(fleet: Fleet) -> None:
    """kill -9 of one primary of three, which comes back with its data."""
    fleet.redis[1].kill()
    await asyncio.sleep(fleet.pace.down_s)
    await fleet.redis[1].restart_async(empty=False)


SCENARIOS = (
    Scenario(name="rolling restart of everything", shape="standalone", act=rolling_restart, rolling=True),
    Scenario(name="kill -9 of a daemon", shape="standalone", act=daemon_killed),
    Scenario(name="SIGSTOP of a daemon", shape="standalone", act=daemon_stopped),
    Scenario(name="a new daemon joins", shape="standalone", act=daemon_joins),
    Scenario(name="the host restarts", shape="standalone", act=host_restarts),
    Scenario(name="Redis fails over (Sentinel)", shape="sentinel", act=redis_failover, redis_away=True),
    Scenario(name="a Cluster of three loses a primary", shape="cluster", act=primary_lost, redis_away=True),
)
