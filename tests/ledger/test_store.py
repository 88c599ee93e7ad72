from __future__ import annotations

import asyncio

import pytest

from ledger.embedded import free_port
from ledger.port import DeferredTask, LedgerUnavailable, Member, Store
from ledger.redis.topology import BadRedisUrl
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from ledger.values import Baseline, CallerKey, Seen
from tests.fake_redis import FakeTopology
from tests.within import within

ALICE = CallerKey("a" * 32)
SEAL = SealKeys.parse(SealKeys.generate())


@pytest.fixture(params=["memory", "fakeredis", "real"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return MemoryStore()
    found: Store = request.getfixturevalue("fake_store" if request.param == "fakeredis" else "redis_store")
    return found


async def test_a_memory_store_is_a_context_manager_too() -> None:
    async with MemoryStore() as store:
        await store.ping()


async def test_every_part_of_a_store_works(store: Store) -> None:
    await store.ping()
    entry = Seen(id=1, pid=None, root=1, from_="@bob@b.test")
    assert (await store.ledger.begin(ALICE, [entry], Baseline())).held == 1
    await store.activations.activate(
        ALICE, address="@alice@a.test", api_url="https://a.test", token=None, token_expires_at_s=0.0
    )
    assert list(await store.activations.active()) == [ALICE]
    await store.fleet.beat(Member(id="d1", name="daemon", since_s=1.0))
    assert [member.id for member in await store.fleet.members()] == ["d1"]
    assert await store.documents.store(ALICE, "kind", "name", b"data", expected=0, ttl_s=60.0)
    assert (await store.documents.load(ALICE, "kind", "name")).data == b"data"
    await store.deferred.add(DeferredTask(kind="delete_draft", caller=ALICE, message_id=1, due_s=1.0))
    assert await store.deferred.depth() == 1


async def test_one_reader_serves_ledgers_and_activations(store: Store) -> None:
    active, grown = asyncio.Event(), asyncio.Event()
    store.activations.listen(lambda caller: active.set() if caller == ALICE else None)
    store.notifications.listen(ALICE, grown.set)
    if isinstance(store, RedisStore):
        await within(store.notifications.connected.wait(), 20)
        await within(grown.wait(), 20)
        grown.clear()
    await store.activations.activate(
        ALICE, address="@alice@a.test", api_url="https://a.test", token=None, token_expires_at_s=0.0
    )
    await within(active.wait(), 20)
    await store.ledger.begin(ALICE, [], Baseline())
    await store.ledger.append(ALICE, [Seen(id=1, pid=None, root=1, from_="@bob@b.test")], "push")
    await within(grown.wait(), 20)


async def test_a_store_opens_while_redis_is_away() -> None:
    async with RedisStore(f"redis://127.0.0.1:{free_port()}", seal=SEAL) as store:
        with pytest.raises(LedgerUnavailable):
            await store.ping()


async def test_what_answers_but_does_not_keep_is_no_redis() -> None:
    class Forgetful(FakeTopology):
        async def execute_command(self, *args: object, **options: object) -> object:
            return None

        @property
        def commands(self) -> Forgetful:
            return self

    topology = Forgetful()
    with pytest.raises(LedgerUnavailable, match="Is FMSG_REDIS_URL a Redis"):
        await RedisStore(topology, seal=SEAL).ping()
    await topology.aclose()


def test_a_url_that_is_not_understood_is_refused_at_once() -> None:
    with pytest.raises(BadRedisUrl):
        RedisStore("http://localhost", seal=SEAL)
