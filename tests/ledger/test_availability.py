from __future__ import annotations

import asyncio
import logging
import random

import pytest

from ledger.availability import PROBE_S, SPREAD_S, ProbedAvailability
from ledger.embedded import EmbeddedRedis
from ledger.port import Availability, LedgerUnavailable
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from ledger.values import START, Baseline, CallerKey, Seen
from tests.within import within

ALICE = CallerKey("a" * 32)
SEAL = SealKeys.parse(SealKeys.generate())


def is_away(availability: Availability) -> bool:
    return availability.away_since_s is not None


class Store:
    """A store that takes writes or not."""

    def __init__(self) -> None:
        self.away = True
        self.probes = 0
        self.probed = asyncio.Event()

    async def probe(self) -> None:
        self.probes += 1
        self.probed.set()
        if self.away:
            raise LedgerUnavailable("away")


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def availability(store: Store) -> ProbedAvailability:
    return ProbedAvailability(store.probe, rng=random.Random(1))


async def test_it_is_away_from_a_failure_until_a_write(store: Store, availability: ProbedAvailability) -> None:
    back = asyncio.Event()
    availability.listen(back.set)
    assert not is_away(availability)
    before_s = asyncio.get_running_loop().time()
    availability.failed()
    since_s = availability.away_since_s
    assert since_s is not None
    assert since_s >= before_s
    await within(store.probed.wait(), 10)
    availability.failed()
    assert availability.away_since_s == since_s, "it is away since the first failure"
    assert not back.is_set()
    store.away = False
    await within(back.wait(), 10)
    assert not is_away(availability)
    await availability.aclose()


async def test_all_listeners_go_on_spread_over_a_second(store: Store, availability: ProbedAvailability) -> None:
    store.away = False
    woken: list[float] = []
    now = asyncio.get_running_loop().time
    last = asyncio.Event()

    def wake() -> None:
        woken.append(now())
        if len(woken) == 1000:
            last.set()

    for _ in range(1000):
        availability.listen(wake)
    ended = availability.listen(lambda: woken.append(0.0))
    ended()
    availability.failed()
    await within(last.wait(), 20)
    assert woken[-1] - woken[0] > 0.5 * SPREAD_S
    assert 0.0 not in woken
    assert 1.5 * PROBE_S + SPREAD_S < 2.0, "within two seconds"
    await availability.aclose()


async def test_a_fault_of_the_probe_does_not_end_it(
    availability: ProbedAvailability, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [ValueError("odd")]
    back = asyncio.Event()

    async def odd() -> None:
        if faults:
            raise faults.pop()

    monkeypatch.setattr(availability, "_probe", odd)
    availability.listen(back.set)
    with caplog.at_level(logging.CRITICAL + 1):
        availability.failed()
        await within(back.wait(), 10)
    await availability.aclose()


async def test_closed_it_probes_no_more(store: Store, availability: ProbedAvailability) -> None:
    availability.failed()
    await availability.aclose()
    probes = store.probes
    availability.failed()
    await asyncio.sleep(0)
    assert store.probes == probes


async def test_memory_is_never_away() -> None:
    async with MemoryStore() as store:
        assert not is_away(store.availability)
        store.availability.listen(lambda: None)()


def seen(message_id: int) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@b.test")


REFUSALS = {
    "full": (["CONFIG SET maxmemory 1"], ["CONFIG SET maxmemory 0"]),
    "replica": (["REPLICAOF 127.0.0.1 1"], ["REPLICAOF NO ONE"]),
    "too few replicas": (["CONFIG SET min-replicas-to-write 1"], ["CONFIG SET min-replicas-to-write 0"]),
    "no permission": (["ACL SETUSER default -xadd"], ["ACL SETUSER default +xadd"]),
}
"""Ways of a server to go on reading and to refuse writes, and what ends them."""


@pytest.mark.parametrize("why", REFUSALS)
async def test_a_server_that_reads_and_refuses_writes_is_away_until_it_takes_one(why: str) -> None:
    refuse, accept = REFUSALS[why]
    async with EmbeddedRedis(config=["min-replicas-max-lag 10"]) as server, RedisStore(server.url, seal=SEAL) as store:

        async def tell(commands: list[str]) -> None:
            for command in commands:
                await store.topology.commands.execute_command(*command.split())

        back = asyncio.Event()
        store.availability.listen(back.set)
        await store.ledger.begin(ALICE, [seen(1)], Baseline())
        await tell(refuse)
        assert len((await store.ledger.read(ALICE, START, 10)).entries) == 1
        assert not is_away(store.availability)
        with pytest.raises(LedgerUnavailable):
            await store.ledger.append(ALICE, [seen(2)], "push")
        assert is_away(store.availability)
        with pytest.raises(LedgerUnavailable):
            await store.ping()
        assert not back.is_set()
        await tell(accept)
        await within(back.wait(), 20)
        assert not is_away(store.availability)
        await store.ledger.append(ALICE, [seen(2)], "push")


async def test_a_server_that_is_killed_is_away_until_it_is_there_again() -> None:
    async with EmbeddedRedis() as server, RedisStore(server.url, seal=SEAL) as store:
        back = asyncio.Event()
        store.availability.listen(back.set)
        server.kill()
        with pytest.raises(LedgerUnavailable):
            await store.ledger.state(ALICE)
        assert is_away(store.availability)
        await server.restart_async(empty=True)
        await within(back.wait(), 20)
