"""One caller's sockets: the latest is the one that counts."""

from __future__ import annotations

import pytest

from daemon.feed.diagnosis import Diagnosis
from daemon.feed.socket import Listener, disconnect_label
from fmsg.events import Event
from tests.daemon.parts import Parts
from tests.daemon.world import Agent, World


class Owner:
    """Notes what it is told, and rings."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[str] = []
        self.fault: Exception | None = None

    def opened(self) -> None:
        self._tell("opened")

    def take(self, event: Event) -> None:
        self._tell(event.type)
        if self.fault is not None:
            raise self.fault

    def closed(self, reason: str) -> None:
        self._tell(f"closed: {reason}")

    def connect_failed(self, diagnosis: Diagnosis) -> None:
        self._tell(f"failed: {diagnosis.remedy}")

    def _tell(self, word: str) -> None:
        self.told.append(word)
        self.world.bell.ring()

    async def until(self, *told: str) -> None:
        """Wait until it was told exactly this."""
        await self.world.bell.until(lambda: self.told == list(told))


@pytest.fixture
async def alice(world: World) -> Agent:
    """A caller that asked."""
    return await world.agent("alice")


async def test_it_opens_reads_and_tells_of_the_end(world: World, alice: Agent, parts: Parts) -> None:
    owner = Owner(world)
    listener = Listener(parts.ctx, alice.key, alice.api, owner)
    listener.open()
    await owner.until("opened")
    world.deliver(alice)
    await owner.until("opened", "new_msg")
    world.host.control.drop_sockets(close_frame=True, code=1001)
    await owner.until("opened", "new_msg", "closed: closed by the host with 1001")


async def test_a_cancelled_socket_is_closed_and_not_heard_of(world: World, alice: Agent, parts: Parts) -> None:
    owner = Owner(world)
    listener = Listener(parts.ctx, alice.key, alice.api, owner)
    listener.open()
    await owner.until("opened")
    ending = listener.cancel()
    assert ending is not None
    await alice.until_sockets(0)
    assert owner.told == ["opened"]
    assert listener.cancel() is None


async def test_a_refused_upgrade_is_told_with_its_remedy(world: World, alice: Agent, parts: Parts) -> None:
    owner = Owner(world)
    listener = Listener(parts.ctx, alice.key, alice.api, owner)
    world.host.control.reject_upgrades(status=503)
    listener.open()
    await owner.until("failed: retry")
    world.host.control.reject_upgrades(status=403)
    listener.open()
    await owner.until("failed: retry", "failed: stop")


async def test_a_fault_of_ours_ends_the_socket_and_is_logged(
    world: World, alice: Agent, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Owner(world)
    owner.fault = RuntimeError("a fault")
    listener = Listener(parts.ctx, alice.key, alice.api, owner)
    listener.open()
    await owner.until("opened")
    world.deliver(alice)
    await owner.until("opened", "new_msg", "closed: unexpected RuntimeError")
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
