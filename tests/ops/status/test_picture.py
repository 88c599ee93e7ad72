from __future__ import annotations

import time

import pytest
import redis

from ledger.embedded import EmbeddedRedis, free_port
from ledger.operators import Process
from ledger.port import ActiveFeed, DeferredTask, FeedReport, LedgerUnavailable, Member
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import CallerKey
from ops.status.picture import (
    OWNERLESS,
    UNREPORTED,
    CallerCounts,
    QueueState,
    callers_of,
    daemons_of,
    look_at_queue,
    take_picture,
)
from ops.status.problems import problems_of
from workers.queue import ArqQueue

SEAL = SealKeys.parse(SealKeys.generate())


def key(number: int) -> CallerKey:
    return CallerKey(f"{number:032x}")


def feed(number: int, state: str | None, *, daemon: str = "d1", error: str | None = None) -> ActiveFeed:
    report = None
    if state is not None:
        report = FeedReport(state=state, daemon=daemon, since_s=1.0, error=error, needs_credential=state == "asking")
    return ActiveFeed(caller=key(number), asked_at_s=1.0, has_token=True, report=report)


def test_callers_are_counted_by_how_their_feeds_do() -> None:
    feeds = [
        feed(1, "live"),
        feed(2, "live", daemon="gone"),
        feed(3, "asking", error="no token"),
        feed(4, "asking", error="no token"),
        feed(5, "backing_off", error="503"),
        feed(6, None),
    ]
    assert callers_of(feeds, active=10, alive={"d1"}) == CallerCounts(
        active=10,
        looked_at=6,
        live=1,
        states={"asking": 2, OWNERLESS: 1, "backing_off": 1, UNREPORTED: 1},
        needs_credential=2,
        errors=(("no token", 2), ("503", 1)),
    )


def test_a_daemon_is_known_by_its_name() -> None:
    process = Process(id="daemon-box-1-x", role="daemon", name="box-1", version="1", since_s=1.0)
    members = [
        Member(id="box-1-a", name="box-1", since_s=1.0, load=30),
        Member(id="box-2-b", name="box-2", since_s=2.0, load=10, draining=True),
    ]
    first, second = daemons_of(members, [process, process])
    assert (first.share, first.process, first.draining) == (0.75, process, False)
    assert (second.share, second.process, second.draining) == (0.25, None, True)
    assert daemons_of([Member(id="a", name="a", since_s=1.0)], [])[0].share == 0.0


async def test_a_picture_shows_what_is_in_redis(redis_store: RedisStore, redis_url: str) -> None:
    await redis_store.fleet.beat(Member(id="box-1-a", name="box-1", since_s=1.0, load=1))
    await redis_store.processes.announce(
        Process(id="f", role="front", name="box", version="1", since_s=1.0, facts={"waits_held": 3.0})
    )
    await redis_store.activations.activate(
        key(1), address="@ann@a.test", api_url="https://a.test", token=None, token_expires_at_s=0.0
    )
    await redis_store.activations.report(key(1), FeedReport(state="live", daemon="box-1-a", since_s=1.0))
    await redis_store.deferred.add(DeferredTask(kind="delete_draft", caller=key(1), message_id=1, due_s=1.0))
    shown = await take_picture(redis_store, queue_url=redis_url)
    assert abs(shown.at_s - time.time()) < 30
    assert 0.0 < shown.round_trip_s < 5.0
    assert shown.server is not None
    assert [daemon.feeds for daemon in shown.daemons] == [1]
    assert [process.facts for process in shown.of_role("front")] == [{"waits_held": 3.0}]
    assert (shown.callers.active, shown.callers.live) == (1, 1)
    assert (shown.queue, shown.deferred) == (QueueState(), 1)


async def test_a_store_that_takes_no_write_is_told(redis_server: EmbeddedRedis, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.execute_command("ACL", "SETUSER", "reader", "reset", "on", ">word", "~*", "&*", "+@all", "-xadd")
    async with RedisStore(f"redis://reader:word@127.0.0.1:{redis_server.port}/0", seal=SEAL) as store:
        assert "xadd" in ((await take_picture(store, queue_url=redis_url)).refuses or "")


@pytest.mark.parametrize("how", ["replica", "too few replicas"])
async def test_a_redis_that_refuses_what_readers_tidy_up_is_told_too(
    redis_server: EmbeddedRedis, redis_store: RedisStore, redis_url: str, how: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        try:
            if how == "replica":
                client.replicaof("127.0.0.1", "1")
            else:
                client.config_set("min-replicas-to-write", 1)
            shown = await take_picture(redis_store, queue_url=redis_url)
        finally:
            client.replicaof("NO", "ONE")
            client.config_set("min-replicas-to-write", 0)
    assert "replica" in (shown.refuses or "").lower()
    assert problems_of(shown)[0].level == "bad"
    assert "refuses writes" in problems_of(shown)[0].what


async def test_without_the_seal_key_feeds_are_counted_as_the_daemons_announce_them(
    redis_store: RedisStore, redis_url: str
) -> None:
    await redis_store.activations.activate(
        key(1), address="@ann@a.test", api_url="https://a.test", token=None, token_expires_at_s=0.0
    )
    facts = {"feeds_live": 40.0, "feeds_asking": 2.0, "sockets": 40.0}
    await redis_store.processes.announce(Process(id="d", role="up", name="box", version="1", since_s=1.0, facts=facts))
    async with RedisStore(redis_url, seal=SealKeys.parse(SealKeys.generate())) as stranger:
        found = (await take_picture(stranger, queue_url=redis_url, sealed=True)).callers
    assert found == CallerCounts(active=1, looked_at=42, live=40, states={"asking": 2}, needs_credential=2, errors=())


async def test_redis_that_is_away_gives_no_picture() -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    async with RedisStore(url, seal=SEAL) as store:
        with pytest.raises(LedgerUnavailable):
            await take_picture(store, queue_url=url)


async def test_a_failure_in_between_is_the_first_one_met(
    redis_store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> int:
        raise LedgerUnavailable("gone meanwhile")

    monkeypatch.setattr(redis_store.deferred, "depth", fail)
    with pytest.raises(LedgerUnavailable, match="gone meanwhile"):
        await take_picture(redis_store, queue_url=redis_url)


async def test_a_server_that_does_not_tell_what_it_is(redis_server: EmbeddedRedis, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.execute_command("ACL", "SETUSER", "quiet", "reset", "on", ">word", "~*", "&*", "+@all", "-info")
    async with RedisStore(f"redis://quiet:word@127.0.0.1:{redis_server.port}/0", seal=SEAL) as store:
        assert (await take_picture(store, queue_url=redis_url)).server is None


class TestQueue:
    async def test_jobs_and_how_late_they_are(self, redis_url: str) -> None:
        queue = ArqQueue(redis_url, prefix="fmsg")
        assert await queue.put("sweep", job_id="1")
        await queue.aclose()
        found = await look_at_queue(redis_url, prefix="fmsg")
        assert (found.jobs, found.error) == (1, None)
        with redis.Redis.from_url(redis_url) as client:
            client.zadd(queue.name, {"old": (time.time() - 600.0) * 1000})
        found = await look_at_queue(redis_url, prefix="fmsg")
        assert found.jobs == 2
        assert 590.0 < found.late_s < 660.0

    async def test_trouble_with_it_is_told(self) -> None:
        assert "zcard" in str((await look_at_queue(f"redis://127.0.0.1:{free_port()}", prefix="fmsg")).error).lower()
        assert "Cluster" in str((await look_at_queue("redis+cluster://127.0.0.1", prefix="fmsg")).error)
