"""Indexes: pages cost a page, drafts come and go, ids and stamps only grow."""

from __future__ import annotations

import pytest

from sandbox.records import Recipient, Record
from sandbox.state import MAX_ID, State, page
from sandbox.wire import Refused
from tests.sandbox.conftest import Clock


def record(number: int) -> Record:
    return Record(id=number, from_="@a@x", to=[Recipient(addr="@b@x")], type="text/plain")


def test_pages_are_newest_first() -> None:
    ids = list(range(1, 11))
    assert page(ids, limit=3, offset=0) == [10, 9, 8]
    assert page(ids, limit=3, offset=8) == [2, 1]
    assert page(ids, limit=3, offset=10) == []
    assert page([], limit=3, offset=0) == []


def test_a_draft_sent_late_takes_its_place_by_id(clock: Clock) -> None:
    state = State(clock=clock)
    early, late = record(state.take_id()), record(state.take_id())
    for draft in (early, late):
        state.add_draft(draft)
    assert (state.mailbox("@B@x").shown, state.mailbox("@b@x").received) == ([1, 2], [])
    state.publish(late, state.stamp())
    state.publish(early, state.stamp())
    assert state.mailbox("@b@x").received == [1, 2]
    assert early.time_s is not None
    assert late.time_s is not None
    assert early.time_s > late.time_s
    assert state.by_hash[early.sha256 or ""] == 1


def test_a_dropped_draft_leaves_nothing(clock: Clock) -> None:
    state = State(clock=clock)
    draft = record(state.take_id())
    state.add_draft(draft)
    state.drop_draft(draft)
    assert (state.messages, state.mailbox("@b@x").shown, state.mailbox("@a@x").sent) == ({}, [], [])
    assert state.take_id() == 2


def test_a_refused_recipient_gets_nothing(clock: Clock) -> None:
    state = State(clock=clock)
    draft = record(state.take_id())
    state.add_draft(draft)
    draft.to[0].code = 102
    state.publish(draft, state.stamp())
    assert (state.mailbox("@b@x").shown, state.mailbox("@b@x").received) == ([], [])


def test_stamps_only_grow(clock: Clock) -> None:
    state = State(clock=clock)
    first = state.stamp()
    clock.now_s -= 100
    second = state.stamp()
    parent = record(1)
    parent.time_s = first + 50
    assert first < second < parent.time_s < state.stamp(after=parent)


def test_ids_end_at_the_largest(clock: Clock) -> None:
    state = State(clock=clock)
    state.set_next_id(MAX_ID)
    assert state.take_id() == MAX_ID
    with pytest.raises(Refused):
        state.take_id()
