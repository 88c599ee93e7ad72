"""What is stored heals: a key that is damaged, in whatever way, is as good as absent for its caller alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import redis.exceptions as faults
from prometheus_client import REGISTRY

from fmsg.reference import MAX_ID
from fmsg.tokens import AccessToken
from ledger.port import DeferredTask, FeedReport, LedgerUnavailable, Member, NoLedger
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import START, Arrival, Baseline, CallerKey, Seen
from tests.ledger.redis_backends import BACKENDS, backend_of

ANN = CallerKey("a" * 32)
BEN = CallerKey("b" * 32)
SEAL = SealKeys.parse(SealKeys.generate())

TYPES: dict[str, tuple[Any, ...]] = {
    "string": ("SET", "{key}", "x"),
    "list": ("RPUSH", "{key}", "x"),
    "set": ("SADD", "{key}", "x"),
    "zset": ("ZADD", "{key}", 1, "x"),
    "hash": ("HSET", "{key}", "x", "y"),
    "stream": ("XADD", "{key}", "1-1", "x", "y"),
}
"""A value of each type, as a command that stores it."""


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    async with backend_of(request.param, request) as backend, RedisStore(backend.topology, seal=SEAL) as found:
        yield found


@pytest.fixture(params=BACKENDS[1:])
async def real(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    """A store in a real server: fast enough to try every value."""
    async with backend_of(request.param, request) as backend, RedisStore(backend.topology, seal=SEAL) as found:
        yield found


def seen(message_id: int) -> Seen:
    return Seen(id=message_id, pid=None, root=0, from_="@bob@b.test", sent_at_s=5.0)


def unreadable() -> float:
    """How many values could not be read so far."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "fmsg_mcpd_unreadable_total"
    )


async def command(store: RedisStore, *words: Any) -> Any:
    return await store.topology.commands.execute_command(*words)


async def replace(store: RedisStore, key: str, kind: str) -> None:
    """Put something of another type where a key was."""
    await command(store, "DEL", key)
    await command(store, *(word.format(key=key) if isinstance(word, str) else word for word in TYPES[kind]))
    await command(store, "PEXPIRE", key, 60_000)


# -- ledgers


async def read_ledger(store: RedisStore) -> tuple[Arrival, ...]:
    """What a reader does: where there is no ledger, it begins one and reads again."""
    try:
        return (await store.ledger.read(ANN, START, 100)).entries
    except NoLedger:
        await store.ledger.begin(ANN, [seen(90)], Baseline(newest_id=90))
        return (await store.ledger.read(ANN, START, 100)).entries


async def two_ledgers(store: RedisStore) -> None:
    """Ann's, with every key that a ledger can have, and Ben's."""
    for caller in (ANN, BEN):
        await store.ledger.forget(caller)
    for caller in (ANN, BEN):
        await store.ledger.begin(caller, [seen(1), seen(2)], Baseline(newest_id=2))
        state = (await store.ledger.append(caller, [seen(3)], "push")).state
        await store.ledger.set_roots(caller, {3: 1})
        await store.ledger.note_returned(caller, above=[2], position=3, head=state.head)
    key = store.topology.key(ANN, "gone")
    await command(store, "HSET", key, "70", "5.0")
    await command(store, "PEXPIRE", key, 60_000)


PARTS = {"meta": "hash", "entries": "stream", "index": "hash", "gone": "hash", "marks": "zset"}

META = [
    ("epoch", b"\xff\xfe"),
    *((name, value) for name in ("last", "low") for value in ("x", "", "5", "5-x", "-5-5", "9" * 30 + "-0")),
    *((name, value) for name in ("baseline_id", "verified") for value in ("x", "", "-1", "1.5", MAX_ID + 1, "9" * 40)),
    *((name, value) for name in ("baseline_time", "settled_time", "ahead") for value in ("x", "", "nan", "1e999")),
    *(("settled_id", value) for value in ("x", MAX_ID + 1)),
]
"""A field of the meta hash, and what stands there instead of what belongs there."""

FIELDS = ("id", "pid", "root", "from", "flags", "sent", "source")
ENTRY = [
    *((name, value) for name in ("id", "pid", "root") for value in ("x", "-1", MAX_ID + 1, "9" * 40, "1.5")),
    ("id", ""),
    ("root", ""),
    ("from", b"\xff\xfe"),
    ("flags", "loud"),
    ("sent", "soon"),
    ("sent", "nan"),
    ("sent", ""),
    ("source", "hearsay"),
]


async def assert_healed(store: RedisStore, before: float, *, dropped: bool = True) -> None:
    """Ann's ledger is read within one call, and can be used; Ben's is as it was; the store counts as there."""
    if dropped:
        assert [entry.id for entry in await read_ledger(store)] == [90]
        assert unreadable() > before
    appended = await store.ledger.append(ANN, [seen(100)], "push")
    assert [entry.id for entry in appended.new] == [100]
    assert (await store.ledger.find(ANN, [100])).entries.keys() == {100}
    await store.ledger.note_returned(ANN, above=[100], position=100, head=appended.state.head)
    assert (await read_ledger(store))[-1].returned
    theirs = (await store.ledger.read(BEN, START, 10)).entries
    assert [(entry.id, entry.root, entry.returned) for entry in theirs] == [(1, 0, False), (2, 0, True), (3, 1, False)]
    assert (await store.ledger.find(BEN, [3])).handed_out == {3}
    assert store.availability.away_since_s is None


@pytest.mark.parametrize("part", PARTS)
async def test_a_ledger_with_a_key_of_a_wrong_type_begins_anew(store: RedisStore, part: str) -> None:
    for kind in TYPES.keys() - {PARTS[part]}:
        await two_ledgers(store)
        before = unreadable()
        await replace(store, store.topology.key(ANN, part), kind)
        await assert_healed(store, before, dropped=part not in ("gone", "marks"))
        assert unreadable() > before


async def test_a_ledger_with_a_garbled_meta_begins_anew(real: RedisStore) -> None:
    for name, value in META:
        await two_ledgers(real)
        before = unreadable()
        await command(real, "HSET", real.topology.key(ANN, "meta"), name, value)
        await assert_healed(real, before)


async def test_a_ledger_that_lacks_a_field_begins_anew(real: RedisStore) -> None:
    for missing in ("epoch", "last", "low", "baseline_id", "baseline_time", "verified"):
        await two_ledgers(real)
        before = unreadable()
        await command(real, "HDEL", real.topology.key(ANN, "meta"), missing)
        await assert_healed(real, before)


async def add_entry(store: RedisStore, fields: dict[str, Any]) -> None:
    """Add an entry behind the ledger's back, so that everything else fits it."""
    state = await store.ledger.state(ANN)
    assert state is not None
    at = str(state.last.following(0))
    words = [word for pair in fields.items() for word in pair]
    await command(store, "XADD", store.topology.key(ANN, "entries"), at, *words)
    await command(store, "HSET", store.topology.key(ANN, "index"), 80, at)
    await command(store, "HSET", store.topology.key(ANN, "meta"), "last", at)


GOOD = dict(zip(FIELDS, ("80", "", "80", "@bob@b.test", "", "5.0", "push"), strict=True))


async def test_a_ledger_with_a_garbled_entry_begins_anew(real: RedisStore) -> None:
    garbled: list[dict[str, Any]] = [{**GOOD, name: value} for name, value in ENTRY]
    for fields in [*garbled, {"x": "y"}, {"id": "80"}, {**GOOD, "more": "x"}]:
        await two_ledgers(real)
        before = unreadable()
        await add_entry(real, fields)
        await assert_healed(real, before)


async def test_a_ledger_with_a_garbled_index_begins_anew_where_it_is_used(real: RedisStore) -> None:
    for value in ("x", "", "5-5-5", "1 x", "77-0"):
        await two_ledgers(real)
        before = unreadable()
        await command(real, "HSET", real.topology.key(ANN, "index"), 3, value)
        with pytest.raises(NoLedger):
            await real.ledger.find(ANN, [3])
        await assert_healed(real, before)


async def test_a_ledger_whose_late_entries_are_garbled_begins_anew_where_they_are_asked_for(real: RedisStore) -> None:
    for value in ("x", "1 2", "1 2 3;", b"\xff"):
        await two_ledgers(real)
        before = unreadable()
        await command(real, "HSET", real.topology.key(ANN, "meta"), "late", value)
        assert await real.ledger.late(ANN) == ()
        await assert_healed(real, before)


async def test_a_garbled_memory_of_what_was_trimmed_begins_the_ledger_anew(real: RedisStore) -> None:
    for value in ("x", "", "1e5x"):
        await two_ledgers(real)
        before = unreadable()
        await command(real, "HSET", real.topology.key(ANN, "gone"), 70, value)
        with pytest.raises(NoLedger):
            await real.ledger.append(ANN, [], "poll", verified_id=5000)
        await assert_healed(real, before)


Call = Callable[[RedisStore], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "state": lambda store: store.ledger.state(ANN),
    "heads": lambda store: store.ledger.heads([ANN, BEN]),
    "begin": lambda store: store.ledger.begin(ANN, [seen(90)], Baseline(newest_id=90)),
    "compare": lambda store: store.ledger.compare(ANN, [seen(3)]),
    "append": lambda store: store.ledger.append(ANN, [seen(4)], "push"),
    "read": lambda store: store.ledger.read(ANN, START, 10),
    "read_back": lambda store: store.ledger.read_back(ANN, 10),
    "late": lambda store: store.ledger.late(ANN),
    "find": lambda store: store.ledger.find(ANN, [3]),
    "set_roots": lambda store: store.ledger.set_roots(ANN, {2: 1}),
    "note_returned": lambda store: store.ledger.note_returned(ANN, above=[3]),
    "forget": lambda store: store.ledger.forget(ANN),
}


async def test_whatever_is_asked_of_it_is_answered_as_if_it_were_absent(real: RedisStore) -> None:
    for part in PARTS:
        for name, call in CALLS.items():
            await two_ledgers(real)
            await replace(real, real.topology.key(ANN, part), "string")
            try:
                await call(real)
            except NoLedger:
                assert name not in ("state", "heads", "begin", "late", "note_returned", "forget")
            assert list(await real.ledger.heads([BEN])) != [None]
            assert real.availability.away_since_s is None
            await real.ledger.begin(ANN, [seen(90)], Baseline(newest_id=90))
            assert await real.ledger.read_back(ANN, 1)


# -- what surrounds them


async def busy(store: RedisStore) -> None:
    """Two callers with everything that is kept of them, a daemon and a task."""
    for caller in (ANN, BEN):
        await store.activations.activate(
            caller, address="@x@a.test", api_url="https://a.test", token="t", token_expires_at_s=time.time() + 600.0
        )
        await store.activations.report(caller, FeedReport(state="live", daemon="d", since_s=1.0))
        await store.documents.store(caller, "kind", "name", b"data", expected=0, ttl_s=60.0)
    await store.fleet.beat(Member(id="d", name="d", since_s=1.0))
    await store.fleet.take([ANN, BEN], "d", over={})
    await store.deferred.add(DeferredTask(kind="delete_draft", caller=ANN, message_id=1, due_s=1.0))
    await store.shared_tokens.share(
        "key", "https://a.test", AccessToken(value="v", address="@x@a.test", expires_at_s=time.time() + 600.0)
    )


async def work(store: RedisStore) -> None:
    """Everything that is asked of what surrounds the ledgers."""
    await busy(store)
    for caller in (ANN, BEN):
        await store.activations.get(caller)
        await store.activations.feed(caller)
        await store.documents.load(caller, "kind", "name")
        await store.documents.names(caller, "kind")
    await store.activations.active()
    await store.activations.count()
    await store.activations.settled([ANN, BEN])
    await store.activations.feeds(limit=10)
    await store.fleet.members()
    await store.fleet.holders([ANN, BEN])
    await store.fleet.sweep()
    await store.fleet.release([ANN], "d")
    await store.deferred.due(10)
    await store.deferred.depth()
    await store.shared_tokens.find("key", "https://a.test")
    await store.processes.present()
    await store.ping()


async def names(store: RedisStore) -> list[str]:
    return sorted(key.decode() for key in await command(store, "KEYS", "*"))


async def test_no_key_of_a_wrong_type_keeps_anything_from_working(store: RedisStore) -> None:
    """Each in turn, whatever it is: it is dropped and made anew, and costs the others nothing."""
    await busy(store)
    await store.ping()
    for key in await names(store):
        held = (await command(store, "TYPE", key)).decode()
        if ":doc:" in key:
            continue
        await replace(store, key, "string" if held == "hash" else "hash")
        await work(store)
        assert store.availability.away_since_s is None, key
        await busy(store)
        found = await store.activations.get(BEN)
        assert found is not None, key
        assert found.token == "t"
        assert list(await store.activations.settled([ANN, BEN])) == [True, True], key
        assert (await store.documents.load(BEN, "kind", "name")).data == b"data"
        assert (await store.fleet.holders([BEN]))[BEN].daemon == "d"
        assert await store.deferred.depth() == 1
        assert await store.shared_tokens.find("key", "https://a.test") is not None


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "hash"])
async def test_a_document_of_a_wrong_type_is_damaged_and_can_be_deleted(store: RedisStore, kind: str) -> None:
    """Taken for absent, a record of what was sent would let it be sent twice."""
    await busy(store)
    await replace(store, store.topology.key(ANN, "doc:kind:name"), kind)
    found = await store.documents.load(ANN, "kind", "name")
    assert found.version < 0
    assert not await store.documents.store(ANN, "kind", "name", b"new", expected=found.version, ttl_s=60.0)
    assert await store.documents.delete(ANN, "kind", "name")
    assert await store.documents.store(ANN, "kind", "name", b"new", expected=0, ttl_s=60.0)
    assert store.availability.away_since_s is None


async def test_a_count_of_leases_that_is_damaged_goes_on_above_all_that_were_given(store: RedisStore) -> None:
    await busy(store)
    before = (await store.fleet.holders([ANN]))[ANN].epoch
    for shard in [key for key in await names(store) if key.endswith(":held")]:
        await command(store, "HSET", shard, "", "many")
    after = await store.fleet.take([ANN], "e", over={ANN: "d"})
    assert after[ANN].daemon == "e"
    assert after[ANN].epoch > before


async def test_what_the_server_refuses_is_no_damage(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full server, or one that does not know a command, drops nothing."""
    await two_ledgers(store)
    send = store.topology.commands.execute_command

    async def refusing(*words: Any, **options: Any) -> Any:
        if words[0] == "EVALSHA":
            raise faults.ResponseError("Error running script (call to f_1): @user_script:1: Unknown Redis command")
        return await send(*words, **options)

    monkeypatch.setattr(store.topology.commands, "execute_command", refusing)
    with pytest.raises(LedgerUnavailable):
        await store.ledger.read(ANN, START, 10)
    assert store.availability.away_since_s is not None
    monkeypatch.undo()
    assert len((await store.ledger.read(ANN, START, 10)).entries) == 3
