"""Callers over a real sandbox host: what is asked of the host, what is remembered, and what never is."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fmsg.errors import HostFailed, HostUnreachable, Unauthorized
from fmsg.http import HostHttp
from fmsg.tokens import AccessToken
from ledger.values import caller_key
from mcp_front.callers import KeyCallers, SharedTokenStore
from mcp_front.settings import FrontSettings
from sandbox.host import SandboxHost, serve
from tests.within import within

ANN = "@ann@a.test"


class Clock:
    """POSIX seconds, moved by hand, for the host and for us."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class FakeSharedTokens:
    """Tokens of the other fronts."""

    def __init__(self) -> None:
        self.tokens: dict[str, AccessToken] = {}
        self.finds = 0

    async def share(self, api_key: str, api_url: str, token: AccessToken) -> None:
        self.tokens[api_key] = token

    async def find(self, api_key: str, api_url: str) -> AccessToken | None:
        self.finds += 1
        return self.tokens.get(api_key)

    async def drop(self, api_key: str, api_url: str) -> None:
        self.tokens.pop(api_key, None)


class Bench:
    """A host and the callers of one front."""

    def __init__(self, host: SandboxHost, http: HostHttp, clock: Clock) -> None:
        self.host = host
        self.http = http
        self.clock = clock
        self.callers = self.another()

    def another(self, *, shared_tokens: SharedTokenStore | None = None, **settings: float) -> KeyCallers:
        """The callers of another front."""
        return KeyCallers(
            self.http,
            FrontSettings(**settings),  # type: ignore[arg-type]  # the tests name fields that are numbers
            transport="http",
            clock=self.clock,
            rng=random.Random(7),
            shared_tokens=shared_tokens,
        )

    def key(self, address: str = ANN) -> str:
        return self.host.control.create_key(address)

    async def until_asked(self, *, times: int = 1) -> None:
        """Wait until the host has seen so many exchanges."""
        async with asyncio.timeout(5):
            while self.exchanges < times:  # noqa: ASYNC110 - the host counts, it does not tell
                await asyncio.sleep(0)

    @property
    def exchanges(self) -> int:
        """Exchanges the host has seen."""
        return int(self.host.control.stats()["requests"].get("token", 0))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with benches() as running:
        yield running


@asynccontextmanager
async def benches() -> AsyncIterator[Bench]:
    clock = Clock()
    host = SandboxHost("a.test", clock=clock)
    async with serve(host) as url, HostHttp(url) as http:
        running = Bench(host, http, clock)
        yield running
        await running.callers.aclose()


async def test_a_key_is_exchanged_once_and_then_known(bench: Bench) -> None:
    key = bench.key()
    caller = await bench.callers.identify(key)
    assert (caller.address, caller.transport, caller.api_url) == (ANN, "http", bench.http.api_url)
    assert caller.key == caller_key(bench.http.api_url, ANN)
    assert bench.callers.known(key) is not None
    again = await bench.callers.identify(key)
    assert again.key == caller.key
    assert (await again.token()).address == ANN
    assert await again.api.address() == ANN
    assert bench.exchanges == 1
    assert len(bench.callers) == 1


async def test_everybody_who_asks_meanwhile_shares_one_exchange(bench: Bench) -> None:
    key = bench.key()
    callers = await asyncio.gather(*(bench.callers.identify(key) for _ in range(50)))
    assert {caller.address for caller in callers} == {ANN}
    assert bench.exchanges == 1


async def test_the_exchange_goes_on_when_the_request_that_began_it_is_cancelled(bench: Bench) -> None:
    key = bench.key()
    bench.host.control.hang_next("token")
    first = asyncio.ensure_future(bench.callers.identify(key))
    second = asyncio.ensure_future(bench.callers.identify(key))
    await bench.until_asked()
    first.cancel()
    bench.host.control.release()
    assert (await second).address == ANN
    assert bench.exchanges == 2, "the one that hung was cut and repeated"


async def test_a_refused_key_is_not_asked_for_again_at_once(bench: Bench) -> None:
    for _ in range(5):
        with pytest.raises(Unauthorized, match="invalid api key"):
            await bench.callers.identify("fmsgk_guess_1")
    assert bench.exchanges == 1
    bench.clock.now += FrontSettings().refused_s
    assert bench.callers.refusal("fmsgk_guess_1") is None
    with pytest.raises(Unauthorized):
        await bench.callers.identify("fmsgk_guess_1")
    assert bench.exchanges == 2


async def test_what_is_remembered_is_bounded(bench: Bench) -> None:
    callers = bench.another(known_callers=2, refused_keys=3)
    keys = [bench.key(f"@u{number}@a.test") for number in range(3)]
    for key in keys:
        await callers.identify(key)
    assert callers.known(keys[0]) is None
    assert callers.known(keys[1]) is not None
    assert len(callers) == 2
    for number in range(5):
        with pytest.raises(Unauthorized):
            await callers.identify(f"fmsgk_guess_{number}")
    assert [callers.refusal(f"fmsgk_guess_{number}") is not None for number in range(5)] == [False, False, *[True] * 3]


async def test_an_outage_is_no_refusal(bench: Bench) -> None:
    key = bench.key()
    bench.host.control.set_identity_service(up=False)
    with pytest.raises(HostFailed):
        await bench.callers.identify(key)
    assert bench.callers.refusal(key) is None
    bench.host.control.set_identity_service(up=True)
    assert (await bench.callers.identify(key)).address == ANN


async def test_nothing_that_stays_holds_the_key_or_the_token(bench: Bench) -> None:
    key = bench.key()
    caller = await bench.callers.identify(key)
    token = (await caller.token()).value
    assert key not in repr(caller)
    assert key not in repr(bench.callers)
    del caller
    gc.collect()
    kept = [*vars(bench.callers).values(), *bench.callers._known.values(), *bench.callers._known]
    kept += [getattr(known, name) for known in bench.callers._known.values() for name in known.__slots__]
    for value in kept:
        text = value if isinstance(value, bytes) else repr(value).encode()
        assert key.encode() not in text
        assert token.encode() not in text
    assert bench.callers._exchanges == {}


async def test_a_token_is_renewed_before_it_expires(bench: Bench) -> None:
    bench.host.control.set_token_life(1000.0)
    caller = await bench.callers.identify(bench.key())
    first = await caller.token()
    bench.clock.now += 890
    assert (await caller.token()).value == first.value
    bench.clock.now += 20
    second = await caller.token()
    assert second.expires_at_s > first.expires_at_s
    assert bench.exchanges == 2


async def test_a_token_that_is_still_good_serves_while_the_host_is_in_trouble(bench: Bench) -> None:
    bench.host.control.set_token_life(1000.0)
    caller = await bench.callers.identify(bench.key())
    first = await caller.token()
    bench.host.control.set_identity_service(up=False)
    bench.clock.now += 950
    assert (await caller.token()).value == first.value
    asked = bench.exchanges
    assert (await caller.token()).value == first.value
    assert bench.exchanges == asked
    bench.clock.now += 40
    with pytest.raises(HostFailed):
        await caller.token()


async def test_a_token_the_host_refuses_is_renewed_and_the_request_repeated(bench: Bench) -> None:
    caller = await bench.callers.identify(bench.key())
    first = await caller.token()
    bench.host.control.expire_tokens()
    page = await caller.api.list_received(limit=1)
    assert page.messages == ()
    assert (await caller.token()).value != first.value
    assert (await caller.renew(first)).value == (await caller.token()).value
    assert bench.exchanges == 2


async def test_a_revoked_key_stops_at_the_next_request(bench: Bench) -> None:
    key = bench.key()
    caller = await bench.callers.identify(key)
    bench.host.control.revoke_key(key)
    with pytest.raises(Unauthorized):
        await caller.api.list_received(limit=1)
    assert bench.callers.known(key) is None
    with pytest.raises(Unauthorized):
        await bench.callers.identify(key)


async def test_confirming_asks_the_host_only_where_it_was_silent(bench: Bench) -> None:
    key = bench.key()
    caller = await bench.callers.identify(key)
    await caller.confirm()
    assert bench.exchanges == 1
    bench.clock.now += 61
    await caller.api.list_received(limit=1)
    await caller.confirm()
    assert bench.exchanges == 1
    bench.clock.now += 61
    await caller.confirm()
    assert bench.exchanges == 2
    bench.host.control.revoke_key(key)
    await caller.confirm()
    bench.clock.now += 61
    with pytest.raises(Unauthorized):
        await caller.confirm()


async def test_a_caller_in_use_is_confirmed_ahead_in_the_background(bench: Bench) -> None:
    key = bench.key()
    caller = await bench.callers.identify(key)
    await caller.confirm(ahead_s=30.0)
    bench.clock.now += 31
    bench.host.control.hang_next("token")
    await within(caller.confirm(ahead_s=30.0), 5)
    await within(caller.confirm(ahead_s=30.0), 5)
    await bench.until_asked(times=2)
    bench.host.control.release()
    assert bench.exchanges == 2


async def test_a_revoked_key_that_is_in_use_stops_within_the_minute(bench: Bench) -> None:
    key = bench.key()
    caller = await bench.callers.identify(key)
    bench.host.control.revoke_key(key)
    bench.clock.now += 31
    await caller.confirm(ahead_s=30.0)
    async with asyncio.timeout(5):
        while bench.callers.known(key) is not None:  # noqa: ASYNC110 - the exchange is nobody's to wait for
            await asyncio.sleep(0.01)
    assert bench.callers.refusal(key) is not None


async def test_a_key_nobody_heard_of_for_long_is_asked_for_again(bench: Bench) -> None:
    key = bench.key()
    await bench.callers.identify(key)
    bench.clock.now += FrontSettings().recheck_s + 1
    assert bench.callers.known(key) is None
    bench.host.control.set_identity_service(up=False)
    assert (await bench.callers.identify(key)).address == ANN
    bench.host.control.set_identity_service(up=True)
    bench.host.control.revoke_key(key)
    with pytest.raises(Unauthorized):
        await bench.callers.identify(key)


async def test_a_shared_token_saves_the_exchange_but_is_not_believed_blindly(bench: Bench) -> None:
    shared = FakeSharedTokens()
    one, other = bench.another(shared_tokens=shared), bench.another(shared_tokens=shared)
    key = bench.key()
    await one.identify(key)
    assert list(shared.tokens) == [key]
    caller = await other.identify(key)
    assert (caller.address, bench.exchanges) == (ANN, 1)
    await other.identify(key)
    assert shared.finds == 2
    await caller.confirm()
    assert bench.exchanges == 2
    bench.host.control.expire_tokens()
    await caller.api.list_received(limit=1)
    assert bench.exchanges == 3
    assert shared.tokens[key].value == (await caller.token()).value


async def test_a_request_acts_as_one_address_for_its_whole_life(bench: Bench) -> None:
    key = bench.key()
    caller = await bench.callers.identify(key)
    other = await bench.callers.identify(bench.key("@eve@a.test"))
    stolen = await other.token()
    bench.callers._remember(key, bench.callers._digest(key), stolen, accepted_at_s=bench.clock.now)
    with pytest.raises(Unauthorized, match="another address"):
        await caller.token()
    assert (await bench.callers.identify(key)).address == "@eve@a.test"


async def test_an_unreachable_host_is_told_apart(bench: Bench) -> None:
    async with HostHttp("http://127.0.0.1:9") as http:
        callers = KeyCallers(http, FrontSettings(), transport="stdio", clock=bench.clock, rng=random.Random(7))
        with pytest.raises(HostUnreachable):
            await callers.identify(bench.key())
        await callers.aclose()


async def test_closing_ends_what_is_under_way(bench: Bench) -> None:
    bench.host.control.hang_next("token")
    waiting = asyncio.ensure_future(bench.callers.identify(bench.key()))
    await bench.until_asked()
    await bench.callers.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    bench.host.control.release()


async def test_a_busy_caller_leaves_the_others_their_share(bench: Bench) -> None:
    callers = bench.another(requests_per_caller=2)
    ann, bob = [await callers.identify(bench.key(address)) for address in (ANN, "@bob@a.test")]
    bench.host.control.hang_next("list", times=2)
    busy = [asyncio.ensure_future(ann.api.list_received(limit=1)) for _ in range(5)]
    async with asyncio.timeout(5):
        await _hanging(bench, 2)
        await bob.api.list_received(limit=1)
    assert not any(request.done() for request in busy)
    bench.host.control.release()
    await asyncio.gather(*busy, return_exceptions=True)
    assert len(callers.host_requests) == 0


async def _hanging(bench: Bench, count: int) -> None:
    """Wait until so many list requests have come."""
    while bench.host.control.stats()["requests"].get("list", 0) < count:  # noqa: ASYNC110 - the host does not tell
        await asyncio.sleep(0)
