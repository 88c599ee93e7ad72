from __future__ import annotations

from pathlib import Path

import pytest

from ledger.embedded import EmbeddedRedis, packaged_servers
from ledger.port import LedgerUnavailable
from ledger.redis.operators import ServerFacts, server_facts
from ledger.redis.scripts import Scripts
from ledger.redis.topology import connect
from tests.fake_redis import FakeTopology

GOOD = {
    "product": "Redis",
    "version": "7.2.4",
    "redis_version": "7.2.4",
    "role": "master",
    "eviction": "noeviction",
    "persists": True,
    "used_memory_bytes": 1,
    "max_memory_bytes": 0,
}


def test_a_good_server_needs_no_advice() -> None:
    assert ServerFacts(**GOOD).advice() == ()  # type: ignore[arg-type]  # the fields are right


@pytest.mark.parametrize(
    ("field", "value", "advice"),
    [
        ("redis_version", "6.0.16", "too old"),
        ("role", "slave", "replica"),
        ("eviction", "allkeys-lru", "Set it to noeviction"),
        ("persists", False, "appendonly yes"),
    ],
)
def test_each_fault_has_its_advice(field: str, value: object, advice: str) -> None:
    (told,) = ServerFacts(**{**GOOD, field: value}).advice()  # type: ignore[arg-type]  # the fields are right
    assert advice in told


@pytest.mark.parametrize("program", [pytest.param(program, id=program.name) for program in packaged_servers()])
async def test_a_real_server_tells_what_it_is(program: Path) -> None:
    async with EmbeddedRedis(program=program, persist=True, config=["maxmemory 50mb"]) as server:
        topology = connect(server.url)
        facts = await server_facts(Scripts(topology.commands))
        await topology.aclose()
    assert facts.advice() == ()
    assert facts.product in ("Redis", "Valkey")
    assert (facts.product == "Valkey") == ("valkey" in program.name)
    assert facts.max_memory_bytes == 50 * 2**20
    assert facts.used_memory_bytes > 0


async def test_a_server_that_does_not_tell_is_said() -> None:
    topology = FakeTopology()
    with pytest.raises(LedgerUnavailable, match="info"):
        await server_facts(Scripts(topology.commands))
    await topology.aclose()
