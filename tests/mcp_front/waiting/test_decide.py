"""The decision on its own: plain entries in, a batch or a wait out."""

from __future__ import annotations

import pytest

from fmsg.address import fold
from ledger.values import Arrival, StreamId
from mcp_front.waiting.decide import (
    CUT_BY_TIME,
    ROOT_PATIENCE_S,
    SHOWN,
    Decision,
    Filters,
    Return,
    View,
    WaitUntil,
    cut,
    decide,
)

ME = "@me@here.test"
ANN = "@ann@there.test"
BEN = "@ben@other.test"
ANYTHING = Filters(address=ME)


def entry(message_id: int, *, at_s: float = 0.0, root: int | None = None, from_: str = ANN, **more: object) -> Arrival:
    """An arrival; a message of another root replies to it."""
    pid = None if root in (None, message_id) else (root or 1)
    at = StreamId(int(at_s * 1000.0), message_id)
    fields = {"at": at, "id": message_id, "pid": pid, "root": message_id if root is None else root}
    return Arrival(**(fields | {"from_": from_} | more))  # type: ignore[arg-type]


def look(
    *entries: Arrival, now_s: float = 100.0, filters: Filters = ANYTHING, settle_s: float = 3.0, **more: object
) -> Decision:
    """A decision after position 0 for a call that began just now."""
    max_batch = more.pop("max_batch", 100)
    closing = more.pop("closing", False)
    view = View(**({"entries": entries, "after_id": 0, "now_s": now_s, "began_s": now_s} | more))  # type: ignore[arg-type]
    return decide(view, filters, settle_s=settle_s, closing=bool(closing), max_batch=int(str(max_batch)))


def answer(decision: Decision) -> Return:
    """The decision, which is to answer."""
    assert isinstance(decision, Return)
    return decision


def waiting(decision: Decision) -> WaitUntil:
    """The decision, which is to wait."""
    assert isinstance(decision, WaitUntil)
    return decision


def ids(decision: Decision) -> list[int]:
    """The batch."""
    return [one.id for one in answer(decision).batch]


def test_nothing_there() -> None:
    """Nothing arrived: wait for whatever comes, without a time."""
    decision = waiting(look())
    assert decision.until_s is None
    assert decision.progress.after_id == 0


def test_the_window_is_counted_from_the_openers_arrival_not_from_the_call() -> None:
    """A call that comes in the middle of a settle window waits for what is left of it."""
    assert waiting(look(entry(5, at_s=98.5))).until_s == 101.5


def test_nothing_to_wait_for_without_a_settle_time() -> None:
    """settle_seconds 0: what is there is returned, what comes an instant later is not waited for."""
    assert ids(look(entry(5, at_s=100.0), settle_s=0.0)) == [5]


def test_a_late_wake_up_changes_nothing() -> None:
    """The process woke late: what arrived after the window stays out, as it would have in time."""
    decision = answer(look(entry(5, at_s=90.0), entry(6, at_s=92.9, root=5), entry(7, at_s=93.5, root=5), began_s=80.0))
    assert [one.id for one in decision.batch] == [5, 6]
    assert decision.progress.after_id == 6
    assert [one.id for one in decision.pending] == [7]


def test_what_was_there_when_the_call_began_comes_with_its_thread() -> None:
    """A backlog: a thread's messages come together however far apart they arrived."""
    assert ids(look(entry(5, at_s=1.0), entry(6, at_s=50.0), entry(7, at_s=99.0, root=5))) == [5, 7]


@pytest.mark.parametrize("step_s", [-3600.0, -7.0])
def test_a_clock_that_was_set_back_is_not_waited_for(step_s: float) -> None:
    """The store's clock went back: the window would seem to last for an hour, so the batch is returned now."""
    assert ids(look(entry(5, at_s=100.0 - step_s))) == [5]


def test_the_position_stops_below_what_stays_behind() -> None:
    """Another thread in between: it holds the position back, and what is returned above is named."""
    decision = answer(look(entry(5), entry(6, from_=BEN), entry(7, root=5)))
    assert decision.progress.after_id == 5
    assert decision.above == (7,)
    assert [one.id for one in decision.pending] == [6]


def test_the_position_moves_over_everything_that_is_not_held_back() -> None:
    """Own messages and reactions behind the batch: the position goes on past them."""
    decision = answer(look(entry(5), entry(6, from_=ME.upper()), entry(7, root=5, reaction=True)))
    assert decision.progress.after_id == 7
    assert decision.progress.skipped == ((6, "own"), (7, "reaction"))
    assert decision.above == ()


@pytest.mark.parametrize(
    ("me", "sender"),
    [("@straße@a.test", "@strasse@a.test"), ("@boss@a.test", "@boſs@a.test"), ("@ß@a.test", "@ẞ@b.test")],
)
def test_a_message_of_a_mailbox_that_only_a_wider_folding_joins_with_the_callers_comes(me: str, sender: str) -> None:
    filters = Filters(address=me)
    assert ids(look(entry(5, from_=sender), filters=filters)) == [5]
    assert ids(look(entry(5, from_=sender), filters=Filters(address=me, from_=fold(sender)))) == [5]
    assert waiting(look(entry(5, from_=me), filters=filters))


def test_what_a_subscription_was_given_before_is_passed_over_silently() -> None:
    """An id that was given: neither returned nor reported as skipped, and the position passes it."""
    decision = answer(look(entry(5), entry(6, from_=BEN), entry(7, root=5), given={5}))
    assert [one.id for one in decision.batch] == [6]
    assert decision.progress.after_id == 6
    assert decision.progress.skipped == ()


def test_filters_name_their_reason() -> None:
    """from and thread_of together: each message passed over says which of them it missed."""
    filters = Filters(address=ME, from_=ANN, thread_root=5)
    decision = answer(look(entry(3, from_=BEN), entry(4), entry(5), entry(6, root=5, from_=BEN), filters=filters))
    assert [one.id for one in decision.batch] == [5]
    assert decision.progress.skipped == ((3, "from_mismatch"), (4, "other_thread"), (6, "from_mismatch"))


def test_an_unknown_thread_is_asked_for_before_anything_is_returned() -> None:
    """A reply whose root is unknown: it may open a batch or belong to one, so its root is asked for first."""
    decision = waiting(look(entry(5), entry(6, root=0)))
    assert [one.id for one in decision.ask] == [6]
    assert decision.until_s == 100.0


def test_an_unknown_thread_is_returned_alone_once_it_was_asked_for() -> None:
    """The host did not say: without a thread filter the message is a batch of its own."""
    decision = answer(look(entry(6, root=0), entry(7, root=0), asked={6, 7}))
    assert [one.id for one in decision.batch] == [6]
    assert decision.thread_root is None


def test_a_thread_filter_holds_an_unknown_thread_back() -> None:
    """thread_of: a message that may belong to it is neither returned nor passed."""
    filters = Filters(address=ME, thread_root=5)
    decision = answer(look(entry(6, root=0, at_s=99.0), entry(7, root=5), filters=filters, asked={6}))
    assert [one.id for one in decision.batch] == [7]
    assert decision.progress.after_id == 0
    assert decision.above == (7,)


def test_behind_a_held_back_message_nothing_is_returned_for_ever() -> None:
    """The position stands still behind an unknown thread: what was returned above it opens no batch again."""
    filters = Filters(address=ME, thread_root=5)
    held = entry(6, root=0, at_s=99.0)
    waiting(look(held, entry(7, root=5), filters=filters, asked={6}, returned={7}))
    assert ids(look(held, entry(7, root=5), entry(8, root=5), filters=filters, asked={6}, returned={7})) == [8]


def test_a_thread_that_cannot_be_found_is_not_held_back_for_ever() -> None:
    """Two minutes without a root: the message is returned alone rather than lost."""
    filters = Filters(address=ME, thread_root=5)
    assert ids(look(entry(6, root=0, at_s=99.0 - ROOT_PATIENCE_S), filters=filters, asked={6})) == [6]


def test_a_full_batch_is_returned_in_the_middle_of_the_window() -> None:
    """The bound on messages: nothing to wait for, and the rest comes next."""
    entries = [entry(5, at_s=99.0), *(entry(n, at_s=99.0, root=5) for n in range(6, 16))]
    decision = answer(look(*entries, max_batch=10))
    assert len(decision.batch) == 10
    assert decision.progress.after_id == 14
    assert decision.pending_count == 1


def test_an_answer_can_be_cut_shorter() -> None:
    """The bound on bytes: fewer are returned, and the position is held back accordingly."""
    view = View(
        entries=(entry(5), entry(6, root=5), entry(7, from_=BEN), entry(8, root=5)), after_id=4, now_s=9.0, began_s=9.0
    )
    whole = decide(view, ANYTHING, settle_s=3.0)
    assert ids(whole) == [5, 6, 8]
    shorter = cut(view, ANYTHING, settle_s=3.0, count=1)
    assert [one.id for one in shorter.batch] == [5]
    assert shorter.progress.after_id == 5
    assert shorter.pending_count == 3
    with pytest.raises(ValueError, match="only an answer can be cut"):
        cut(View(entries=(), after_id=0, now_s=0.0, began_s=0.0), ANYTHING, settle_s=0.0, count=1)


def test_the_time_limit_cuts_the_window_and_says_so() -> None:
    """The call ends inside the window: what is there is returned, with a note."""
    decision = answer(look(entry(5, at_s=99.0), closing=True))
    assert decision.note == CUT_BY_TIME
    assert answer(look(entry(5, at_s=90.0), closing=True)).note is None


def test_the_reply_target_is_the_last_message_that_takes_a_reply() -> None:
    """The last message is terminal: the one before it is what to reply to; of none there is no target."""
    assert answer(look(entry(5), entry(6, root=5, terminal=True))).reply_target == 5
    assert answer(look(entry(5, terminal=True))).reply_target is None


def test_pending_is_counted_where_it_is_not_named() -> None:
    """Very many pending: some are named, all are counted; what was returned before is neither."""
    entries = [entry(n) for n in range(1, SHOWN + 52)]
    decision = answer(look(*entries, returned={3}))
    assert decision.pending_count == SHOWN + 49
    assert len(decision.pending) == SHOWN


def test_a_window_is_not_waited_for_when_more_was_not_even_read() -> None:
    """More entries than a wait reads ahead: the batch is bounded by what was read and returned at once."""
    assert ids(look(entry(5, at_s=99.9), complete=False)) == [5]


def test_what_was_returned_above_the_position_comes_again_once_and_not_with_each_of_its_thread() -> None:
    """Two threads interleaved: 1 3 5 7 came with the first call and 2 4 with the second; 3, 5 and 7 are met again."""
    entries = [entry(3, root=1), entry(4, root=2), entry(5, root=1), entry(6, root=2), entry(7, root=1)]
    assert ids(look(*entries, returned={3, 4, 5, 7})) == [3]
    assert ids(look(*entries[2:], returned={3, 4, 5, 7})) == [5]


def test_what_was_returned_before_comes_together_where_nothing_stays_behind() -> None:
    """3 and 5 of one thread are met again, with nothing of another thread between them: one call for both."""
    decision = answer(look(entry(3, root=1), entry(5, root=1), entry(6, root=2), returned={3, 5}))
    assert [one.id for one in decision.batch] == [3, 5]
    assert decision.progress.after_id == 5


def test_what_is_new_of_a_thread_comes_with_what_is_met_again_of_it() -> None:
    """3 is met again, 5 of another thread stays behind, and 7 is new: the newest of the thread does not wait for 5."""
    decision = answer(look(entry(3, root=1), entry(5, root=2), entry(6, root=1), entry(7, root=1), returned={3, 6}))
    assert [one.id for one in decision.batch] == [3, 7]
    assert decision.progress.after_id == 3
    assert [one.id for one in decision.pending] == [5]
