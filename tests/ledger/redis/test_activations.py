from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from ledger.redis.activations import WAKE, RedisActivations
from ledger.redis.topology import shard_of
from ledger.seal import SealKeys
from ledger.values import CallerKey, LedgerLimits
from tests.fake_redis import FakeTopology
from tests.ledger.redis_backends import BACKENDS, Backend, backend_of
from tests.ledger.side_contract import ANN, BEN, ActivationsContract, Side, activate, live

SHARD = f"fmsg:{{active-{shard_of(ANN):02d}}}"


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with backend_of(request.param, request) as made:
        yield made


@pytest.fixture
def keys() -> SealKeys:
    return SealKeys.parse(SealKeys.generate())


def side_of(backend: Backend, keys: SealKeys) -> Side:
    activations = RedisActivations(
        backend.scripts, backend.topology, limits=LedgerLimits(activation_ttl_s=600.0, feed_ttl_s=700.0), seal=keys
    )
    nothing = cast("Any", None)
    return Side(activations, nothing, nothing, nothing)


@pytest.fixture
def side(backend: Backend, keys: SealKeys) -> Side:
    return side_of(backend, keys)


class TestRedisActivations(ActivationsContract):
    async def test_redis_shows_caller_keys_and_times_only(self, side: Side, backend: Backend) -> None:
        await activate(side, token="secret-token")
        await side.activations.report(ANN, live())
        seen = b""
        for key in await backend.keys():
            dump = {
                "index": ("ZRANGE", key, 0, -1, "WITHSCORES"),
                "who": ("GET", key),
                "token": ("HGETALL", key),
                "feed": ("HGETALL", key),
            }[key.split(":")[2]]
            seen += key.encode() + repr(await backend.command(*dump)).encode()
        assert ANN.encode() in seen
        for shown in (b"secret-token", b"ann@", b"here.test", b"daemon-one"):
            assert shown not in seen

    async def test_everything_has_a_ttl_and_the_token_its_own(self, side: Side, backend: Backend) -> None:
        await activate(side, life_s=60.0)
        await side.activations.report(ANN, live())
        ttls = {key.removeprefix(SHARD + ":"): await backend.command("PTTL", key) for key in await backend.keys()}
        assert set(ttls) == {"index", f"who:{ANN}", f"token:{ANN}", f"feed:{ANN}"}
        assert 0 < ttls[f"token:{ANN}"] <= 60_000
        assert 60_000 < ttls["index"] <= 600_000
        assert 60_000 < ttls[f"who:{ANN}"] <= 600_000
        assert 600_000 < ttls[f"feed:{ANN}"] <= 700_000

    async def test_asking_again_keeps_the_report(self, side: Side, backend: Backend) -> None:
        await side.activations.report(ANN, live())
        await backend.command("PEXPIRE", f"{SHARD}:feed:{ANN}", 1000)
        await activate(side)
        assert await backend.command("PTTL", f"{SHARD}:feed:{ANN}") > 600_000

    async def test_an_activation_ends_when_nobody_asks_any_more(self, side: Side, backend: Backend) -> None:
        await activate(side)
        await backend.command("ZADD", f"{SHARD}:index", time.time() - 601, ANN)
        assert await side.activations.get(ANN) is None
        assert list(await side.activations.active()) == []

    async def test_a_token_is_gone_when_it_expires(self, backend: Backend, keys: SealKeys) -> None:
        now = [time.time()]
        activations = RedisActivations(
            backend.scripts, backend.topology, limits=LedgerLimits(), seal=keys, clock=lambda: now[0]
        )
        await activate(Side(activations, *cast("Any", (None, None, None))), life_s=60.0)
        now[0] += 61
        found = await activations.get(ANN)
        assert found is not None
        assert found.token is None

    async def test_another_process_with_the_same_key_reads_it(
        self, side: Side, backend: Backend, keys: SealKeys
    ) -> None:
        await activate(side)
        found = await side_of(backend, keys).activations.get(ANN)
        assert found is not None
        assert found.token == "t1"

    async def test_with_another_key_it_is_as_if_nobody_were_active(
        self, side: Side, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        await activate(side)
        await side.activations.report(ANN, live())
        stranger = side_of(backend, SealKeys.parse(SealKeys.generate()))
        assert await stranger.activations.get(ANN) is None
        assert await stranger.activations.feed(ANN) is None
        assert "FMSG_SEAL_KEY" in caplog.text
        await activate(stranger, token="t2")
        found = await stranger.activations.get(ANN)
        assert found is not None
        assert found.token == "t2"

    async def test_a_record_without_its_address_is_none(self, side: Side, backend: Backend) -> None:
        await activate(side)
        await backend.command("DEL", f"{SHARD}:who:{ANN}")
        assert await side.activations.get(ANN) is None

    async def test_a_token_moved_to_another_caller_does_not_open(self, side: Side, backend: Backend) -> None:
        await activate(side)
        await activate(side, BEN, token=None)
        theirs = f"fmsg:{{active-{shard_of(BEN):02d}}}:token:{BEN}"
        await backend.command("HSET", theirs, "sealed", await backend.command("HGET", f"{SHARD}:token:{ANN}", "sealed"))
        await backend.command("PEXPIRE", theirs, 10_000)
        found = await side.activations.get(BEN)
        assert found is not None
        assert found.token is None


class TestRinging:
    @pytest.fixture
    async def published(self, backend: Backend) -> AsyncIterator[Any]:
        async with backend.topology.pubsub() as reader:
            await reader.subscribe(f"fmsg:{WAKE}")
            assert (await reader.get_message(timeout=5.0))["type"] == "subscribe"
            yield reader

    async def test_daemons_hear_of_what_there_is_to_do(self, side: Side, backend: Backend, published: Any) -> None:
        async def rung() -> bool:
            await backend.command("PUBLISH", f"fmsg:{WAKE}", "end")
            heard: list[bytes] = []
            while not heard or heard[-1] != b"end":
                message = await published.get_message(timeout=5.0)
                heard.append(message["data"])
            return heard[:-1] == [ANN.encode()]

        expires_at_s = round(time.time() + 60, 3)

        async def ask(expires: float = expires_at_s) -> bool:
            await side.activations.activate(
                ANN, address="@ann@here.test", api_url="https://here.test", token="t1", token_expires_at_s=expires
            )
            return await rung()

        assert await ask(), "it was not active"
        assert await ask(), "no feed is live"
        await side.activations.report(ANN, live())
        assert not await ask(), "nothing to do"
        assert await ask(expires_at_s + 5), "another token"
        await side.activations.report(ANN, live("backing_off"))
        assert await ask(expires_at_s + 5), "the feed is not live"

    def test_what_the_reader_hears_goes_to_whoever_listens(self, keys: SealKeys) -> None:
        activations = side_of(Backend(FakeTopology()), keys).activations
        assert isinstance(activations, RedisActivations)
        heard: list[CallerKey] = []
        stop = activations.listen(heard.append)
        activations.heard(ANN)
        activations.heard("")
        stop()
        stop()
        activations.heard(BEN)
        assert heard == [ANN]
