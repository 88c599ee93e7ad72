"""Which arrivals may lie after a position whose place is an estimate: plain entries in, a judgement out."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.values import Arrival, Baseline, LedgerState
from mcp_front.waiting.precedence import LOWEST, out_of_order, reaches_back_to


def book(*messages: tuple[int, float]) -> list[Arrival]:
    """Entries in this order: id and when it became available; recorded a moment later."""
    return [
        Arrival(n=n, id=id_, pid=None, root=id_, from_="@ann@there.test", sent_at_s=at_s, arrived_at_s=at_s + 0.1)
        for n, (id_, at_s) in enumerate(messages, 1)
    ]


def state(entries: Sequence[Arrival], *, seeds: int = 0) -> LedgerState:
    """The ledger that holds the entries."""
    return LedgerState(epoch="e", first_n=1, last_n=len(entries), seed_n=seeds, baseline=Baseline(), now_s=1e6)


def test_a_message_recorded_after_one_with_a_higher_id_and_a_later_time_was_found_late() -> None:
    """A late draft has a low id too, and came when its time says."""
    entries = book((1, 10.0), (4, 30.0), (3, 20.0), (2, 40.0))
    assert out_of_order(entries, state(entries)) == {3}
    assert out_of_order(entries, state(entries, seeds=3)) == frozenset()


def test_how_far_a_ledger_reaches_back_is_told_by_more_than_one_message() -> None:
    """The lowest ids say it; that of a late draft says nothing, nor do a few that were on their way for long."""
    usual = [(id_, 100.0 + id_) for id_ in range(10, 10 + LOWEST)]
    assert reaches_back_to(book(*usual), 200.0)
    assert not reaches_back_to(book(*usual), 50.0)
    assert reaches_back_to(book((9, 900.0), *usual), 200.0)
    slow = [(id_, -300.0) for id_ in range(10, 7 + LOWEST)]
    assert not reaches_back_to(book(*slow, *((id_, 500.0 + id_) for id_ in range(30, 40))), 200.0)
    assert not reaches_back_to(book(*usual[1:]), 200.0)
