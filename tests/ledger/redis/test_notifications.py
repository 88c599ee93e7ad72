from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import redis.exceptions as faults
from prometheus_client import REGISTRY

from ledger.embedded import EmbeddedRedis
from ledger.redis.notifications import RedisNotifications
from ledger.redis.scripts import Scripts
from ledger.redis.topology import Topology, connect
from ledger.values import CallerKey
from tests.fake_redis import FakeTopology
from tests.within import within

ALICE = CallerKey("a" * 32)


class Wakes:
    """Counts wake-ups and lets a test wait for the next."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._woken = asyncio.Event()

    def __call__(self, text: str = "wake") -> None:
        self.heard.append(text)
        self._woken.set()

    async def next(self) -> None:
        """Wait for a wake-up, at most for some seconds, and forget it."""
        await within(self._woken.wait(), 20)
        self._woken.clear()


def reader(topology: Topology, **settings: Any) -> RedisNotifications:
    return RedisNotifications(
        topology, rng=random.Random(1), **{"first_delay_s": 0.01, "max_delay_s": 0.05, **settings}
    )


def reconnects() -> float:
    return REGISTRY.get_sample_value("fmsg_mcpd_redis_reconnects_total") or 0.0


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedRedis]:
    """A server of this test's own, since it is going to suffer."""
    async with EmbeddedRedis() as found:
        yield found


@pytest.fixture
async def topology(server: EmbeddedRedis) -> AsyncIterator[Topology]:
    found = connect(server.url)
    yield found
    await found.aclose()


async def publish(topology: Topology, caller: CallerKey = ALICE) -> None:
    scripts = Scripts(topology.commands)
    await scripts.command("PUBLISH", topology.channel("arrivals"), caller, idempotent=True)


async def test_all_are_woken_when_the_reader_has_subscribed_and_then_those_who_are_meant(topology: Topology) -> None:
    notifications, alice, bob = reader(topology), Wakes(), Wakes()
    notifications.listen(ALICE, alice)
    notifications.listen(CallerKey("b" * 32), bob)
    async with notifications.running():
        await alice.next()
        await bob.next()
        await publish(topology)
        await alice.next()
    assert len(bob.heard) == 1
    assert not notifications.connected.is_set()


async def test_other_channels_share_the_connection(topology: Topology) -> None:
    notifications, wakes = reader(topology), Wakes()
    notifications.hear("news", wakes)
    async with notifications.running():
        await wakes.next()
        await topology.commands.execute_command("PUBLISH", "fmsg:news", "héllo")
        await wakes.next()
    assert wakes.heard == ["", "héllo"]


@pytest.mark.parametrize("way", ["killed", "client kill"])
async def test_after_a_reconnect_all_are_woken(server: EmbeddedRedis, topology: Topology, way: str) -> None:
    notifications, wakes = reader(topology), Wakes()
    notifications.listen(ALICE, wakes)
    before = reconnects()
    async with notifications.running():
        await wakes.next()
        if way == "killed":
            await server.restart_async(empty=True)
        else:
            await topology.commands.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await wakes.next()
        await publish(topology)
        await wakes.next()
    assert reconnects() == before + 1


async def test_redis_may_come_later(server: EmbeddedRedis, topology: Topology) -> None:
    server.kill()
    notifications, wakes = reader(topology), Wakes()
    notifications.listen(ALICE, wakes)
    async with notifications.running():
        await server.restart_async(empty=False)
        await wakes.next()


async def test_a_connection_that_hangs_is_given_up(server: EmbeddedRedis, topology: Topology) -> None:
    notifications, wakes, lost = reader(topology, quiet_s=0.3), Wakes(), Wakes()

    class Losses(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lost()

    handler = Losses()
    logging.getLogger("ledger.redis.notifications").addHandler(handler)
    try:
        notifications.listen(ALICE, wakes)
        async with notifications.running():
            await wakes.next()
            server.pause()
            await lost.next()
            server.resume()
            await wakes.next()
    finally:
        logging.getLogger("ledger.redis.notifications").removeHandler(handler)


class Scripted(FakeTopology):
    """A reader that gets given messages, then none for ever."""

    def __init__(self, *messages: dict[str, Any] | None) -> None:
        super().__init__()
        self.messages = list(messages)
        self.log: list[str] = []
        self.ended = asyncio.Event()

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Any]:
        yield self

    def pubsub(self) -> AbstractAsyncContextManager[Any]:
        self.log.append("connect")
        return self.reader()

    async def subscribe(self, *channels: str) -> None:
        self.log.append("subscribe")

    async def ping(self) -> None:
        self.log.append("ping")

    async def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        if not self.messages:
            self.ended.set()
            await asyncio.get_running_loop().create_future()
        return self.messages.pop(0)


SUBSCRIBED = {"type": "subscribe", "channel": b"fmsg:arrivals", "data": 1}
PONG = {"type": "pong", "channel": None, "data": b""}


@pytest.mark.parametrize(
    ("messages", "log"),
    [
        ([SUBSCRIBED, None, PONG, None, PONG, None, PONG], ["connect", "subscribe", "ping", "ping", "ping"]),
        (
            [SUBSCRIBED, None, PONG, None, None, SUBSCRIBED],
            ["connect", "subscribe", "ping", "ping", "connect", "subscribe"],
        ),
        ([None, SUBSCRIBED], ["connect", "subscribe", "connect", "subscribe"]),
    ],
    ids=["quiet but alive", "no pong", "no subscription"],
)
async def test_silence_is_asked_about(messages: list[dict[str, Any] | None], log: list[str]) -> None:
    topology = Scripted(*messages)
    async with reader(topology).running():
        await within(topology.ended.wait(), 20)
    assert topology.log == log
    await topology.aclose()


async def test_ten_thousand_listeners_cost_no_connection_and_one_notification_wakes_one(topology: Topology) -> None:
    notifications = reader(topology)
    callers = [CallerKey(f"{k:032x}") for k in range(10_000)]
    woken: list[CallerKey] = []
    last = Wakes()
    for caller in callers:
        notifications.listen(caller, lambda caller=caller: woken.append(caller))  # type: ignore[misc]  # a lambda's default
    notifications.listen(callers[-1], last)
    async with notifications.running():
        await last.next()
        assert len(woken) == len(callers)
        woken.clear()
        listing: bytes = await topology.commands.execute_command("CLIENT", "LIST", "TYPE", "pubsub")
        assert len(listing.splitlines()) == 1
        await publish(topology, callers[4321])
        await publish(topology, callers[-1])
        await last.next()
    assert woken == [callers[4321], callers[-1]]


async def test_an_unforeseen_fault_does_not_end_the_reader(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(FakeTopology):
        faults = [ValueError("odd"), faults.ConnectionError("gone"), OSError("broken")]  # noqa: RUF012

        def pubsub(self) -> AbstractAsyncContextManager[Any]:
            if self.faults:
                raise self.faults.pop(0)
            return super().pubsub()

    topology = Odd()
    notifications, wakes = reader(topology), Wakes()
    notifications.listen(ALICE, wakes)
    with caplog.at_level(logging.CRITICAL + 1):
        async with notifications.running():
            await wakes.next()
    assert topology.faults == []
    await topology.aclose()


async def test_a_cancellation_that_gets_lost_does_not_keep_the_reader_alive() -> None:
    """What `asyncio.wait_for` does to a cancellation that meets the end of what it waits for."""
    entered = asyncio.Event()
    lost = 0

    class Deaf(FakeTopology):
        @asynccontextmanager
        async def pubsub(self) -> AsyncIterator[Any]:
            nonlocal lost
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
            await asyncio.Event().wait()
            yield

    topology = Deaf()
    async with reader(topology).running():
        await entered.wait()
    assert lost == 1
    await topology.aclose()
