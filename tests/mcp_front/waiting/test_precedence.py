"""Which arrivals may lie after a position whose place is an estimate: plain entries in, a judgement out."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.arrival import Arrival, Baseline, LedgerState
from mcp_front.waiting.precedence import (
    DEEP,
    LOWEST,
    follows_in_time,
    may_follow,
    proves_earlier,
    reaches_back_to,
    recorded_late,
)


def book(*messages: tuple[int, float]) -> list[Arrival]:
    """Entries in this order: id and when it became available; recorded a moment later."""
    return [
        Arrival(n=n, id=id_, pid=None, root=id_, from_="@ann@there.test", sent_at_s=at_s, arrived_at_s=at_s + 0.1)
        for n, (id_, at_s) in enumerate(messages, 1)
    ]


def state(entries: Sequence[Arrival], *, seeds: int = 0) -> LedgerState:
    """The ledger that holds the entries."""
    return LedgerState(epoch="e", first_n=1, last_n=len(entries), seed_n=seeds, baseline=Baseline(), now_s=1e6)


def test_in_an_emergency_time_alone_decides_and_ids_where_it_is_equal() -> None:
    late_draft, other, same = book((5, 100.0), (9, 50.0), (10, 100.0))
    assert may_follow(other, late_draft.id, late_draft.sent_at_s)
    assert not follows_in_time(other, late_draft.id, late_draft.sent_at_s)
    assert follows_in_time(same, late_draft.id, late_draft.sent_at_s)


def test_what_was_recorded_long_before_a_message_was_sent_does_not_follow_it() -> None:
    """A higher id, and yet no doubt: the ledger held it two minutes before. What it began with it did not record."""
    entries = book((9, 50.0))
    assert proves_earlier(entries[0], 200.0, state(entries))
    assert not proves_earlier(entries[0], 100.0, state(entries))
    assert not proves_earlier(entries[0], 200.0, state(entries, seeds=1))


def test_a_message_recorded_after_a_later_one_was_recorded_late() -> None:
    entries = book((1, 10.0), (3, 30.0), (2, 20.0), (4, 40.0))
    assert recorded_late(entries, state(entries)) == {2}
    assert recorded_late(entries, state(entries, seeds=3)) == frozenset()


def test_a_message_that_was_on_its_way_while_its_neighbours_came_was_recorded_late() -> None:
    """In the order of time, as a comparison records it, nothing seems wrong: the id tells."""
    entries = book((1, 10.0), (4, 12.0), (2, 20.0), (3, 30.0), (5, 40.0))
    assert recorded_late(entries, state(entries)) == {4}


def test_a_late_draft_makes_few_others_look_late() -> None:
    """Everything with a higher id and an earlier time was there before; its next neighbours alone are in doubt."""
    entries = book((1, 10.0), *((id_, float(id_)) for id_ in range(20, 40)), (2, 100.0))
    assert recorded_late(entries, state(entries)) <= {20, 21, 22}


def test_one_added_to_a_message_from_long_ago_is_recorded_too_deep_for_a_look_at_the_list() -> None:
    entries = book(*((id_, float(id_)) for id_ in range(10, 10 + DEEP)), (2, 1000.0))
    assert 2 in recorded_late(entries, state(entries))
    assert 2 not in recorded_late(entries[1:], state(entries))


def test_how_far_a_ledger_reaches_back_is_told_by_more_than_one_message() -> None:
    """The lowest ids say it; that of a late draft says nothing, nor do a few that were on their way for long."""
    usual = [(id_, 100.0 + id_) for id_ in range(10, 10 + LOWEST)]
    assert reaches_back_to(book(*usual), 200.0)
    assert not reaches_back_to(book(*usual), 50.0)
    assert reaches_back_to(book((9, 900.0), *usual), 200.0)
    slow = [(id_, -300.0) for id_ in range(10, 7 + LOWEST)]
    assert not reaches_back_to(book(*slow, *((id_, 500.0 + id_) for id_ in range(30, 40))), 200.0)
    assert not reaches_back_to(book(*usual[1:]), 200.0)
