"""What may go wrong, each as something that begins, lasts and is over when it returns."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.chaos.cluster import ChaosCluster, Part
from tests.chaos.verdict import FLUSH, Interval

Fault = Callable[[ChaosCluster, random.Random], Awaitable[None]]

API_ROUTES = ("list", "get", "data", "thread_messages", "token", "ws")
"""Routes of the host that the fleet uses to receive: those that post are left alone, they say what is to arrive."""

REDIS_REST_S = 3.0
"""Between two faults of Redis, so that it is there for more of the time than not."""


async def kill_front(cluster: ChaosCluster, rng: random.Random) -> None:
    """kill -9."""
    await _any(cluster, "front", rng).kill()


async def kill_daemon(cluster: ChaosCluster, rng: random.Random) -> None:
    """kill -9."""
    await _any(cluster, "daemon", rng).kill()


async def kill_worker(cluster: ChaosCluster, rng: random.Random) -> None:
    """kill -9."""
    await _any(cluster, "worker", rng).kill()


async def drain_front(cluster: ChaosCluster, rng: random.Random) -> None:
    """SIGTERM, as a deployment does."""
    await _any(cluster, "front", rng).kill(signal.SIGTERM)


async def drain_daemon(cluster: ChaosCluster, rng: random.Random) -> None:
    """SIGTERM, as a deployment does."""
    await _any(cluster, "daemon", rng).kill(signal.SIGTERM)


async def pause_front(cluster: ChaosCluster, rng: random.Random) -> None:
    """SIGSTOP, and SIGCONT after a while."""
    await _pause(_any(cluster, "front", rng), rng.uniform(1.0, 8.0))


async def pause_daemon(cluster: ChaosCluster, rng: random.Random) -> None:
    """SIGSTOP, mostly for longer than its heartbeat holds."""
    await _pause(_any(cluster, "daemon", rng), rng.uniform(2.0, 20.0))


async def redis_restart(cluster: ChaosCluster, rng: random.Random) -> None:
    """kill -9 of Redis, which comes back with its data."""
    await _redis_away(cluster, rng.uniform(0.0, 4.0), empty=False)


async def redis_flush(cluster: ChaosCluster, rng: random.Random) -> None:
    """kill -9 of Redis, which comes back with nothing."""
    await _redis_away(cluster, rng.uniform(0.0, 4.0), empty=True)


async def redis_pause(cluster: ChaosCluster, rng: random.Random) -> None:
    """Redis hangs: connections stay open and nothing answers."""
    cluster.redis.pause()
    try:
        await asyncio.sleep(rng.uniform(1.0, 8.0))
    finally:
        cluster.redis.resume()


async def sockets_cut(cluster: ChaosCluster, rng: random.Random) -> None:
    """The host drops every event socket, with or without a close frame."""
    await cluster.control.insist("drop_sockets", close_frame=rng.random() < 0.5)


async def host_deaf(cluster: ChaosCluster, rng: random.Random) -> None:
    """The host's sockets stay open and bring nothing."""
    await cluster.control.insist("deafen")
    await asyncio.sleep(rng.uniform(1.0, 8.0))
    await cluster.control.insist("undeafen")


async def events_lost(cluster: ChaosCluster, rng: random.Random) -> None:
    """Single events never come."""
    await cluster.control.insist("lose_events", times=rng.randint(1, 20))


async def api_errors(cluster: ChaosCluster, rng: random.Random) -> None:
    """Routes answer with errors of their own or of a proxy before the host."""
    status, html = rng.choice([(500, False), (502, True), (503, False), (504, True)])
    for route in rng.sample(API_ROUTES, 3):
        await cluster.control.insist("fail_next", route=route, times=rng.randint(10, 60), status=status, html=html)


async def api_cut(cluster: ChaosCluster, rng: random.Random) -> None:
    """Connections are cut instead of answered."""
    for route in rng.sample(API_ROUTES, 3):
        await cluster.control.insist("fail_next", route=route, times=rng.randint(10, 60), cut=True)


async def api_throttled(cluster: ChaosCluster, rng: random.Random) -> None:
    """The host wants to be left alone for a while."""
    await cluster.control.insist("fail_next", route="list", times=rng.randint(5, 30), status=429, retry_after_s=2)


async def api_slow(cluster: ChaosCluster, rng: random.Random) -> None:
    """Every answer takes its time."""
    await cluster.control.insist("delay", delay_s=rng.uniform(0.2, 1.5))
    await asyncio.sleep(rng.uniform(1.0, 5.0))
    await cluster.control.insist("delay", delay_s=0)


async def host_database(cluster: ChaosCluster, rng: random.Random) -> None:
    """Every request is answered 500."""
    await cluster.control.insist("set_database", up=False)
    await asyncio.sleep(rng.uniform(0.5, 4.0))
    await cluster.control.insist("set_database", up=True)


async def host_restart(cluster: ChaosCluster, rng: random.Random) -> None:
    """The host refuses connections for a while; all sockets are gone at once."""
    down_s = rng.uniform(0.5, 4.0)
    await cluster.control.insist("restart", down_s=down_s)
    await asyncio.sleep(down_s)


async def tokens_expired(cluster: ChaosCluster, rng: random.Random) -> None:
    """All access tokens issued so far are refused."""
    await cluster.control.insist("expire_tokens")


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill_front,
        kill_daemon,
        kill_worker,
        drain_front,
        drain_daemon,
        pause_front,
        pause_daemon,
        redis_restart,
        redis_flush,
        redis_pause,
        sockets_cut,
        host_deaf,
        events_lost,
        api_errors,
        api_cut,
        api_throttled,
        api_slow,
        host_database,
        host_restart,
        tokens_expired,
    )
}
"""All of them by name."""


class Storm:
    """Faults at random, and when each was."""

    def __init__(self, cluster: ChaosCluster, rng: random.Random, *, kinds: Iterable[str], every_s: float) -> None:
        self.intervals: list[Interval] = []
        self.kinds = set(kinds)
        self._house = cluster
        self._rng = rng
        self._every_s = every_s
        self._busy: set[str] = set()
        self._locks = {"redis": asyncio.Lock(), "host": asyncio.Lock()}

    async def run(self, until: asyncio.Event) -> None:
        """Strike until the event is set; returns when every fault is over."""
        async with asyncio.TaskGroup() as group:
            while not until.is_set():
                free = sorted(self.kinds - self._busy)
                if free:
                    kind = self._rng.choice(free)
                    self._busy.add(kind)
                    group.create_task(self.strike(kind))
                await _sleep_unless(until, self._rng.expovariate(1.0 / self._every_s))

    async def strike(self, kind: str, fault: Fault | None = None) -> None:
        """One fault from beginning to end. Two that would undo each other wait for each other."""
        family = next((name for name in self._locks if kind.startswith(name)), None)
        lock: Any = self._locks[family] if family else _NoLock()
        async with lock:
            start_s = time.time()
            try:
                await (fault or FAULTS[kind])(self._house, self._rng)
            finally:
                self.intervals.append(Interval(kind=kind, start_s=start_s, end_s=time.time()))
                self._busy.discard(kind)
            if family == "redis":
                await asyncio.sleep(REDIS_REST_S)

    async def calm(self) -> None:
        """End what armed faults are left, and wait until every process serves."""
        await self._house.control.insist("clear_faults")
        for part in self._house.parts:
            await part.serving()


class _NoLock:
    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, *_: object) -> None:
        return


async def _sleep_unless(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _any(cluster: ChaosCluster, role: str, rng: random.Random) -> Part:
    return rng.choice(cluster.of(role))


async def _pause(part: Part, seconds: float) -> None:
    part.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        part.resume()


async def _redis_away(cluster: ChaosCluster, seconds: float, *, empty: bool) -> None:
    cluster.redis.kill()
    await asyncio.sleep(seconds)
    await cluster.redis.restart_async(empty=empty)


FLUSHING = frozenset({FLUSH})
"""The kinds after which Redis has forgotten everything."""
