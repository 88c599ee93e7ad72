"""What is remembered of a ledger's order, and what of it may be relied on."""

from __future__ import annotations

from ledger.values import Arrival, Baseline, LedgerState, Slice
from mcp_front.waiting.recent import KEPT, Recent


def read(*ids: int, first_n: int = 1, epoch: str = "one", seed_n: int = 0) -> Slice:
    entries = tuple(
        Arrival(n=first_n + at, id=id_, pid=None, root=id_, from_="@ann@there.test") for at, id_ in enumerate(ids)
    )
    last_n = first_n + len(ids) - 1
    state = LedgerState(
        epoch=epoch, first_n=1, last_n=last_n, seed_n=seed_n, baseline=Baseline(), now_s=0.0, complete_id=0
    )
    return Slice(entries=entries, state=state)


def test_what_came_in_turn_before_a_message_is_known() -> None:
    recent = Recent()
    recent.saw(read(5, 6, 7))
    recent.saw(read(7, 9, 2, first_n=3))
    assert recent.before(2) == {5, 6, 7, 9}
    assert recent.before(7) == {5, 6}
    assert recent.before(4) == frozenset()


def test_what_came_late_does_not_count() -> None:
    """Where a position was handed out by another ledger, it may have been handed out without it."""
    recent = Recent()
    recent.saw(read(5, 9, 7, 11, 12))
    assert recent.before(12) == {5, 9, 11}


def test_seeds_do_not_count() -> None:
    recent = Recent()
    recent.saw(read(5, 6, 7, 8, seed_n=2))
    assert recent.before(8) == frozenset()
    recent.saw(read(9, first_n=5, seed_n=2))
    assert recent.before(9) == {8}


def test_a_gap_begins_anew() -> None:
    recent = Recent()
    recent.saw(read(5, 6))
    recent.saw(read(20, 21, 22, first_n=10))
    assert recent.before(22) == {21}
    assert recent.before(6) == frozenset()


def test_the_ledger_before_a_flush_is_remembered_until_the_next() -> None:
    recent = Recent()
    recent.saw(read(5, 6, 7))
    recent.saw(read(6, 7, 8, 9, 10, epoch="two", seed_n=2))
    assert recent.before(7) == {5, 6}
    assert recent.before(10) == {9}
    recent.saw(read(30, epoch="three"))
    assert recent.before(7) == frozenset()
    assert recent.before(10) == {9}


def test_a_ledger_that_lost_its_end_is_another_one() -> None:
    recent = Recent()
    recent.saw(read(5, 6, 7))
    recent.end()
    assert recent.before(7) == {5, 6}
    recent.saw(read(6, 9, 10, first_n=2))
    assert recent.before(10) == {9}
    assert recent.before(7) == {5, 6}


def test_only_so_much_is_kept() -> None:
    recent = Recent()
    recent.saw(read(*range(1, KEPT + 11)))
    assert recent.before(KEPT + 10) == frozenset(range(11, KEPT + 10))


def test_what_was_late_stays_late_when_what_came_before_it_is_dropped() -> None:
    recent = Recent()
    recent.saw(read(1000, 5))
    recent.saw(read(*range(1001, 1001 + KEPT - 1), first_n=3))
    assert 5 not in recent.before(1000 + KEPT - 1)
