"""A value in Redis is damaged, or another version wrote it: each kind is read as what loses nothing, and told of."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import REGISTRY

from fmsg.tokens import AccessToken
from ledger.operators import Process
from ledger.port import DeferredTask, FeedReport, Member
from ledger.redis.documents import DAMAGED
from ledger.redis.topology import shard_of
from ledger.store import RedisStore
from ledger.values import CallerKey

ANN = CallerKey("a" * 32)
RUBBISH = b"\xc1\xff rubbish with a secret in it"


@pytest.fixture
def store(fake_store: RedisStore) -> RedisStore:
    """An open store."""
    return fake_store


async def damage(store: RedisStore, part: str, *, field: str | None = None, data: bytes = RUBBISH) -> None:
    """Overwrite the one key with such an end, or a field of it; how long it lives stays."""
    redis = store.topology.commands
    (key,) = [key for key in await redis.execute_command("KEYS", "*") if part in key.decode()]
    if field is None:
        await redis.execute_command("SET", key, data, "KEEPTTL")
    else:
        await redis.execute_command("HSET", key, field, data)


@contextmanager
def told(kind: str, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """It is counted under its kind, and logged without what was found."""

    def count() -> float:
        return REGISTRY.get_sample_value("fmsg_mcpd_unreadable_total", {"kind": kind}) or 0.0

    before = count()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        yield
    assert count() > before
    assert any(record.__dict__.get("action") in ("unreadable", "unseal_failed") for record in caplog.records)
    assert "rubbish" not in caplog.text + repr([record.__dict__ for record in caplog.records])


async def active(store: RedisStore) -> None:
    """A caller with a token and a live feed."""
    await store.activations.activate(
        ANN, address="@ann@a.test", api_url="https://a.test", token="t", token_expires_at_s=time.time() + 600.0
    )
    await store.activations.report(ANN, FeedReport(state="live", daemon="d", since_s=1.0))


async def test_an_activation_without_its_address_is_none(store: RedisStore, caplog: pytest.LogCaptureFixture) -> None:
    """The next request of the caller writes it anew."""
    await active(store)
    await damage(store, ":who:")
    with told("activation_who", caplog):
        assert await store.activations.get(ANN) is None
    await active(store)
    assert await store.activations.get(ANN) is not None


async def test_a_token_that_cannot_be_read_is_asked_for_again(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    await active(store)
    await damage(store, ":token:", field="sealed")
    with told("activation_token", caplog):
        found = await store.activations.get(ANN)
    assert found is not None
    assert found.token is None


async def test_a_report_that_cannot_be_read_is_not_live(store: RedisStore, caplog: pytest.LogCaptureFixture) -> None:
    """Fronts poll until the feed says it again."""
    await active(store)
    await damage(store, ":feed:", field="sealed")
    with told("activation_feed", caplog):
        assert await store.activations.feed(ANN) is None
    with told("activation_feed", caplog):
        assert [feed.report for feed in await store.activations.feeds(limit=10)] == [None]


async def test_a_shared_token_that_cannot_be_read_is_exchanged_again(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    token = AccessToken(value="v", address="@ann@a.test", expires_at_s=time.time() + 600.0)
    await store.shared_tokens.share("fmsgk_key", "https://a.test", token)
    await damage(store, "shared")
    with told("shared_token", caplog):
        assert await store.shared_tokens.find("fmsgk_key", "https://a.test") is None


async def test_a_heartbeat_that_cannot_be_read_hides_no_other(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        await store.fleet.beat(Member(id=name, name=name, since_s=1.0))
    await damage(store, ":member:one")
    with told("member", caplog):
        assert [member.id for member in await store.fleet.members()] == ["two"]


async def test_a_lease_that_cannot_be_read_is_free_and_holds_up_no_other(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Leases do not expire one by one: it would keep every daemon from planning for good."""
    await store.fleet.beat(Member(id="d", name="d", since_s=1.0))
    beside = next(key for number in range(1000) if shard_of(key := CallerKey(f"{number:032d}")) == shard_of(ANN))
    callers = [ANN, beside]
    await store.fleet.take(callers, "d", over={})
    await damage(store, ":held", field=ANN)
    with told("lease", caplog):
        found = await store.fleet.holders(callers)
    assert [found[caller].daemon for caller in callers] == ["", "d"]
    await store.fleet.release([ANN], "d")
    with told("lease", caplog):
        found = await store.fleet.take(callers, "d", over={})
    assert [found[caller].daemon for caller in callers] == ["d", "d"]


async def test_a_process_that_cannot_be_read_hides_no_other(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        await store.processes.announce(Process(id=name, role="front", name=name, version="1", since_s=1.0))
    await damage(store, ":process:one")
    with told("process", caplog):
        assert [process.id for process in await store.processes.present()] == ["two"]


async def test_a_task_that_names_nothing_is_dropped_and_holds_up_no_other(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    task = DeferredTask(kind="delete_draft", caller=ANN, message_id=5, due_s=2.0)
    await store.deferred.add(task)
    redis = store.topology.commands
    await redis.execute_command("ZADD", "fmsg:{deferred}:due", 1, RUBBISH)
    await redis.execute_command("HSET", "fmsg:{deferred}:items", RUBBISH, f"0 {int(time.time())}")
    with told("deferred_task", caplog):
        assert await store.deferred.due(10) == (task,)
    assert await store.deferred.depth() == 1


@pytest.mark.parametrize("field", ["data", "version"])
async def test_half_a_document_is_no_document_and_can_be_deleted(store: RedisStore, field: str) -> None:
    """Whoever reads it sees that it is damaged, and nobody changes it by mistake."""
    redis = store.topology.commands
    key = f"fmsg:{{{ANN}}}:doc:kind:name"
    await redis.execute_command("HSET", key, field, RUBBISH)
    await redis.execute_command("EXPIRE", key, 60)
    found = await store.documents.load(ANN, "kind", "name")
    assert (found.data, found.version) == (b"", DAMAGED)
    assert not await store.documents.store(ANN, "kind", "name", b"new", expected=found.version, ttl_s=60.0)
    assert await store.documents.delete(ANN, "kind", "name")
    assert (await store.documents.load(ANN, "kind", "name")).version == 0
