"""One exchange for everybody, renewed in time, and never a word of the credential."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from aiohttp import web

from fmsg.errors import (
    CredentialMissing,
    FmsgError,
    Forbidden,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    Throttled,
    Unauthorized,
)
from fmsg.http import HostHttp
from fmsg.tokens import LEEWAY_S, AccessToken, FixedTokens, KeyTokens, token_of
from tests.fmsg.fakehost import ALICE, KEY, FakeHost, access_token, jwt

TOKEN = "/fmsg/token"
LIFE_S = 3_600.0


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        """Pass the time at once."""
        self.slept.append(delay_s)
        self.now_s += delay_s


@pytest.fixture
def clock() -> Clock:
    """The fake host's tokens are issued at 1000 s and last an hour."""
    return Clock()


@pytest.fixture
def tokens(http: HostHttp, clock: Clock) -> KeyTokens:
    """Tokens of a key at the fake host."""
    return KeyTokens(http, KEY, clock=clock, rng=random.Random(1), sleep=clock.sleep)


class Gate:
    """An exchange that is held until it is let go."""

    def __init__(self, host: FakeHost, *, status: int = 200) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.count = 0
        self._status = status
        host.on("POST", TOKEN, self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.count += 1
        serial = 100 + self.count
        self.entered.set()
        await self.open.wait()
        if self._status != 200:
            return web.json_response({"error": "no"}, status=self._status)
        return web.json_response({"access_token": jwt(serial=serial), "expires_in": LIFE_S})


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_identity_and_expiry_come_from_the_token(host: FakeHost, tokens: KeyTokens) -> None:
    host.answer("POST", TOKEN, {"access_token": jwt("@Alice@A.Test"), "expires_in": 3600})
    token = await tokens.token()
    assert (token.address, token.expires_at_s) == (ALICE, 4_600.0)


async def test_the_key_is_sent_whole(host: FakeHost, tokens: KeyTokens) -> None:
    await tokens.token()
    assert host.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert host.asked[0].data == b""


async def test_a_token_serves_until_its_last_tenth(host: FakeHost, tokens: KeyTokens, clock: Clock) -> None:
    first = await tokens.token()
    clock.now_s += 0.8 * LIFE_S
    assert await tokens.token() is first
    clock.now_s = first.expires_at_s - LEEWAY_S - 1
    assert (await tokens.token()).value != first.value
    assert host.exchanges == 2


async def test_callers_of_one_burst_renew_at_different_moments(http: HostHttp, clock: Clock) -> None:
    moments = {
        KeyTokens(http, KEY, clock=clock, rng=random.Random(n), initial=access_token())._renew_at_s for n in range(99)
    }
    assert len(moments) == 99
    assert max(moments) - min(moments) > 0.08 * LIFE_S
    assert all(4_600.0 - LEEWAY_S - 0.16 * LIFE_S < moment < 4_600.0 - LEEWAY_S for moment in moments)


async def test_fifty_at_once_make_one_exchange(host: FakeHost, tokens: KeyTokens) -> None:
    gate = Gate(host)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(tokens.token()) for _ in range(50)]
        await gate.entered.wait()
        await settle()
        gate.open.set()
    assert len({task.result().value for task in asking}) == 1
    assert gate.count == 1


async def test_fifty_at_once_share_one_refusal(host: FakeHost, tokens: KeyTokens) -> None:
    gate = Gate(host, status=403)
    asking = [asyncio.create_task(tokens.token()) for _ in range(50)]
    await gate.entered.wait()
    await settle()
    gate.open.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(result) for result in results] == [Forbidden] * 50
    assert gate.count == 1


async def test_after_a_shared_refusal_the_next_one_asks_again(host: FakeHost, tokens: KeyTokens) -> None:
    host.in_turn("POST", TOKEN, (401, {"error": "invalid api key"}), (200, {"access_token": jwt(), "expires_in": 3600}))
    with pytest.raises(Unauthorized):
        await tokens.token()
    assert (await tokens.token()).address == ALICE


async def test_if_the_one_who_asks_is_cancelled_another_goes_on(host: FakeHost, tokens: KeyTokens) -> None:
    gate = Gate(host)
    leader = asyncio.create_task(tokens.token())
    await gate.entered.wait()
    others = [asyncio.create_task(tokens.token()) for _ in range(5)]
    await settle()
    leader.cancel()
    gate.open.set()
    assert len({token.value for token in await asyncio.gather(*others)}) == 1
    assert gate.count == 2
    assert leader.cancelled() or leader.done()


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_host_in_trouble_is_asked_again(host: FakeHost, tokens: KeyTokens, clock: Clock, status: int) -> None:
    trouble = (status, {"error": "identity service unavailable"})
    host.in_turn("POST", TOKEN, trouble, trouble, trouble, (200, {"access_token": jwt(), "expires_in": 3600}))
    assert (await tokens.token()).address == ALICE
    assert len(clock.slept) == 3
    assert all(0.0 <= delay <= 1.0 for delay in clock.slept)


async def test_it_is_not_asked_for_ever(host: FakeHost, tokens: KeyTokens, clock: Clock) -> None:
    host.answer("POST", TOKEN, {"error": "failed to validate api key"}, status=500)
    with pytest.raises(HostFailed, match="failed to validate api key"):
        await tokens.token()
    assert 10.0 < sum(clock.slept) <= 20.0


@pytest.mark.parametrize(("seconds", "tries"), [("3", 7), ("60", 1)])
async def test_the_delay_a_host_asks_for_is_kept_or_too_long(
    host: FakeHost, tokens: KeyTokens, clock: Clock, seconds: str, tries: int
) -> None:
    host.answer("POST", TOKEN, {"error": "slow down"}, status=429, headers={"Retry-After": seconds})
    with pytest.raises(Throttled) as caught:
        await tokens.token()
    assert caught.value.retry_after_s == float(seconds)
    assert all(delay >= 3.0 for delay in clock.slept)
    assert len(host.asked) <= tries


@pytest.mark.parametrize(
    ("status", "kind"), [(400, HostRefused), (401, Unauthorized), (403, Forbidden), (404, HostRefused)]
)
async def test_a_refusal_is_final(
    host: FakeHost, tokens: KeyTokens, clock: Clock, status: int, kind: type[HostRefused]
) -> None:
    host.answer("POST", TOKEN, {"error": "User @alice@a.test not found"}, status=status)
    with pytest.raises(kind, match=r"User @alice@a\.test not found"):
        await tokens.token()
    assert (len(host.asked), clock.slept) == (1, [])


@pytest.mark.parametrize("status", [404, 405])
async def test_a_web_server_that_is_no_web_api_says_nothing_about_the_key(
    host: FakeHost, tokens: KeyTokens, status: int
) -> None:
    """Who set the wrong URL is told so, not that a good key is bad."""
    host.answer("POST", TOKEN, b"404 page not found", status=status)
    with pytest.raises(HostMisbehaved, match=rf"with {status}, so it is no fmsg Web API\. Correct FMSG_API_URL"):
        await tokens.token()


async def test_a_host_that_is_not_there_is_tried_again_and_then_reported(clock: Clock, unused_port: int) -> None:
    async with HostHttp(f"http://127.0.0.1:{unused_port}") as http:
        tokens = KeyTokens(http, KEY, clock=clock, sleep=clock.sleep)
        with pytest.raises(HostUnreachable) as caught:
            await tokens.token()
    assert not caught.value.sent
    assert len(clock.slept) > 3


async def test_a_renewal_that_fails_leaves_a_good_token_in_use(host: FakeHost, tokens: KeyTokens, clock: Clock) -> None:
    first = await tokens.token()
    host.answer("POST", TOKEN, {"error": "identity service unavailable"}, status=503)
    clock.now_s = first.expires_at_s - LEEWAY_S - 5
    assert await tokens.token() is first
    assert await tokens.token() is first
    assert (len(host.asked), clock.slept) == (2, [])
    clock.now_s = first.expires_at_s - LEEWAY_S
    with pytest.raises(HostFailed):
        await tokens.token()


async def test_a_key_revoked_by_the_time_of_renewal_is_reported(
    host: FakeHost, tokens: KeyTokens, clock: Clock
) -> None:
    first = await tokens.token()
    host.answer("POST", TOKEN, {"error": "api key revoked"}, status=401)
    clock.now_s = first.expires_at_s - LEEWAY_S - 1
    with pytest.raises(Unauthorized, match="api key revoked"):
        await tokens.token()


async def test_while_one_renews_the_others_go_on_with_the_token(
    host: FakeHost, tokens: KeyTokens, clock: Clock
) -> None:
    first = await tokens.token()
    gate = Gate(host)
    clock.now_s = first.expires_at_s - LEEWAY_S - 1
    renewing = asyncio.create_task(tokens.token())
    await gate.entered.wait()
    assert await tokens.token() is first
    gate.open.set()
    assert (await renewing).value != first.value


async def test_a_refused_token_is_replaced_once_for_all(host: FakeHost, tokens: KeyTokens) -> None:
    stale = await tokens.token()
    fresh = await asyncio.gather(*(tokens.renew(stale) for _ in range(20)))
    assert {token.value for token in fresh} != {stale.value}
    assert len({token.value for token in fresh}) == 1
    assert host.exchanges == 2


async def test_who_comes_late_with_a_refused_token_gets_the_new_one(host: FakeHost, tokens: KeyTokens) -> None:
    stale = await tokens.token()
    fresh = await tokens.renew(stale)
    assert await tokens.renew(stale) is fresh
    assert host.exchanges == 2


async def test_a_refused_token_is_never_handed_out_again(host: FakeHost, tokens: KeyTokens) -> None:
    stale = await tokens.token()
    host.answer("POST", TOKEN, {"error": "api key revoked"}, status=401)
    with pytest.raises(Unauthorized):
        await tokens.renew(stale)
    with pytest.raises(Unauthorized):
        await tokens.token()
    assert len(host.asked) == 3


async def test_an_initial_token_saves_the_exchange(host: FakeHost, http: HostHttp, clock: Clock) -> None:
    initial = access_token()
    tokens = KeyTokens(http, KEY, clock=clock, initial=initial)
    assert await tokens.token() is initial
    assert host.asked == []


async def test_a_key_that_comes_to_stand_for_somebody_else_is_not_followed(
    host: FakeHost, tokens: KeyTokens, clock: Clock
) -> None:
    first = await tokens.token()
    host.answer("POST", TOKEN, {"access_token": jwt("@mallory@a.test", exp=9e9, iat=9e9 - 3600), "expires_in": 3600})
    clock.now_s = first.expires_at_s
    with pytest.raises(HostMisbehaved, match=r"stood for @alice@a\.test and now stands for @mallory@a\.test"):
        await tokens.token()


@pytest.mark.parametrize("key", ["", "  ", "fmsgk_a b", "fmsgk_a\r\nX: y", "fmsgk_ü", "x" * 9000])
async def test_what_cannot_be_a_key_is_refused_without_asking(http: HostHttp, host: FakeHost, key: str) -> None:
    with pytest.raises(Unauthorized, match="Copy it again") as caught:
        await KeyTokens(http, key).token()
    assert host.asked == []
    assert "fmsgk_" not in str(caught.value)


async def test_blanks_around_a_key_are_no_part_of_it(http: HostHttp, host: FakeHost, clock: Clock) -> None:
    await KeyTokens(http, f" {KEY}\n", clock=clock).token()
    assert host.asked[0].bearer == KEY


def exchange(token: str, expires_in_s: float | None = 3600.0) -> bytes:
    """A host's answer."""
    return json.dumps({"access_token": token, "expires_in": expires_in_s}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"<html>",
        b"{}",
        b'{"access_token":7}',
        exchange(""),
        exchange("opaque"),
        exchange("a.b"),
        exchange("a.!.c"),
        exchange("a.YQ.c"),
        exchange("a.W10.c"),
        exchange("a.ü.c"),
        exchange(jwt("alice")),
        exchange(jwt("")),
        exchange(jwt(sub=7)),
        exchange(jwt(sub=None)),
        exchange(jwt(exp="soon")),
    ],
)
def test_a_token_without_identity_and_expiry_is_the_host_s_fault(data: bytes) -> None:
    with pytest.raises(HostMisbehaved, match=r"Is this the Web API's URL\?$"):
        token_of(data, asked_at_s=0.0)


@pytest.mark.parametrize(
    ("asked_at_s", "iat", "expires_in_s", "expires_at_s"),
    [
        (1_000.0, 1_000.0, 3_600.0, 4_600.0),
        (1_030.0, 1_000.0, 3_600.0, 4_600.0),
        (1_000.0, 1_000.0, None, 4_600.0),
        (1_000.0, None, None, 4_600.0),
        (900_000.0, 1_000.0, 3_600.0, 903_600.0),
        (900_000.0, 1_000.0, None, 903_600.0),
        (900_000.0, 1_000.0, 60.0, 900_060.0),
        (10.0, 1_000.0, 3_600.0, 3_610.0),
    ],
)
def test_exp_counts_unless_the_clocks_are_far_apart(
    asked_at_s: float, iat: float | None, expires_in_s: float | None, expires_at_s: float
) -> None:
    token = token_of(exchange(jwt(iat=iat), expires_in_s), asked_at_s=asked_at_s)
    assert token.expires_at_s == expires_at_s


def test_a_token_is_good_until_ten_seconds_before_its_end() -> None:
    token = access_token(expires_at_s=100.0)
    assert token.good(89.9)
    assert not token.good(90.0)


async def test_a_fixed_token_ends_with_its_life(clock: Clock) -> None:
    tokens = FixedTokens(access_token(expires_at_s=1_100.0), clock=clock)
    assert (await tokens.token()).address == ALICE
    clock.now_s = 1_090.0
    with pytest.raises(CredentialMissing, match=r"of @alice@a\.test has expired\. .*next request"):
        await tokens.token()


async def test_a_fixed_token_that_is_refused_is_gone(clock: Clock) -> None:
    token = access_token()
    tokens = FixedTokens(token, clock=clock)
    assert await tokens.renew(access_token(serial=9)) is token
    for ask in (tokens.renew(token), tokens.token()):
        with pytest.raises(CredentialMissing, match="was refused by the host"):
            await ask


async def test_no_repr_shows_a_credential(tokens: KeyTokens, clock: Clock) -> None:
    token = await tokens.token()
    shown = [repr(tokens), repr(token), str(token), repr(FixedTokens(token)), repr(token.__rich_repr__())]
    assert all(ALICE in text for text in shown)
    assert not any("5dQ1kZ" in text or token.value[:20] in text for text in shown)


async def test_every_error_of_an_exchange_is_ours(host: FakeHost, tokens: KeyTokens) -> None:
    for status in (200, 204, 302, 400, 418):
        host.answer("POST", TOKEN, {"error": KEY, "access_token": "x"}, status=status)
        with pytest.raises(FmsgError) as caught:
            await tokens.token()
        assert "5dQ1kZ" not in str(caught.value)


def test_a_token_compares_by_value() -> None:
    assert access_token() == access_token()
    assert access_token() != access_token(serial=1)
    assert isinstance(access_token(), AccessToken)
