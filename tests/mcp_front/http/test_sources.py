from __future__ import annotations

import asyncio

import pytest

from mcp_front.http.sources import MAX_SOURCES, WINDOW_S, Guesses, TooManyGuesses, is_trusted, parse_networks, source_of
from mcp_front.settings import Budgets

PROXIES = parse_networks(("10.0.0.0/8", "2001:db8::/32", "192.0.2.7"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "source"),
    [
        ("203.0.113.5", [], "203.0.113.5"),
        ("203.0.113.5", [b"198.51.100.1"], "203.0.113.5"),
        ("10.1.1.1", [], "10.1.1.1"),
        ("10.1.1.1", [b"198.51.100.1"], "198.51.100.1"),
        ("10.1.1.1", [b"6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        ("10.1.1.1", [b"6.6.6.6", b"198.51.100.1, 10.2.2.2"], "198.51.100.1"),
        ("10.1.1.1", [b"198.51.100.1:4711"], "198.51.100.1"),
        ("10.1.1.1", [b"10.3.3.3, 10.2.2.2"], "10.3.3.3"),
        ("10.1.1.1", [b"nonsense, 10.2.2.2"], "10.2.2.2"),
        ("10.1.1.1", [b"198.51.100.1, nonsense"], "10.1.1.1"),
        ("::ffff:10.1.1.1", [b"198.51.100.1"], "198.51.100.1"),
        ("2001:db8::1", [b"[2001:dead:0:1::5]:99"], "2001:dead:0:1::/64"),
        ("2001:dead:0:1:2:3:4:5", [], "2001:dead:0:1::/64"),
        (None, [b"198.51.100.1"], "unknown"),
        ("unix", [], "unknown"),
    ],
)
def test_the_source_is_the_last_address_that_no_trusted_proxy_added(
    peer: str | None, forwarded: list[bytes], source: str
) -> None:
    assert source_of(peer, forwarded, PROXIES) == source


def test_a_single_address_is_a_network_and_nonsense_is_none() -> None:
    assert is_trusted("192.0.2.7", PROXIES)
    assert not is_trusted("192.0.2.8", PROXIES)
    with pytest.raises(ValueError, match=r"FMSG_MCP_TRUSTED_PROXIES: 'proxy\.example' is no network"):
        parse_networks(["proxy.example"])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def guesses(*, failures: int = 3, places: int = 2) -> tuple[Guesses, Clock]:
    clock = Clock()
    return Guesses(Budgets(auth_failures=failures, exchanges_per_source=places), now=clock), clock


async def test_refused_keys_use_up_a_source_until_the_window_ends() -> None:
    counted, clock = guesses()
    for _ in range(3):
        async with counted.looking_up("a"):
            counted.failed("a")
    with pytest.raises(TooManyGuesses, match="FMSG_MCP_AUTH_FAILURES") as refused:
        async with counted.looking_up("a"):
            pytest.fail("looked up")
    assert refused.value.retry_after_s == WINDOW_S
    with pytest.raises(TooManyGuesses):
        counted.check("a")
    async with counted.looking_up("b"):
        pass
    clock.now = WINDOW_S
    counted.check("a")
    async with counted.looking_up("a"):
        pass
    assert len(counted) == 0


async def test_good_keys_cost_their_source_nothing() -> None:
    counted, _ = guesses()
    for _ in range(100):
        async with counted.looking_up("a"):
            pass
    assert len(counted) == 0


async def test_lookups_of_one_source_queue_and_those_in_the_queue_are_refused_too() -> None:
    counted, _ = guesses(failures=1, places=1)
    begun, go = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with counted.looking_up("a"):
            begun.set()
            await go.wait()
            counted.failed("a")

    async def second() -> None:
        async with counted.looking_up("a"):
            pytest.fail("looked up")

    one = asyncio.ensure_future(first())
    await begun.wait()
    two = asyncio.ensure_future(second())
    async with counted.looking_up("b"):
        pass
    go.set()
    await one
    with pytest.raises(TooManyGuesses):
        await two


async def test_no_more_sources_are_remembered_than_there_is_room_for() -> None:
    counted, _ = guesses()
    for number in range(MAX_SOURCES + 50):
        counted.failed(str(number))
    assert len(counted) == MAX_SOURCES
