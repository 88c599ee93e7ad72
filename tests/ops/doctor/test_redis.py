from __future__ import annotations

import time

import pytest
import redis

from ledger.embedded import EmbeddedRedis, free_port, packaged_servers
from ledger.redis.operators import ServerFacts
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import CallerKey
from ops.doctor.findings import Finding
from ops.doctor.redis import RedisChecks, judged
from ops.doctor.trials import FULL

SEAL = SealKeys.parse(SealKeys.generate())
API_URL = "https://api.example.com"
RIGHTS = (
    "~fmsg:* &fmsg:* -@all +@read +@write +@scripting +@pubsub +@connection -@dangerous +time +info +client|setname"
)
"""What docs/ledger.md says a user needs."""

QUEUE_RIGHTS = "~arq:* +@transaction"
"""What it says a worker's user needs besides."""

GOOD = ServerFacts(
    product="Redis",
    version="7.2.4",
    redis_version="7.2.4",
    role="master",
    eviction="noeviction",
    persists=True,
    used_memory_bytes=2**20,
    max_memory_bytes=0,
)


async def examine(
    url: str, *, seal: SealKeys | None = SEAL, queue: bool = True, clock: object = time.time
) -> dict[str, Finding]:
    checks = RedisChecks(
        url,
        prefix="fmsg",
        seal=seal,
        queue_url=url if queue else None,
        api_url=API_URL,
        clock=clock,  # type: ignore[arg-type]  # a clock
    )
    return {found.check: found async for found in checks.run()}


def user_url(server: EmbeddedRedis, rights: str, *, name: str = "doctor") -> str:
    """The server, as a user with these rights."""
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", name, "reset", "on", ">s3cret-word", *rights.split())
    return f"redis://{name}:s3cret-word@127.0.0.1:{server.port}/0"


async def test_a_good_server_is_fine_and_stays_clean(redis_server: EmbeddedRedis, redis_url: str) -> None:
    found = await examine(redis_url)
    assert {name: one.level for name, one in found.items() if one.level != "ok"} == {"redis persistence": "warning"}
    assert list(found) == [
        "redis",
        "redis server",
        "redis eviction",
        "redis persistence",
        "redis memory",
        "redis clock",
        "redis rights",
        "redis notifications",
        "seal key",
        "job queue",
    ]
    assert redis_server.password not in str(found)
    with redis.Redis.from_url(redis_url) as client:
        left = {key: client.pttl(key) for key in client.scan_iter()}
    assert all(0 < ttl_ms <= 60_000 for ttl_ms in left.values()), left
    assert all(key.startswith((b"fmsg:{", b"fmsg:doctor:{", b"arq:result:fmsg:doctor")) for key in left), left


async def test_nobody_listens() -> None:
    found = await examine(f"redis://127.0.0.1:{free_port()}")
    assert list(found) == ["redis"]
    assert found["redis"].level == "failure"
    assert "start Redis" in found["redis"].do


async def test_a_password_that_is_wrong(redis_server: EmbeddedRedis) -> None:
    found = await examine(f"redis://:hunter2@127.0.0.1:{redis_server.port}/0")
    assert list(found) == ["redis"]
    assert found["redis"].do.startswith("Correct user and password")


async def test_the_rights_that_are_documented_are_enough(redis_server: EmbeddedRedis, redis_url: str) -> None:
    found = await examine(user_url(redis_server, RIGHTS), queue=False)
    assert {name for name, one in found.items() if one.level == "failure"} == set()
    found = await examine(user_url(redis_server, f"{RIGHTS} {QUEUE_RIGHTS}"))
    assert {name for name, one in found.items() if one.level == "failure"} == set()


@pytest.mark.parametrize(
    ("rights", "failing", "told"),
    [
        (RIGHTS.replace("+@scripting", ""), {"redis rights"}, "6 of 6 parts fail"),
        (RIGHTS.replace("+@pubsub", ""), {"redis rights", "redis notifications"}, "ledger"),
        (RIGHTS.replace("&fmsg:*", ""), {"redis rights", "redis notifications"}, "ledger"),
        (RIGHTS.replace("~fmsg:*", "~other:*"), {"redis rights"}, "parts fail"),
    ],
)
async def test_rights_that_are_missing(
    redis_server: EmbeddedRedis, redis_url: str, rights: str, failing: set[str], told: str
) -> None:
    found = await examine(user_url(redis_server, rights), seal=None, queue=False)
    assert {name for name, one in found.items() if one.level == "failure"} == failing
    assert told in found["redis rights"].came
    assert "docs/ledger.md" in found["redis rights"].do
    assert "s3cret-word" not in str(found)


async def test_a_user_that_may_not_ask_what_the_server_is(redis_server: EmbeddedRedis, redis_url: str) -> None:
    found = await examine(user_url(redis_server, RIGHTS.replace("+info", "")), queue=False)
    assert found["redis server"].level == "warning"
    assert "`+info`" in found["redis server"].do


async def test_a_queue_that_may_not_be_used(redis_server: EmbeddedRedis, redis_url: str) -> None:
    found = (await examine(user_url(redis_server, RIGHTS)))["job queue"]
    assert found.level == "failure"
    assert "~arq:*" in found.do


@pytest.mark.parametrize("program", ["redis-server", "valkey-server"])
async def test_a_full_server_is_called_full_and_nothing_else(program: str) -> None:
    path = next((path for path in packaged_servers() if path.name == program), None)
    if path is None:
        pytest.skip(f"{program} is not installed")
    async with EmbeddedRedis(program=path, config=["maxmemory 1kb"]) as server:
        found = await examine(server.url)
    failed = {name: one for name, one in found.items() if one.level == "failure"}
    assert set(failed) == {"redis memory", "redis rights", "job queue"}
    assert {one.do for one in failed.values()} == {FULL}
    assert "it is full" in failed["redis memory"].came
    assert failed["redis rights"].came.count("command not allowed") == 1
    for one in failed.values():
        assert one.came.isprintable()
        assert len(one.came) < 200
        assert "\ufffd" not in one.came


async def test_a_queue_in_another_redis_is_named_by_its_own_variable(redis_url: str) -> None:
    queue_url = f"redis://127.0.0.1:{free_port()}"
    checks = RedisChecks(redis_url, prefix="fmsg", seal=SEAL, queue_url=queue_url, api_url=API_URL)
    found = {one.check: one async for one in checks.run()}["job queue"]
    assert found.level == "failure"
    assert "correct host and port in FMSG_QUEUE_REDIS_URL" in found.do


async def test_clocks_are_compared(redis_url: str) -> None:
    found = (await examine(redis_url, queue=False, clock=lambda: time.time() - 90.0))["redis clock"]
    assert found.level == "warning"
    assert "Redis is 90 s ahead of us" in found.came


async def test_a_seal_key_that_the_others_have_not(redis_store: RedisStore, redis_url: str) -> None:
    await redis_store.activations.activate(
        CallerKey("a" * 32), address="@ann@a.test", api_url=API_URL, token=None, token_expires_at_s=0.0
    )
    found = (await examine(redis_url, queue=False))["seal key"]
    assert found.level == "failure"
    assert "none of 1 records opens" in found.came


async def test_the_same_seal_key_and_the_same_host(redis_url: str) -> None:
    async with RedisStore(redis_url, seal=SEAL) as store:
        for number, api_url in enumerate((API_URL, f"{API_URL}/")):
            await store.activations.activate(
                CallerKey(f"{number:032x}"), address="@ann@a.test", api_url=api_url, token=None, token_expires_at_s=0.0
            )
        assert (await examine(redis_url, queue=False))["seal key"].came == "2 of 2 records open"
        await store.activations.activate(
            CallerKey("b" * 32), address="@b@b.test", api_url="https://b.test", token=None, token_expires_at_s=0.0
        )
    found = (await examine(redis_url, queue=False))["seal key"]
    assert found.level == "failure"
    assert "https://b.test" in found.came


async def test_without_a_seal_key_nobodys_records_are_opened(redis_url: str) -> None:
    assert "seal key" not in await examine(redis_url, seal=None, queue=False)


@pytest.mark.parametrize(
    ("field", "value", "check", "level", "do"),
    [
        ("redis_version", "6.0.16", "redis server", "failure", "Too old"),
        ("role", "slave", "redis server", "failure", "primary"),
        ("eviction", "allkeys-lru", "redis eviction", "warning", "Set it to noeviction"),
        ("persists", False, "redis persistence", "warning", "appendonly yes"),
        ("max_memory_bytes", 2**20, "redis memory", "failure", "The server is full"),
        ("max_memory_bytes", 2**20 + 1, "redis memory", "warning", "Raise maxmemory"),
    ],
)
def test_each_fault_of_a_server_has_its_line(field: str, value: object, check: str, level: str, do: str) -> None:
    facts = ServerFacts(**{**{name: getattr(GOOD, name) for name in GOOD.__struct_fields__}, field: value})
    (found,) = [one for one in judged(facts) if one.level != "ok"]
    assert (found.check, found.level) == (check, level)
    assert do in found.do


def test_a_good_server_has_none() -> None:
    assert [one.level for one in judged(GOOD)] == ["ok"] * 4
