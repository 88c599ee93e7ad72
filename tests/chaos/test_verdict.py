"""The account of a run: what it finds, what it excuses, and why."""

from __future__ import annotations

import msgspec

from tests.chaos.verdict import Interval, Kind, Known, Reader, Receipt, Verdict, audit, expected, missing, roots_of

ALICE, STRANGER = "@alice@chaos.test", "@stranger@far.test"


def known(message_id: int, **fields: object) -> Known:
    one = Known(id=message_id, root=message_id, from_=STRANGER, available_at_s=1000.0 + message_id)
    return msgspec.structs.replace(one, **fields)


def receipt(message_id: int, *, batch: int, marked: bool = False, at_s: float | None = None) -> Receipt:
    at_s = 1000.5 + message_id if at_s is None else at_s
    return Receipt(
        reader="alice", id=message_id, batch=batch, marked=marked, since_s=0.0, began_s=at_s - 1.0, at_s=at_s
    )


def audited(
    listed: list[Known], receipts: list[Receipt], faults: list[Interval] | None = None, kind: Kind = "plain"
) -> Verdict:
    reader = Reader(name="alice", address=ALICE, kind=kind)
    return audit([reader], {ALICE: {one.id: one for one in listed}}, receipts, faults or [])


def test_each_once_is_good() -> None:
    verdict = audited([known(1), known(2)], [receipt(1, batch=1), receipt(2, batch=2)])
    assert verdict.good
    assert (verdict.expected, verdict.received) == (2, 2)
    assert verdict.delays_s == [0.5, 0.5]


def test_what_never_came_is_lost() -> None:
    verdict = audited([known(1), known(2)], [receipt(2, batch=1)])
    assert verdict.lost == [("alice", 1)]
    assert not verdict.good


def test_a_flush_may_forget_a_lost_answer_of_a_shared_subscription_and_of_no_other() -> None:
    flush = Interval(kind="redis_flush", start_s=1030.0, end_s=1031.0)
    shared = audited([known(1)], [], [flush], kind="shared")
    assert shared.good
    assert shared.forgotten == 1
    assert audited([known(1)], [], [flush], kind="acknowledging").lost == [("alice", 1)]
    assert audited([known(200)], [], [flush], kind="shared").lost == [("alice", 200)]


def test_what_does_not_qualify_is_neither_missed_nor_welcome() -> None:
    others = [known(1, from_=ALICE), known(2, no_reply=True), known(3, reaction=True)]
    assert audited(others, []).good
    verdict = audited(others, [receipt(2, batch=1)])
    assert verdict.foreign == [("alice", 2)]
    assert not verdict.good


def test_a_message_the_host_never_listed_is_foreign() -> None:
    assert audited([known(1)], [receipt(1, batch=1), receipt(9, batch=2)]).foreign == [("alice", 9)]


def test_a_filter_expects_its_sender_alone() -> None:
    reader = Reader(name="alice", address=ALICE, kind="plain", from_=STRANGER)
    listed = {1: known(1), 2: known(2, from_="@other@far.test")}
    assert expected(reader, listed) == {1}
    assert missing([reader], {ALICE: listed}, []) == [("alice", 1)]


def test_a_duplicate_needs_a_mark() -> None:
    verdict = audited([known(1)], [receipt(1, batch=1), receipt(1, batch=2, marked=True)])
    assert verdict.good
    assert verdict.marked == 1
    assert audited([known(1)], [receipt(1, batch=1), receipt(1, batch=2)]).unmarked == [("alice", 1)]


def test_who_acknowledges_gets_nothing_twice_marked_or_not() -> None:
    twice = [receipt(1, batch=1), receipt(1, batch=2, marked=True)]
    verdict = audited([known(1)], twice, kind="acknowledging")
    assert verdict.again == [("alice", 1)]
    assert not verdict.good
    assert audited([known(1)], twice, kind="shared").good


def test_a_flush_in_between_excuses_the_missing_mark_and_is_counted() -> None:
    twice = [receipt(1, batch=1, at_s=1002.0), receipt(1, batch=2, at_s=1009.0)]
    flush = Interval(kind="redis_flush", start_s=1005.0, end_s=1006.0)
    verdict = audited([known(1)], twice, [flush])
    assert verdict.good
    assert verdict.after_flush == 1
    too_late = Interval(kind="redis_flush", start_s=1015.0, end_s=1016.0)
    assert not audited([known(1)], twice, [too_late]).good
    restart = Interval(kind="redis_restart", start_s=1004.0, end_s=1004.0)
    assert not audited([known(1)], [receipt(1, batch=1, at_s=1002.0), receipt(1, batch=2, at_s=1019.0)], [restart]).good


def test_a_store_that_was_away_excuses_no_duplicate() -> None:
    """A wait holds meanwhile, and what it returned before is recorded."""
    twice = [receipt(1, batch=1, at_s=1002.0), receipt(1, batch=2, at_s=1009.0)]
    for kind in ("redis_pause", "redis_restart"):
        fault = Interval(kind=kind, start_s=1008.5, end_s=1010.0)
        assert audited([known(1)], twice, [fault]).unmarked == [("alice", 1)]


def test_a_batch_is_of_one_thread() -> None:
    thread = [known(1), known(2, root=1), known(3)]
    together = [receipt(1, batch=1), receipt(2, batch=1)]
    assert audited(thread, [*together, receipt(3, batch=2)]).good
    mixed = audited(thread, [*together, receipt(3, batch=1)])
    assert mixed.mixed == [("alice", (1, 2, 3))]
    assert not mixed.good


def test_a_delay_belongs_to_the_fault_that_was_there_when_the_message_was_due() -> None:
    late = [receipt(1, batch=1, at_s=1031.0)]
    at_once = Interval(kind="kill_daemon", start_s=1000.0, end_s=1001.5)
    much_later = Interval(kind="api_slow", start_s=1020.0, end_s=1030.0)
    verdict = audited([known(1)], late, [at_once, much_later])
    assert verdict.worst_s == {"kill_daemon": 30.0}
    assert verdict.slowest == [(30.0, "alice", 1, 1001.0)]
    assert audited([known(1)], late, [much_later]).delays_s == [30.0]


def test_a_reader_that_was_away_itself_did_not_wait() -> None:
    later = msgspec.structs.replace(receipt(1, batch=1, at_s=1061.0), since_s=1060.0)
    assert audited([known(1)], [later]).delays_s == [1.0]


def test_roots_are_found_by_walking() -> None:
    assert roots_of({1: None, 2: 1, 3: 2, 9: None, 8: 9, 7: 5}) == {1: 1, 2: 1, 3: 1, 9: 9, 8: 9, 7: 5, 5: 5}
