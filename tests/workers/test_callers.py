from __future__ import annotations

import pytest

from fmsg.http import HostHttp
from ledger.memory import MemoryActivations
from ledger.values import CallerKey
from workers.callers import MIN_LIFE_S, Callers

ANN = CallerKey("a" * 32)
URL = "http://127.0.0.1:9"


@pytest.fixture
def activations() -> MemoryActivations:
    return MemoryActivations(ttl_s=600.0, clock=lambda: 1000.0)


@pytest.fixture
def callers(activations: MemoryActivations) -> Callers:
    return Callers(activations, HostHttp(URL), clock=lambda: 1000.0)


async def activate(
    activations: MemoryActivations, *, url: str = URL, token: str | None = "t", life_s: float = 500.0
) -> None:
    await activations.activate(
        ANN, address="@ann@here.test", api_url=url, token=token, token_expires_at_s=1000.0 + life_s
    )


async def test_who_left_a_token_can_be_acted_for(activations: MemoryActivations, callers: Callers) -> None:
    await activate(activations, url=URL + "/")
    standing = await callers.find(ANN)
    assert standing is not None
    assert standing.address == "@ann@here.test"
    assert await standing.api.address() == "@ann@here.test"


async def test_nobody_else_can(activations: MemoryActivations, callers: Callers) -> None:
    assert await callers.find(ANN) is None
    await activate(activations, token=None)
    assert await callers.find(ANN) is None


async def test_nor_with_a_token_about_to_expire(activations: MemoryActivations, callers: Callers) -> None:
    await activate(activations, life_s=MIN_LIFE_S - 1)
    assert await callers.find(ANN) is None


async def test_nor_at_another_host(activations: MemoryActivations, callers: Callers) -> None:
    await activate(activations, url="http://127.0.0.1:10")
    assert await callers.find(ANN) is None
