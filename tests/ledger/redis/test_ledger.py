from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from ledger.embedded import EmbeddedRedis
from ledger.port import LedgerUnavailable, NoLedger
from ledger.redis.topology import connect
from ledger.values import Baseline, CallerKey, LedgerLimits, Seen
from tests.conftest import RedisServers, flush
from tests.contract.backends import RedisBackend, redis_backend

ALICE = CallerKey("a1" * 16)
KEYS = {f"fmsg:{{{ALICE}}}:{part}".encode() for part in ("meta", "log", "ids", "ret")}
IDLE_BYTES = 6_000
"""What the ledger of an idle caller, 64 entries and all its keys, may cost. Measured: 4.9 kB on Redis 6.2, 4.7 kB on
Valkey 9.1 (`docs/ledger.md`); 10,000 idle callers then fit into 60 MB."""


def seen(message_id: int, *, pid: int | None = None) -> Seen:
    return Seen(
        id=message_id, pid=pid, root=0, from_=f"@agent-{message_id % 1000:04d}@fleet.example.com", sent_at_s=1.7e9
    )


@pytest.fixture(params=["redis-server", "valkey-server"])
def server(request: pytest.FixtureRequest, redis_servers: RedisServers) -> EmbeddedRedis:
    found = redis_servers.get(request.param)
    flush(found)
    return found


@pytest.fixture
async def backend(server: EmbeddedRedis) -> AsyncIterator[RedisBackend]:
    async with redis_backend(lambda: connect(server.url)) as found:
        yield found


@pytest.fixture
async def begun(backend: RedisBackend) -> RedisBackend:
    await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline(newest_id=2))
    await backend.ledger.note_returned(ALICE, above=[2], position=1)
    return backend


def direct(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url)


async def test_every_key_expires_and_appending_puts_it_off(server: EmbeddedRedis, begun: RedisBackend) -> None:
    limits = LedgerLimits()
    with direct(server) as client:
        assert set(client.keys("*")) == KEYS
        for key in KEYS:
            longest_s = limits.returned_ttl_s if key.endswith(b":ret") else limits.ttl_s
            assert longest_s - 60 < client.ttl(key) <= longest_s
            client.expire(key, 100)
        await begun.ledger.append(ALICE, [], "poll")
        assert {key for key in KEYS if client.ttl(key) > 100} == KEYS - {b"fmsg:{%s}:ret" % ALICE.encode()}
        for key in KEYS:
            client.expire(key, 100)
        await begun.ledger.note_returned(ALICE, above=[], position=2)
        assert all(client.ttl(key) > 100 for key in KEYS)


async def test_an_idle_caller_is_cheap(server: EmbeddedRedis, backend: RedisBackend) -> None:
    first_id = 2_500_000
    seeds = [seen(first_id + k, pid=first_id + k - 1 if k % 2 else None) for k in range(64)]
    await backend.ledger.begin(ALICE, seeds, Baseline(newest_id=first_id + 63, time_s=1.7e9))
    await backend.ledger.note_returned(ALICE, above=range(first_id, first_id + 3), position=first_id)
    with direct(server) as client:
        assert sum(client.memory_usage(key, samples=0) for key in KEYS) <= IDLE_BYTES


@pytest.mark.parametrize("lost", ["meta", "log", "ids"])
async def test_a_ledger_that_lost_a_part_is_none(server: EmbeddedRedis, begun: RedisBackend, lost: str) -> None:
    with direct(server) as client:
        client.delete(f"fmsg:{{{ALICE}}}:{lost}")
    with pytest.raises(NoLedger):
        await begun.ledger.append(ALICE, [seen(3)], "push")
    assert await begun.ledger.state(ALICE) is None
    state = await begun.ledger.begin(ALICE, [seen(7)], Baseline(newest_id=7))
    assert (state.first_n, state.last_n) == (1, 1)


async def test_marks_are_limited_and_expire_one_by_one(server: EmbeddedRedis) -> None:
    limits = LedgerLimits(max_marks=4)
    async with redis_backend(lambda: connect(server.url), limits) as backend:
        await backend.ledger.note_returned(ALICE, above=[1, 2], position=9)
        await backend.ledger.note_returned(ALICE, above=[1, 3, 4], position=9)
        assert await backend.ledger.returned(ALICE, [1, 2, 3, 4]) == {1, 3, 4}
        with direct(server) as client:
            marks = f"fmsg:{{{ALICE}}}:ret"
            client.zadd(marks, {"r1": 1_000_000, "p9": 1_000_000})
            assert await backend.ledger.returned(ALICE, [1, 3]) == {3}
            await backend.ledger.note_returned(ALICE, above=[], position=8)
            assert set(client.zrange(marks, 0, -1)) == {b"r3", b"r4", b"p8"}


async def test_a_mark_that_is_over_makes_no_position(server: EmbeddedRedis, begun: RedisBackend) -> None:
    assert (await begun.ledger.locate(ALICE, [1]))[1].handed_out
    with direct(server) as client:
        client.zadd(f"fmsg:{{{ALICE}}}:ret", {"p1": 1_000_000})
    assert not (await begun.ledger.locate(ALICE, [1]))[1].handed_out


async def test_a_full_server_refuses_whole_and_still_reads(server: EmbeddedRedis, begun: RedisBackend) -> None:
    with direct(server) as client:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(LedgerUnavailable, match="maxmemory"):
                await begun.ledger.append(ALICE, [seen(3), seen(4)], "push")
            kept = await begun.ledger.read(ALICE, 0, 10)
        finally:
            client.config_set("maxmemory", "0")
    assert [arrival.id for arrival in kept.entries] == [1, 2]
    assert (await begun.ledger.append(ALICE, [seen(3), seen(4)], "push")).new == ((3, 3), (4, 4))


async def test_two_processes_see_one_ledger(server: EmbeddedRedis, begun: RedisBackend) -> None:
    async with redis_backend(lambda: connect(server.url)) as other:
        batches = [[seen(k) for k in range(start, start + 40)] for start in range(3, 60, 5)]
        await asyncio.gather(*(one.ledger.append(ALICE, batch, "push") for one in (begun, other) for batch in batches))
        entries = (await other.ledger.read(ALICE, 0, 1000)).entries
    assert [arrival.n for arrival in entries] == list(range(1, len(entries) + 1))
    assert sorted(arrival.id for arrival in entries) == list(range(1, 98))


async def test_prefixes_do_not_mix(server: EmbeddedRedis, begun: RedisBackend) -> None:
    async with redis_backend(lambda: connect(server.url, prefix="other")) as other:
        assert await other.ledger.state(ALICE) is None
        await other.ledger.forget(ALICE)
    assert await begun.ledger.state(ALICE) is not None


async def test_nothing_but_references_and_headers_is_kept(server: EmbeddedRedis, begun: RedisBackend) -> None:
    with direct(server) as client:
        entry = client.lindex(f"fmsg:{{{ALICE}}}:log", 0)
    assert entry is not None
    assert entry[25:] == b"@agent-0001@fleet.example.com"
