"""How many calls are held for something to happen: per caller and per process, counted and bounded."""

from __future__ import annotations

from ledger.values import CallerKey
from mcp_front.settings import Budgets, budget_name
from telemetry import metrics

RETRY_S = 5
"""When to try again: waits end all the time, and a caller at its limit has one that ends within a minute."""


class TooManyWaits(Exception):
    """A wait over budget. The text names the budget, its size and what to do."""


class Holding:
    """Counts the calls that this process holds.

    No context manager: each of 10,000 held calls would keep one, with a generator in it.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._by_caller: dict[CallerKey, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """How many calls are held now."""
        return self._total

    def take(self, caller: CallerKey) -> None:
        """Count one call more; whoever succeeds has to `give_back`. Raises `TooManyWaits`."""
        mine = self._by_caller.get(caller, 0)
        if mine >= self._budgets.max_waits_per_caller:
            raise _over("max_waits_per_caller", self._budgets.max_waits_per_caller, "this address")
        if self._total >= self._budgets.max_waits:
            raise _over("max_waits", self._budgets.max_waits, "all callers of this server process together")
        self._by_caller[caller] = mine + 1
        self._total += 1

    def give_back(self, caller: CallerKey) -> None:
        """Count one call less."""
        self._total -= 1
        left = self._by_caller[caller] - 1
        if left:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]


def _over(field: str, limit: int, who: str) -> TooManyWaits:
    metrics.REFUSALS.labels(field).inc()
    return TooManyWaits(
        f"{limit} waits are held for {who} already, and that is the limit ({budget_name(field)}). "
        f"End one of them or call again in {RETRY_S} s."
    )
