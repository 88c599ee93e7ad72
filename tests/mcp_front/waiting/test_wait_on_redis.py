"""Waits on a real Redis, in real time: what replicas share, and what a wait costs the store."""

from __future__ import annotations

import asyncio
import time

import pytest

from ledger.port import FeedReport, Member
from ledger.store import RedisStore
from ledger.values import Baseline, CallerKey, Seen
from mcp_front.waiting.request import WaitOutcome, WaitRequest
from mcp_front.waiting.wait import Waiting
from telemetry.metrics import REDIS_COMMANDS
from tests.mcp_front.waiting.world import ANN, API_URL, BEN, ME, FakeCaller, Host, ids


class Fleet:
    """Two fronts on one Redis, and a feed that is live."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.host = Host(time.time)
        self.caller = FakeCaller(self.host)
        self.fronts = [Waiting(store), Waiting(store)]

    @property
    def key(self) -> CallerKey:
        """The caller."""
        return self.caller.key

    async def begin(self) -> None:
        """A ledger with message 4, a daemon, a live feed."""
        await self.store.ledger.begin(self.key, [], Baseline())
        await self.store.activations.activate(self.key, address=ME, api_url=API_URL, token=None, token_expires_at_s=0.0)
        await self.store.fleet.beat(Member(id="d", name="d", since_s=time.time()))
        await self.store.activations.report(self.key, FeedReport(state="live", daemon="d", since_s=time.time()))
        await self.arrive(4)
        await asyncio.sleep(0.01)  # in the same millisecond it might be younger than a call

    async def arrive(self, message_id: int, *, from_: str = ANN, pid: int | None = None) -> None:
        """The host has a message, the feed records it."""
        self.host.put(message_id, from_=from_, pid=pid)
        root = self.host.root(message_id)
        seen = Seen(id=message_id, pid=pid, root=root, from_=from_, sent_at_s=time.time())
        await self.store.ledger.append(self.key, [seen], "push")

    async def wait(self, front: int = 0, **arguments: object) -> WaitOutcome:
        """One call on one of the fronts."""
        request = WaitRequest(**({"timeout_s": 5.0, "settle_s": 0.2} | arguments))  # type: ignore[arg-type]
        return await self.fronts[front].wait(self.caller, request)


@pytest.fixture
async def fleet(redis_store: RedisStore) -> Fleet:
    """See `Fleet`."""
    running = Fleet(redis_store)
    await running.begin()
    return running


async def test_every_replica_says_the_same(fleet: Fleet) -> None:
    """The same call on two replicas: the same batch, position and thread, at the same moment."""
    calls = [asyncio.create_task(fleet.wait(front, after_id=4)) for front in (0, 1)]
    await asyncio.sleep(0.1)
    await fleet.arrive(5)
    await fleet.arrive(6, from_=BEN)
    await fleet.arrive(7, pid=5)
    one, other = [await call for call in calls]
    assert (ids(one.ids), one.after_id, one.thread_root_id, one.transport) == ([5, 7], 5, 5, "websocket")
    assert (one.ids, one.after_id, one.pending) == (other.ids, other.after_id, other.pending)
    assert ids((await fleet.wait(1, after_id=5)).ids) == [6]
    marked = await fleet.wait(0, after_id=6)
    assert (ids(marked.ids), set(marked.already_returned)) == ([7], {7})


async def test_a_notification_wakes_within_a_moment(fleet: Fleet) -> None:
    """A message is pushed: a waiting call returns within milliseconds, not at the next look."""
    call = asyncio.create_task(fleet.wait(after_id=4, settle_s=0.0))
    await asyncio.sleep(0.2)
    began_s = time.monotonic()
    await fleet.arrive(5)
    assert ids((await call).ids) == [5]
    assert time.monotonic() - began_s < 0.5


async def test_a_subscription_is_shared_by_replicas(fleet: Fleet) -> None:
    """Two replicas wait on one subscription: each message goes to one of them, unacknowledged ones come again."""
    calls = [asyncio.create_task(fleet.wait(front, subscription="s", settle_s=0.0)) for front in (0, 1)]
    await asyncio.sleep(0.2)
    await fleet.arrive(5)
    await asyncio.sleep(0.2)
    await fleet.arrive(6)
    outcomes = [await call for call in calls]
    assert sorted(id_ for outcome in outcomes for id_ in ids(outcome.ids)) == [5, 6]
    again = await fleet.wait(0, subscription="s", after_id=4)
    assert again.redelivered == frozenset(ids(again.ids))
    assert [summary.name for summary in await fleet.fronts[1].subscriptions(fleet.key)] == ["s"]


async def test_a_position_before_the_ledger_is_walked_by_any_replica(fleet: Fleet) -> None:
    """A backlog from before the ledger: two replicas in turn, each message once, oldest first."""
    await fleet.store.ledger.forget(fleet.key)
    for message_id in range(100, 300):
        fleet.host.put(message_id, time_s=time.time() - 1_000.0 + message_id)
    received: list[int] = []
    after_id = 0
    for turn in range(40):
        outcome = await fleet.wait(turn % 2, after_id=after_id, settle_s=0.0)
        received.extend(ids(outcome.ids))
        after_id = outcome.after_id
    assert received == [4, *range(100, 139)] or received == list(range(100, 140))


async def test_a_known_caller_costs_few_round_trips(fleet: Fleet) -> None:
    """A call that finds its message: where it is, what follows, what was returned, what is handed out."""
    await fleet.wait(after_id=4, timeout_s=0.0)
    await fleet.arrive(5)

    def sent() -> float:
        return sum(
            sample.value
            for metric in REDIS_COMMANDS.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        )

    before = sent()
    for _ in range(20):
        assert ids((await fleet.wait(after_id=4, settle_s=0.0)).ids) == [5]
    assert (sent() - before) / 20 <= 4.5
