"""One caller's sockets: the latest is the one that counts."""

from __future__ import annotations

import pytest

from daemon.feed.socket import FeedSocket, disconnect_label
from tests.daemon.parts import NotingFeed, Parts
from tests.daemon.world import Agent, World


@pytest.fixture
async def alice(world: World) -> Agent:
    """A caller that asked."""
    return await world.agent("alice")


async def test_it_opens_reads_and_tells_of_the_end(world: World, alice: Agent, parts: Parts) -> None:
    feed = NotingFeed(world)
    socket = FeedSocket(parts.ctx, alice.key, alice.api, feed)
    socket.open()
    await feed.until("opened")
    world.deliver(alice)
    await feed.until("opened", "new_msg")
    world.host.control.drop_sockets(close_frame=True, code=1001)
    await feed.until("opened", "new_msg", "closed: closed by the host with 1001")


async def test_a_cancelled_socket_is_closed_and_not_heard_of(world: World, alice: Agent, parts: Parts) -> None:
    feed = NotingFeed(world)
    socket = FeedSocket(parts.ctx, alice.key, alice.api, feed)
    socket.open()
    await feed.until("opened")
    ending = socket.cancel()
    assert ending is not None
    await alice.until_sockets(0)
    assert feed.told == ["opened"]
    assert socket.cancel() is None


async def test_a_refused_upgrade_is_told_with_its_remedy(world: World, alice: Agent, parts: Parts) -> None:
    feed = NotingFeed(world)
    socket = FeedSocket(parts.ctx, alice.key, alice.api, feed)
    world.host.control.reject_upgrades(status=503)
    socket.open()
    await feed.until("failed: retry")
    world.host.control.reject_upgrades(status=403)
    socket.open()
    await feed.until("failed: retry", "failed: stop")


async def test_a_fault_of_ours_ends_the_socket_and_is_logged(
    world: World, alice: Agent, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    feed = NotingFeed(world)
    feed.fault = RuntimeError("a fault")
    socket = FeedSocket(parts.ctx, alice.key, alice.api, feed)
    socket.open()
    await feed.until("opened")
    world.deliver(alice)
    await feed.until("opened", "new_msg", "closed: unexpected RuntimeError")
    await alice.until_sockets(0)
    assert "listening to the host failed" in caplog.text


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("", "ours"),
        ("closed by us", "ours"),
        ("closed by the host with 1000", "host"),
        ("no sign of life from the host", "silent"),
        ("the connection was cut", "cut"),
        ("broken (ClientConnectionError: …)", "cut"),
    ],
)
def test_reasons_become_few_labels(reason: str, label: str) -> None:
    assert disconnect_label(reason) == label
