from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from ledger.embedded import EmbeddedRedis
from ledger.port import LedgerUnavailable, NoLedger
from ledger.redis.topology import connect
from ledger.values import START, Baseline, CallerKey, LedgerLimits, Seen
from tests.conftest import RedisServers, flush
from tests.contract.backends import RedisBackend, redis_backend

ALICE = CallerKey("a1" * 16)
KEYS = {f"fmsg:{{{ALICE}}}:{part}".encode() for part in ("meta", "entries", "index", "marks")}
EMPTY_BYTES, IDLE_BYTES = 1_000, 10 * 1024
"""What the ledger of an idle caller may cost, all its keys together: empty, and with 64 entries (`docs/ledger.md`). The
C library's allocator, which Valkey's package uses, rounds by some dozen bytes more or less from run to run."""


def seen(message_id: int, *, pid: int | None = None, sent_at_s: float = 1.7e9) -> Seen:
    sender = f"@agent-{message_id % 1000:04d}@fleet.example.com"
    return Seen(id=message_id, pid=pid, root=0, from_=sender, sent_at_s=sent_at_s)


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
    state = await backend.ledger.begin(ALICE, [seen(1), seen(2)], Baseline(newest_id=2))
    await backend.ledger.note_returned(ALICE, above=[1], position=2, head=state.head)
    return backend


def direct(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url)


async def test_every_key_expires_and_appending_puts_it_off(server: EmbeddedRedis, begun: RedisBackend) -> None:
    limits = LedgerLimits()
    with direct(server) as client:
        assert set(client.keys("*")) == KEYS
        for key in KEYS:
            longest_s = limits.returned_ttl_s if key.endswith(b":marks") else limits.ttl_s
            assert longest_s - 60 < client.ttl(key) <= longest_s
            client.expire(key, 100)
        await begun.ledger.append(ALICE, [], "poll")
        assert {key for key in KEYS if client.ttl(key) > 100} == KEYS - {b"fmsg:{%s}:marks" % ALICE.encode()}
        for key in KEYS:
            client.expire(key, 100)
        await begun.ledger.note_returned(ALICE, above=[2])
        assert all(client.ttl(key) > 100 for key in KEYS)


async def test_an_idle_caller_is_cheap(server: EmbeddedRedis, backend: RedisBackend) -> None:
    first_id = 2_500_000
    snapshot = [seen(first_id + k, pid=first_id + k - 1 if k % 2 else None, sent_at_s=1.7e9 + k) for k in range(64)]
    base = Baseline(newest_id=first_id + 63, time_s=1.7e9)
    with direct(server) as client:
        await backend.ledger.begin(ALICE, [], base)
        assert sum(client.memory_usage(key, samples=0) for key in client.keys("*")) <= EMPTY_BYTES
        await backend.ledger.forget(ALICE)
        state = await backend.ledger.begin(ALICE, snapshot, base)
        ids = range(first_id, first_id + 3)
        assert await backend.ledger.note_returned(ALICE, above=ids, position=first_id + 63, head=state.head)
        assert set(client.keys("*")) == KEYS
        assert sum(client.memory_usage(key, samples=0) for key in KEYS) <= IDLE_BYTES


@pytest.mark.parametrize("lost", ["meta", "entries", "index"])
async def test_a_ledger_that_lost_a_part_is_none(server: EmbeddedRedis, begun: RedisBackend, lost: str) -> None:
    with direct(server) as client:
        client.delete(f"fmsg:{{{ALICE}}}:{lost}")
    with pytest.raises(NoLedger):
        await begun.ledger.append(ALICE, [seen(3)], "push")
    assert await begun.ledger.state(ALICE) is None
    state = await begun.ledger.begin(ALICE, [seen(7)], Baseline(newest_id=7))
    assert state.held == 1


async def test_marks_are_limited_and_expire_one_by_one(server: EmbeddedRedis) -> None:
    async with redis_backend(lambda: connect(server.url), LedgerLimits(max_marks=3)) as backend:
        state = await backend.ledger.begin(ALICE, [seen(k) for k in range(1, 5)], Baseline())

        async def marks() -> tuple[set[int], set[int]]:
            held = (await backend.ledger.read(ALICE, START, 10)).entries
            found = await backend.ledger.find(ALICE, range(1, 5))
            return {entry.id for entry in held if entry.returned}, set(found.handed_out)

        await backend.ledger.note_returned(ALICE, above=[1, 2])
        await backend.ledger.note_returned(ALICE, above=[1, 3, 4])
        assert await marks() == ({1, 3, 4}, set())
        await backend.ledger.note_returned(ALICE, position=4, head=state.head)
        assert await marks() == ({3, 4}, {4})
        with direct(server) as client:
            client.zadd(f"fmsg:{{{ALICE}}}:marks", {"r3": 1_000_000, "p4": 1_000_000})
            assert await marks() == ({4}, set())
            await backend.ledger.note_returned(ALICE, above=[2])
            assert set(client.zrange(f"fmsg:{{{ALICE}}}:marks", 0, -1)) == {b"r4", b"r2"}


async def test_a_full_server_refuses_whole_and_still_reads(server: EmbeddedRedis, begun: RedisBackend) -> None:
    with direct(server) as client:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(LedgerUnavailable, match="maxmemory"):
                await begun.ledger.append(ALICE, [seen(3), seen(4)], "push")
            kept = await begun.ledger.read(ALICE, START, 10)
        finally:
            client.config_set("maxmemory", "0")
    assert [arrival.id for arrival in kept.entries] == [1, 2]
    appended = await begun.ledger.append(ALICE, [seen(3), seen(4)], "push")
    assert [arrival.id for arrival in appended.new] == [3, 4]


async def test_two_processes_see_one_ledger(server: EmbeddedRedis, begun: RedisBackend) -> None:
    async with redis_backend(lambda: connect(server.url)) as other:
        batches = [[seen(k) for k in range(start, start + 40)] for start in range(3, 60, 5)]
        await asyncio.gather(*(one.ledger.append(ALICE, batch, "push") for one in (begun, other) for batch in batches))
        entries = (await other.ledger.read(ALICE, START, 1000)).entries
    assert [arrival.at for arrival in entries] == sorted({arrival.at for arrival in entries})
    assert sorted(arrival.id for arrival in entries) == list(range(1, 98))


async def test_prefixes_do_not_mix(server: EmbeddedRedis, begun: RedisBackend) -> None:
    async with redis_backend(lambda: connect(server.url, prefix="other")) as other:
        assert await other.ledger.state(ALICE) is None
        await other.ledger.forget(ALICE)
    assert await begun.ledger.state(ALICE) is not None


async def test_nothing_but_references_and_headers_is_kept_and_anybody_can_read_it(
    server: EmbeddedRedis, begun: RedisBackend
) -> None:
    await begun.ledger.append(ALICE, [seen(3, pid=2)], "push")
    (arrived,) = (await begun.ledger.find(ALICE, [3])).entries.values()
    with direct(server) as client:
        assert client.xrange(f"fmsg:{{{ALICE}}}:entries", str(arrived.at))[0] == (
            str(arrived.at).encode(),
            {
                b"id": b"3",
                b"pid": b"2",
                b"root": b"0",
                b"from": b"@agent-0003@fleet.example.com",
                b"flags": b"",
                b"sent": b"1700000000.0",
                b"source": b"push",
            },
        )


async def test_the_servers_own_clock_gives_the_ids(server: EmbeddedRedis, begun: RedisBackend) -> None:
    with direct(server) as client:
        before = client.time()
        appended = await begun.ledger.append(ALICE, [seen(3)], "push")
        after = client.time()
    assert before[0] * 1000 + before[1] // 1000 <= appended.new[0].at.ms <= after[0] * 1000 + after[1] // 1000
