from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ledger.values import CallerKey
from mcp_front.holding import Holding, TooManyWaits
from mcp_front.settings import Budgets

ANN, BOB = CallerKey("ann"), CallerKey("bob")


@contextmanager
def held(holding: Holding, caller: CallerKey) -> Iterator[None]:
    holding.take(caller)
    try:
        yield
    finally:
        holding.give_back(caller)


def test_each_caller_and_all_of_them_have_a_limit() -> None:
    holding = Holding(Budgets(max_waits_per_caller=2, max_waits=3))
    with held(holding, ANN), held(holding, ANN):
        with (
            pytest.raises(TooManyWaits, match=r"2 waits .* this address .*FMSG_MCP_MAX_WAITS_PER_CALLER"),
            held(holding, ANN),
        ):
            pass
        with held(holding, BOB):
            assert holding.total == 3
            with (
                pytest.raises(TooManyWaits, match=r"3 waits .* all callers .*FMSG_MCP_MAX_WAITS\)"),
                held(holding, BOB),
            ):
                pass
    assert holding.total == 0


def test_a_call_that_fails_gives_its_place_back() -> None:
    holding = Holding(Budgets(max_waits_per_caller=1))
    for _ in range(3):
        with pytest.raises(RuntimeError), held(holding, ANN):
            raise RuntimeError
    assert holding.total == 0
