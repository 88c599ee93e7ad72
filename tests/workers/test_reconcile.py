from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from fmsg.errors import FmsgError, Forbidden, HostFailed, HostMisbehaved, HostUnreachable, Throttled, Unauthorized
from ledger.port import FeedReport, LedgerUnavailable, Member
from ledger.store import MemoryStore
from ledger.values import START, CallerKey, Seen
from tests.ledger.fake_host import ANN as SENDER
from tests.ledger.fake_host import ME, FakeHost
from tests.workers.fake_callers import FakeCallers
from workers.queue import IN_A_ROW, TryLater
from workers.reconcile import LAST_TRY_AFTER_S, Reconciler
from workers.settings import WorkerSettings

ANN = CallerKey("a" * 32)
BEN = CallerKey("b" * 32)


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def callers() -> FakeCallers:
    return FakeCallers()


@pytest.fixture
def host(callers: FakeCallers) -> FakeHost:
    callers.hosts[ANN] = FakeHost()
    return callers.hosts[ANN]


@pytest.fixture
def reconciler(store: MemoryStore, callers: FakeCallers) -> Reconciler:
    return Reconciler(
        store.ledger, store.activations, store.fleet, store.documents, callers, settings=WorkerSettings(concurrency=1)
    )


async def ids(store: MemoryStore) -> list[int]:
    return [entry.id for entry in (await store.ledger.read(ANN, START, 1000)).entries]


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_a_ledger_that_is_gone_begins_anew(reconciler: Reconciler, store: MemoryStore, host: FakeHost) -> None:
    host.put(4, time_s=5.0)
    assert await reconciler.run([ANN]) == "done"
    assert await ids(store) == [4]


async def test_a_draft_sent_late_is_found_below_newer_messages(
    reconciler: Reconciler, store: MemoryStore, host: FakeHost
) -> None:
    host.put(1, time_s=None)
    for id_ in range(2, 252):
        host.put(id_, time_s=1.0)
    await reconciler.run([ANN])
    host.send(1, time_s=1001.0)
    await reconciler.run([ANN])
    assert (await ids(store))[-1] == 1


async def test_a_message_from_long_ago_that_somebody_is_added_to_is_found_in_the_end(
    reconciler: Reconciler, store: MemoryStore, host: FakeHost
) -> None:
    """Below all that one sweep compares; the event was lost, and nothing else will ever tell of it."""
    for id_ in range(2, 702):
        host.put(id_, time_s=1.0)
    await reconciler.run([ANN])
    host.put(1, to=(SENDER,), time_s=1.0, added_s=1001.0)
    sweeps = 0
    while 1 not in await ids(store):
        await reconciler.run([ANN])
        sweeps += 1
        assert sweeps <= 6
    assert sweeps > 1
    for _ in range(8):
        await reconciler.run([ANN])
    assert (await ids(store)).count(1) == 1


async def test_a_short_list_is_not_looked_at_further_down(reconciler: Reconciler, host: FakeHost) -> None:
    for id_ in range(1, 120):
        host.put(id_, time_s=1.0)
    for _ in range(2):
        await reconciler.run([ANN])
    before = host.asked["list_received"]
    await reconciler.run([ANN])
    assert host.asked["list_received"] == before + 2


async def test_who_left_no_token_is_passed_over(reconciler: Reconciler, store: MemoryStore) -> None:
    before = sample("fmsg_mcpd_reconciles_total", outcome="no_token")
    assert await reconciler.run([BEN]) == "done"
    assert await store.ledger.state(BEN) is None
    assert sample("fmsg_mcpd_reconciles_total", outcome="no_token") == before + 1


@pytest.mark.parametrize(
    "error",
    [Unauthorized(401, "revoked"), Forbidden(403, "no"), HostMisbehaved("html"), HostFailed(500, "a bad row")],
)
async def test_what_the_host_answers_one_caller_is_that_callers_alone(
    error: FmsgError, reconciler: Reconciler, callers: FakeCallers, store: MemoryStore, host: FakeHost
) -> None:
    host.errors["list_received"] = [error]
    callers.hosts[BEN] = FakeHost()
    assert await reconciler.run([ANN, BEN]) == "done"
    assert await store.ledger.state(ANN) is None
    assert await store.ledger.state(BEN) is not None


@pytest.mark.parametrize("error", [HostUnreachable("cut"), HostFailed(503, "away")])
async def test_a_host_in_trouble_is_not_asked_for_all_the_others(
    error: FmsgError, callers: FakeCallers, store: MemoryStore
) -> None:
    keys = [CallerKey(letter * 32) for letter in "abcdef"]
    for key in keys:
        callers.hosts[key] = FakeHost()
        callers.hosts[key].errors["list_received"] = [error]
    settings = WorkerSettings(concurrency=1)
    reconciler = Reconciler(store.ledger, store.activations, store.fleet, store.documents, callers, settings=settings)
    with pytest.raises(TryLater):
        await reconciler.run(keys)
    assert [bool(callers.hosts[key].asked) for key in keys] == [True] * IN_A_ROW + [False] * 3


async def test_its_wish_for_patience_is_kept(reconciler: Reconciler, host: FakeHost) -> None:
    host.errors["list_received"] = [Throttled(429, "slow down", retry_after_s=33.0)]
    with pytest.raises(TryLater) as put_off:
        await reconciler.run([ANN])
    assert put_off.value.after_s == 33.0


async def test_a_store_in_trouble_means_later(callers: FakeCallers, store: MemoryStore, host: FakeHost) -> None:
    class Away(type(store.ledger)):  # type: ignore[misc]  # a subclass of whatever the store has
        async def state(self, caller: CallerKey) -> None:
            raise LedgerUnavailable("away")

    reconciler = Reconciler(Away(), store.activations, store.fleet, store.documents, callers, settings=WorkerSettings())
    with pytest.raises(TryLater, match="away"):
        await reconciler.run([ANN])


class TestLateRoots:
    async def unknown(self, store: MemoryStore, reconciler: Reconciler) -> None:
        await reconciler.run([ANN])
        await store.ledger.append(ANN, [Seen(id=6, pid=5, root=0, from_=SENDER)], "push")

    async def root(self, store: MemoryStore) -> int:
        return (await store.ledger.read(ANN, START, 1)).entries[0].root

    async def test_a_root_that_was_unknown_is_found(
        self, reconciler: Reconciler, store: MemoryStore, host: FakeHost
    ) -> None:
        await self.unknown(store, reconciler)
        await reconciler.run([ANN])
        assert await self.root(store) == 0
        host.put(5, from_=ME, to=(SENDER,))
        await reconciler.run([ANN])
        assert await self.root(store) == 5

    async def test_after_a_while_the_line_ends_where_it_can_be_followed(
        self, reconciler: Reconciler, store: MemoryStore, host: FakeHost, clock: Clock
    ) -> None:
        await self.unknown(store, reconciler)
        clock.now_s += LAST_TRY_AFTER_S + 1
        await reconciler.run([ANN])
        assert await self.root(store) == 6

    async def test_a_ledger_lost_meanwhile_is_left_for_next_time(
        self, callers: FakeCallers, store: MemoryStore, host: FakeHost
    ) -> None:
        class Losing(type(store.ledger)):  # type: ignore[misc]  # a subclass of whatever the store has
            async def read_back(self, caller: CallerKey, limit: int, **where: object) -> object:
                await self.forget(caller)
                return await super().read_back(caller, limit, **where)

        reconciler = Reconciler(
            Losing(), store.activations, store.fleet, store.documents, callers, settings=WorkerSettings()
        )
        assert await reconciler.run([ANN]) == "done"


class TestLosses:
    async def lose(
        self, reconciler: Reconciler, store: MemoryStore, host: FakeHost, *, state: str, alive: bool = True
    ) -> float:
        await reconciler.run([ANN])
        await store.activations.report(ANN, FeedReport(state=state, daemon="d1", since_s=1000.0))
        if alive:
            await store.fleet.beat(Member(id="d1", name="d1", since_s=0.0))
        host.put(7, time_s=1010.0)
        host.put(8, time_s=1010.0, reaction="👍")
        host.put(9, time_s=1059.0)
        host.now_s = 1060.0
        before = sample("fmsg_mcpd_lost_events_total")
        await reconciler.run([ANN])
        assert await ids(store) == [7, 8, 9]
        return sample("fmsg_mcpd_lost_events_total") - before

    async def test_what_a_healthy_socket_did_not_push_is_counted(
        self, reconciler: Reconciler, store: MemoryStore, host: FakeHost
    ) -> None:
        assert await self.lose(reconciler, store, host, state="live") == 1

    async def test_not_without_a_socket(self, reconciler: Reconciler, store: MemoryStore, host: FakeHost) -> None:
        assert await self.lose(reconciler, store, host, state="backing_off") == 0

    async def test_nor_where_the_daemon_is_dead(
        self, reconciler: Reconciler, store: MemoryStore, host: FakeHost
    ) -> None:
        assert await self.lose(reconciler, store, host, state="live", alive=False) == 0
