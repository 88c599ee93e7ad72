"""The state of a subscription: what is given, acknowledged, and given again."""

from __future__ import annotations

import pytest

from ledger.values import Arrival, StreamId
from mcp_front.waiting.positions import Position
from mcp_front.waiting.request import SubscriptionRefused
from mcp_front.waiting.subscriptions import (
    LEFT_ALONE_S,
    MAX_ABOVE,
    MAX_ACKNOWLEDGED,
    MAX_OUTSTANDING,
    MAX_RECENT,
    Subscription,
    acknowledge,
    advance,
    begin,
    check_filters,
    check_name,
    decode,
    deliver,
    encode,
    harmless_after_id,
    redeliver,
    to_redeliver,
)

START = Position(4, "epoch", StreamId(4))


def entry(message_id: int) -> Arrival:
    """An arrival."""
    return Arrival(at=StreamId(message_id), id=message_id, pid=None, root=message_id, from_="@ann@there.test")


def new() -> Subscription:
    """A subscription that begins after message 4."""
    return begin(START, thread_root=None, from_=None, now_s=0.0)


def given(state: Subscription, *ids: int, after: int, by: str = "call", now_s: float = 0.0) -> Subscription:
    """A batch is delivered; the frontier passes everything up to ``after``."""
    return deliver(
        state,
        [entry(id_) for id_ in ids],
        frontier=Position(after, "epoch", StreamId(after)),
        passed=frozenset(range(state.frontier.id + 1, after + 1)),
        by=by,
        now_s=now_s,
    )


def test_what_is_acknowledged_does_not_come_again() -> None:
    """The last result's after_id comes back: nothing is outstanding any more."""
    state, meaning = acknowledge(given(new(), 5, after=5), 5)
    assert meaning == "acknowledged"
    assert to_redeliver(state, began_seq=state.seq, acknowledged=True, now_s=1.0) == (None, None)


@pytest.mark.parametrize(("after_id", "meaning"), [(None, "none"), (4, "known"), (77, "foreign"), (0, "foreign")])
def test_a_call_that_acknowledges_nothing_gets_it_again(after_id: int | None, meaning: str) -> None:
    """An agent that died, repeats its call or passes some other id: the delivery comes again."""
    state, said = acknowledge(given(new(), 5, 7, after=5), after_id)
    assert said == meaning
    delivery, _ = to_redeliver(state, began_seq=state.seq, acknowledged=False, now_s=1.0)
    assert delivery is not None
    assert [piece.id for piece in delivery.pieces] == [5, 7]
    assert delivery.after_id == 5


def test_a_delivery_made_while_a_call_waits_is_somebody_elses() -> None:
    """Two concurrent waits: the one that did not get the batch does not get it again either."""
    state = given(new(), 5, after=5)
    assert to_redeliver(state, began_seq=0, acknowledged=False, now_s=1.0) == (None, None)


def test_one_of_several_consumers_leaves_the_others_their_work_for_a_while() -> None:
    """A consumer acknowledges its own delivery: another's comes to it only when that one had time enough."""
    state = given(given(new(), 5, after=5, by="a", now_s=10.0), 6, after=6, by="b", now_s=20.0)
    state, meaning = acknowledge(state, 6)
    assert meaning == "acknowledged"
    delivery, again_s = to_redeliver(state, began_seq=state.seq, acknowledged=True, now_s=21.0)
    assert delivery is None
    assert again_s == 10.0 + LEFT_ALONE_S
    delivery, _ = to_redeliver(state, began_seq=state.seq, acknowledged=True, now_s=again_s)
    assert delivery is not None


def test_a_redelivery_is_outstanding_in_turn() -> None:
    """Given again to a call that dies, too: it comes a third time, and counts."""
    state = given(new(), 5, after=5)
    again = redeliver(state, state.outstanding[0], by="second", now_s=1.0)
    assert (again.outstanding[0].times, again.outstanding[0].by, len(again.outstanding)) == (2, "second", 1)
    assert to_redeliver(again, began_seq=state.seq, acknowledged=False, now_s=2.0) == (None, None)
    delivery, _ = to_redeliver(again, began_seq=again.seq, acknowledged=False, now_s=2.0)
    assert delivery is not None


def test_what_was_given_above_the_frontier_is_left_out_until_the_frontier_passes_it() -> None:
    """7 was given while 6 held the frontier back at 5: it stays known above, then below."""
    state = given(new(), 5, 7, after=5)
    assert (state.above, state.recent) == ((7,), (5,))
    assert {5, 7} <= state.given
    state = given(state, 6, after=7)
    assert (state.above, state.recent) == ((), (5, 7, 6))


def test_the_frontier_moves_without_a_delivery() -> None:
    """A timeout passed something over: the frontier moves, nothing is outstanding."""
    state = advance(new(), Position(9, "epoch", StreamId(9)), frozenset({5, 9}), now_s=3.0)
    assert (state.frontier.id, state.outstanding, state.used_s) == (9, (), 3.0)


def test_a_result_without_messages_names_a_position_that_acknowledges_nothing() -> None:
    """A wait times out while another's delivery is out: passing its after_id back must not acknowledge that one."""
    state = given(new(), 5, after=5)
    assert harmless_after_id(state, 4) == 4
    assert harmless_after_id(state, None) == 4
    assert harmless_after_id(state, 5) == 4
    settled, _ = acknowledge(state, 5)
    assert harmless_after_id(settled, 4) == 5


def test_everything_that_is_stored_is_bounded() -> None:
    """Years of use by careless agents: what is kept does not grow."""
    state = new()
    for k in range(5, 5 + 3 * MAX_RECENT):
        state, _ = acknowledge(given(state, k, after=k), k)
    assert len(state.recent) == MAX_RECENT
    assert len(state.acknowledged) == MAX_ACKNOWLEDGED
    careless = new()
    for k in range(5, 5 + MAX_OUTSTANDING):
        assert not careless.is_full
        careless = given(careless, k, after=k)
    assert careless.is_full
    heaped = given(new(), *range(10, 10 + MAX_ABOVE + 7), after=5)
    assert len(heaped.above) == MAX_ABOVE
    assert heaped.is_full
    assert len(encode(state)) < 10_000


def test_it_survives_storing() -> None:
    """What is read back is what was stored."""
    state = given(given(new(), 5, 7, after=5), 6, after=7)
    assert decode(encode(state)) == state


@pytest.mark.parametrize("name", ["a", "build.7", "A-b_c", "x" * 64])
def test_names(name: str) -> None:
    """Letters, digits, dots, dashes, underscores, up to 64."""
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 65, "a\n", "{key}"])
def test_bad_names_are_refused(name: str) -> None:
    """Anything else is an error that says what is allowed."""
    with pytest.raises(SubscriptionRefused, match="Use 1 to 64 letters"):
        check_name(name)


def test_changing_filters_is_an_error_that_names_both() -> None:
    """A subscription made for a thread is asked for another, one made for anybody for a sender."""
    state = begin(START, thread_root=5, from_=None, now_s=0.0)
    check_filters("s", state, thread_root=None, from_=None)
    check_filters("s", state, thread_root=5, from_=None)
    with pytest.raises(
        SubscriptionRefused, match="thread_of = the thread of 5, and this call asks for the thread of 6"
    ):
        check_filters("s", state, thread_root=6, from_=None)
    with pytest.raises(SubscriptionRefused, match="from = anybody, and this call asks for @ann"):
        check_filters("s", state, thread_root=5, from_="@ann@there.test")
