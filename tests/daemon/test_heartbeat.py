"""Whether a daemon may still speak for its callers."""

from __future__ import annotations

import asyncio

import pytest

from daemon.heartbeat import Heartbeat
from ledger.memory import MemoryFleet
from ledger.port import Member
from tests.daemon.world import quick
from tests.within import within


class Time:
    """The clock of the store and of the event loop, moved by hand."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    """Now."""
    return Time()


@pytest.fixture
def fleet(time: Time) -> MemoryFleet:
    """Nobody yet."""
    return MemoryFleet(heartbeat_ttl_s=10.0, clock=time)


def heart_of(fleet: MemoryFleet, time: Time, name: str = "one") -> Heartbeat:
    """A daemon's heart that has not beaten."""
    return Heartbeat(
        fleet, id_=name, name=name, settings=quick(heartbeat_ttl_s=10.0, heartbeat_s=1.0), clock=time, now=time
    )


async def test_it_tells_when_others_come_drain_and_go(fleet: MemoryFleet, time: Time) -> None:
    heart = heart_of(fleet, time)
    assert await heart.beat(load=3, draining=False)
    assert not await heart.beat(load=4, draining=False)
    assert [(member.id, member.load, member.since_s) for member in heart.members] == [("one", 4, 1000.0)]
    await fleet.beat(Member(id="two", name="two", since_s=0.0))
    assert await heart.beat(load=4, draining=False)
    await fleet.beat(Member(id="two", name="two", since_s=0.0, draining=True))
    assert await heart.beat(load=4, draining=False)
    assert len(heart.members) == 2
    assert heart.present(heart.members) == {"one"}
    await fleet.leave("two")
    assert not await heart.beat(load=4, draining=False), "it took no callers any more"


async def test_it_trusts_itself_no_longer_than_its_heartbeat_holds(fleet: MemoryFleet, time: Time) -> None:
    heart = heart_of(fleet, time)
    assert heart.silent(), "it never beat"
    await heart.beat(load=0, draining=False)
    assert heart.silent(), "it beat, but nobody looked at the leases"
    heart.trust()
    assert not heart.silent()
    time.now_s += 9.9
    assert not heart.silent()
    time.now_s += 0.1
    assert heart.silent()
    await heart.beat(load=0, draining=False)
    assert heart.silent(), "others may have taken everything meanwhile"


async def test_whoever_wants_to_speak_waits_until_it_may(fleet: MemoryFleet, time: Time) -> None:
    heart = heart_of(fleet, time)
    speaker = asyncio.create_task(heart.sure())
    await heart.beat(load=0, draining=False)
    await asyncio.sleep(0)
    assert not speaker.done()
    heart.trust()
    await within(speaker, 5.0)


async def test_a_beat_counts_from_when_it_was_sent(fleet: MemoryFleet, time: Time) -> None:
    """The process may be stopped between sending it and reading the answer."""
    heart = heart_of(fleet, time)
    members = fleet.members

    async def after_a_long_sleep() -> tuple[Member, ...]:
        time.now_s += 30.0
        return tuple(await members())

    fleet.__dict__["members"] = after_a_long_sleep
    await heart.beat(load=0, draining=False)
    heart.trust()
    assert heart.silent()
