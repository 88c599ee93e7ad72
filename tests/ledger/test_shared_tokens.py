from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from fmsg.tokens import AccessToken
from ledger.redis.scripts import Scripts
from ledger.redis.topology import connect
from ledger.shared_tokens import SharedTokens
from tests.fake_redis import FreezingTopology
from tests.ledger.redis_backends import BACKENDS, Backend, backend_of

KEY = "fmsgk_id1_c2VjcmV0+/="
URL = "https://here.test"


def token(life_s: float = 600.0) -> AccessToken:
    return AccessToken(value="header.claims.signature", address="@ann@here.test", expires_at_s=time.time() + life_s)


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with backend_of(request.param, request) as made:
        yield made


@pytest.fixture
def shared(backend: Backend) -> SharedTokens:
    return SharedTokens(backend.scripts, backend.topology)


async def test_who_has_the_key_finds_the_token(shared: SharedTokens, backend: Backend) -> None:
    left = token()
    await shared.share(KEY, URL, left)
    assert await SharedTokens(backend.scripts, backend.topology).find(KEY, URL + "/") == left


async def test_who_has_another_key_or_host_finds_nothing(shared: SharedTokens) -> None:
    await shared.share(KEY, URL, token())
    assert await shared.find(KEY + "x", URL) is None
    assert await shared.find(KEY, "https://there.test") is None


async def test_a_token_moved_under_the_name_of_another_key_does_not_open(
    shared: SharedTokens, backend: Backend
) -> None:
    await shared.share(KEY, URL, token())
    (mine,) = await backend.keys()
    sealed = await backend.command("GET", mine)
    await shared.share(KEY + "x", URL, token())
    (theirs,) = set(await backend.keys()) - {mine}
    await backend.command("SET", theirs, sealed, "PX", 60_000)
    assert await shared.find(KEY + "x", URL) is None
    assert await shared.find(KEY, URL) is not None


async def test_redis_shows_nothing_of_it(shared: SharedTokens, backend: Backend) -> None:
    await shared.share(KEY, URL, token())
    (key,) = await backend.keys()
    shown = key.encode() + await backend.command("GET", key)
    for secret in (b"fmsgk", b"id1", b"signature", b"ann", b"here.test"):
        assert secret not in shown


async def test_it_is_gone_when_the_token_expires(shared: SharedTokens, backend: Backend) -> None:
    await shared.share(KEY, URL, token(600.0))
    (key,) = await backend.keys()
    assert 590_000 < await backend.command("PTTL", key) <= 600_000


async def test_a_token_about_to_expire_is_neither_shared_nor_found(backend: Backend) -> None:
    now = [time.time()]
    shared = SharedTokens(backend.scripts, backend.topology, clock=lambda: now[0])
    await shared.share(KEY, URL, token(20.0))
    assert await backend.keys() == []
    await shared.share(KEY, URL, token(100.0))
    now[0] += 80.0
    assert await shared.find(KEY, URL) is None


async def test_it_can_be_taken_away(shared: SharedTokens) -> None:
    await shared.share(KEY, URL, token())
    await shared.drop(KEY, URL)
    assert await shared.find(KEY, URL) is None


async def test_a_damaged_one_is_as_good_as_none(shared: SharedTokens, backend: Backend) -> None:
    await shared.share(KEY, URL, token())
    (key,) = await backend.keys()
    await backend.command("SET", key, b"rubbish", "PX", 1000)
    assert await shared.find(KEY, URL) is None


async def test_a_redis_that_hangs_holds_up_nobody() -> None:
    """It is frozen and answers nothing: each front exchanges itself, after a moment."""
    topology = FreezingTopology()
    shared = SharedTokens(Scripts(topology.commands), topology)
    topology.frozen = True
    async with asyncio.timeout(60.0):
        await shared.share(KEY, URL, token())
        assert await shared.find(KEY, URL) is None
        await shared.drop(KEY, URL)
    topology.frozen = False
    await topology.aclose()


async def test_without_redis_nothing_fails() -> None:
    topology = connect("redis://127.0.0.1:1")
    shared = SharedTokens(Scripts(topology.commands), topology)
    await shared.share(KEY, URL, token())
    assert await shared.find(KEY, URL) is None
    await shared.drop(KEY, URL)
    await topology.aclose()
