"""Each fault by itself: messages before, while and after it strikes, and everybody gets each of them once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.chaos.calls import Client
from tests.chaos.cluster import DOMAIN, ChaosCluster, running
from tests.chaos.consumers import Consumer, Habits, Record
from tests.chaos.faults import FAULTS, Storm
from tests.chaos.keeping import kept_by_a_task
from tests.chaos.mail import STRANGERS
from tests.chaos.truth import truth
from tests.chaos.verdict import Kind, Reader, audit, missing

pytestmark = [
    pytest.mark.processes,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("chaos faults"),
]

KINDS: tuple[Kind, ...] = ("plain", "plain", "acknowledging", "acknowledging")
HABITS = Habits(timeouts_s=(1, 2), settles_s=(0,), hangs_up=0.0, goes_away=0.0)
EACH = 6
"""Messages for everybody before, during and after the fault."""
WITHIN_S = 60.0
"""Everything is there after a few seconds; a machine that is busy with other tests takes longer."""
QUICK = {
    "FMSG_HEARTBEAT_TTL_SECONDS": "2",
    "FMSG_RECONCILE_SECONDS": "4",
    "FMSG_MAX_CONNECTS_PER_SECOND": "200",
    "FMSG_LOG_LEVEL": "warning",
}


class Shortest(random.Random):
    """Chance, but that everything lasts as short as it may."""

    def uniform(self, a: float, b: float) -> float:
        """The lower end."""
        return min(a, b)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChaosCluster]:
    """Two fronts, two daemons and a worker for all tests here."""
    async with kept_by_a_task(running(tmp_path_factory.mktemp("chaos"), env=QUICK)) as found:
        yield found


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """The same chance for each run of a test."""
    return Shortest(request.node.name)


@pytest.mark.parametrize("kind", sorted(FAULTS))
async def test_nothing_is_lost_or_comes_twice_when(kind: str, cluster: ChaosCluster, rng: random.Random) -> None:
    record = Record()
    addresses = [f"@{kind}-{number}@{DOMAIN}" for number in range(len(KINDS))]
    keys = {address: str(await cluster.control.insist("create_key", address=address)) for address in addresses}
    readers = [Reader(name=a, address=a, kind=reads) for a, reads in zip(addresses, KINDS, strict=True)]
    storm = Storm(cluster, rng, kinds=[kind], every_s=1.0)

    async def send(pause_s: float) -> None:
        for number in range(EACH):
            fields = {"from": rng.choice(STRANGERS), "topic": f"topic {number}", "body": "hello"}
            await cluster.control.insist("deliver_each", to=addresses, **fields)
            await asyncio.sleep(pause_s)

    async with Client() as client, asyncio.TaskGroup() as group:
        consumers = [
            Consumer(
                reader,
                keys[reader.address],
                client,
                record,
                urls=lambda: cluster.urls,
                rng=random.Random(reader.name),
                habits=HABITS,
                subscription=None if reader.kind == "plain" else "main",
            )
            for reader in readers
        ]
        waiting = [group.create_task(consumer.run()) for consumer in consumers]
        await send(0.02)
        striking = group.create_task(storm.strike(kind))
        await send(0.1)
        await striking
        await storm.calm()
        await send(0.02)
        told = await truth(cluster.api_url, keys)
        async with asyncio.timeout(WITHIN_S):
            while missing(readers, told.listed, record.receipts):  # noqa: ASYNC110 - in other processes
                await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
    verdict = audit(readers, told.listed, record.receipts, storm.intervals)
    assert verdict.expected >= 3 * EACH * len(addresses)
    assert verdict.good, verdict
    assert cluster.deaths == []


async def test_the_account_would_notice(cluster: ChaosCluster) -> None:
    """A message taken out of the account is missed, so that these tests cannot pass on nothing."""
    address = f"@witness@{DOMAIN}"
    key = str(await cluster.control.insist("create_key", address=address))
    await cluster.control.insist("deliver", to=[address], topic="hello", body="hello", **{"from": STRANGERS[0]})
    reader = Reader(name=address, address=address, kind="plain")
    told = await truth(cluster.api_url, {address: key})
    assert missing([reader], told.listed, []) == [(address, next(iter(told.listed[address])))]
