"""One exchange for everybody, renewed in time, and never a word of the credential."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable

import pytest

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
from fmsg.tokens import AccessToken, FixedTokens, exchange, token_of
from tests.fmsg.fakehost import ALICE, KEY, FakeHost, access_token, jwt

Ask = Callable[[], Awaitable[AccessToken]]

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
def ask(http: HostHttp, clock: Clock) -> Ask:
    """Exchanges a key at the fake host."""
    return lambda: exchange(http, KEY, clock=clock, rng=random.Random(1), sleep=clock.sleep)


async def test_identity_and_expiry_come_from_the_token(host: FakeHost, ask: Ask) -> None:
    host.answer("POST", TOKEN, {"access_token": jwt("@Alice@A.Test"), "expires_in": 3600})
    token = await ask()
    assert (token.address, token.expires_at_s) == (ALICE, 4_600.0)


async def test_the_key_is_sent_whole(host: FakeHost, ask: Ask) -> None:
    await ask()
    assert host.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert host.asked[0].data == b""


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_host_in_trouble_is_asked_again(host: FakeHost, ask: Ask, clock: Clock, status: int) -> None:
    trouble = (status, {"error": "identity service unavailable"})
    host.in_turn("POST", TOKEN, trouble, trouble, trouble, (200, {"access_token": jwt(), "expires_in": 3600}))
    assert (await ask()).address == ALICE
    assert len(clock.slept) == 3
    assert all(0.0 <= delay <= 1.0 for delay in clock.slept)


async def test_it_is_not_asked_for_ever(host: FakeHost, ask: Ask, clock: Clock) -> None:
    host.answer("POST", TOKEN, {"error": "failed to validate api key"}, status=500)
    with pytest.raises(HostFailed, match="failed to validate api key"):
        await ask()
    assert 10.0 < sum(clock.slept) <= 20.0


@pytest.mark.parametrize(("seconds", "tries"), [("3", 7), ("60", 1)])
async def test_the_delay_a_host_asks_for_is_kept_or_too_long(
    host: FakeHost, ask: Ask, clock: Clock, seconds: str, tries: int
) -> None:
    host.answer("POST", TOKEN, {"error": "slow down"}, status=429, headers={"Retry-After": seconds})
    with pytest.raises(Throttled) as caught:
        await ask()
    assert caught.value.retry_after_s == float(seconds)
    assert all(delay >= 3.0 for delay in clock.slept)
    assert len(host.asked) <= tries


@pytest.mark.parametrize(
    ("status", "kind"), [(400, HostRefused), (401, Unauthorized), (403, Forbidden), (404, HostRefused)]
)
async def test_a_refusal_is_final(host: FakeHost, ask: Ask, clock: Clock, status: int, kind: type[HostRefused]) -> None:
    host.answer("POST", TOKEN, {"error": "User @alice@a.test not found"}, status=status)
    with pytest.raises(kind, match=r"User @alice@a\.test not found"):
        await ask()
    assert (len(host.asked), clock.slept) == (1, [])


@pytest.mark.parametrize("status", [404, 405])
async def test_a_web_server_that_is_no_web_api_says_nothing_about_the_key(
    host: FakeHost, ask: Ask, status: int
) -> None:
    """Who set the wrong URL is told so, not that a good key is bad."""
    host.answer("POST", TOKEN, b"404 page not found", status=status)
    with pytest.raises(HostMisbehaved, match=rf"with {status}, so it is no fmsg Web API\. Correct FMSG_API_URL"):
        await ask()


async def test_a_host_that_is_not_there_is_tried_again_and_then_reported(clock: Clock, unused_port: int) -> None:
    async with HostHttp(f"http://127.0.0.1:{unused_port}") as http:
        with pytest.raises(HostUnreachable) as caught:
            await exchange(http, KEY, clock=clock, sleep=clock.sleep)
    assert not caught.value.sent
    assert len(clock.slept) > 3


@pytest.mark.parametrize("key", ["", "  ", "fmsgk_a b", "fmsgk_a\r\nX: y", "fmsgk_ü", "x" * 9000])
async def test_what_cannot_be_a_key_is_refused_without_asking(http: HostHttp, host: FakeHost, key: str) -> None:
    with pytest.raises(Unauthorized, match="Copy it again") as caught:
        await exchange(http, key)
    assert host.asked == []
    assert "fmsgk_" not in str(caught.value)


async def test_blanks_around_a_key_are_no_part_of_it(http: HostHttp, host: FakeHost, clock: Clock) -> None:
    await exchange(http, f" {KEY}\n", clock=clock)
    assert host.asked[0].bearer == KEY


def granted(token: str, expires_in_s: float | None = 3600.0) -> bytes:
    """A host's answer."""
    return json.dumps({"access_token": token, "expires_in": expires_in_s}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"<html>",
        b"{}",
        b'{"access_token":7}',
        granted(""),
        granted("opaque"),
        granted("a.b"),
        granted("a.!.c"),
        granted("a.YQ.c"),
        granted("a.W10.c"),
        granted("a.ü.c"),
        granted(jwt("alice")),
        granted(jwt("")),
        granted(jwt(sub=7)),
        granted(jwt(sub=None)),
        granted(jwt(exp="soon")),
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
    token = token_of(granted(jwt(iat=iat), expires_in_s), asked_at_s=asked_at_s)
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


async def test_no_repr_shows_a_credential(ask: Ask) -> None:
    token = await ask()
    shown = [repr(token), str(token), repr(FixedTokens(token)), repr(token.__rich_repr__())]
    assert all(ALICE in text for text in shown)
    assert not any("5dQ1kZ" in text or token.value[:20] in text for text in shown)


async def test_every_error_of_an_exchange_is_ours(host: FakeHost, ask: Ask) -> None:
    for status in (200, 204, 302, 400, 418):
        host.answer("POST", TOKEN, {"error": KEY, "access_token": "x"}, status=status)
        with pytest.raises(FmsgError) as caught:
            await ask()
        assert "5dQ1kZ" not in str(caught.value)


def test_a_token_compares_by_value() -> None:
    assert access_token() == access_token()
    assert access_token() != access_token(serial=1)
    assert isinstance(access_token(), AccessToken)
