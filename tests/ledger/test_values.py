from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.values import (
    END,
    IMAGE_ENTRIES,
    IMAGE_UNVERIFIED,
    START,
    Appended,
    Arrival,
    Baseline,
    Head,
    Image,
    LedgerState,
    Seen,
    Slice,
    StreamId,
)

parts = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 9, 10, 2**53, 2**64 - 1]))
stream_ids = st.builds(StreamId, parts, parts)


class TestStreamId:
    @given(at=stream_ids)
    def test_its_text_is_read_back(self, at: StreamId) -> None:
        assert StreamId.parse(str(at)) == at

    @given(one=stream_ids, other=stream_ids)
    def test_ids_compare_by_time_and_then_by_number(self, one: StreamId, other: StreamId) -> None:
        assert (one < other) == ((one.ms, one.seq) < (other.ms, other.seq))

    @given(at=stream_ids)
    def test_nothing_lies_between_an_id_and_the_one_before(self, at: StreamId) -> None:
        before = at.before()
        if at == START:
            assert before == START
        else:
            assert before < at
            assert before.following(before.ms) == at if at.seq else (before.seq, at.ms - before.ms) == (2**64 - 1, 1)

    def test_ids_grow_whatever_the_clock_does(self) -> None:
        assert START.following(5) == StreamId(5, 0)
        assert StreamId(5, 0).following(5) == StreamId(5, 1)
        assert StreamId(5, 3).following(4) == StreamId(5, 4)
        assert START.following(0) == StreamId(0, 1)
        assert START < StreamId(5, 3) < END

    @pytest.mark.parametrize("text", ["", "5", "5-", "-5", "5-5-5", "a-b", " 5-5", f"{2**64}-0", f"0-{2**64}"])
    def test_other_texts_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="stream id"):
            StreamId.parse(text)

    def test_it_travels_in_a_record(self) -> None:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(StreamId(5, 2**64 - 1)), type=StreamId).seq == 2**64 - 1


def state(last: StreamId, *, verified_id: int = 0, low: StreamId = START, epoch: str = "life") -> LedgerState:
    base = Baseline(newest_id=10, time_s=1.0)
    return LedgerState(
        epoch=epoch, last=last, low=low, baseline=base, settled=base, held=0, now_s=9.0, verified_id=verified_id
    )


def arrival(id_: int, *, sent_at_s: float = 0.0) -> Arrival:
    seen = Seen(id=id_, pid=id_ - 1, root=3, from_="@bob@b.test", reaction=True, sent_at_s=sent_at_s)
    return Arrival.of(seen, StreamId(id_ * 1000, 0), "push")


def appended(*new: Arrival, before: StreamId, verified_id: int = 0, epoch: str = "life") -> Appended:
    return Appended(new=new, duplicates=0, before=before, state=state(new[-1].at, verified_id=verified_id, epoch=epoch))


class TestImage:
    def test_it_grows_with_what_is_appended_behind_it(self) -> None:
        first = arrival(20)
        image = Image.of(Slice(entries=(first,), state=state(first.at)), whole=True)
        grown = image.grown(appended(arrival(21), arrival(22), before=first.at))
        assert grown is not None
        assert grown.entries == (first, arrival(21), arrival(22))
        assert grown.state.head == Head("life", arrival(22).at)
        assert grown.state.low == START

    def test_not_where_others_appended_in_between_or_it_began_anew(self) -> None:
        first = arrival(20)
        image = Image.of(Slice(entries=(first,), state=state(first.at)), whole=True)
        assert image.grown(appended(arrival(22), before=arrival(21).at)) is None
        assert image.grown(appended(arrival(22), before=first.at, epoch="other")) is None

    def test_what_it_lets_go_is_old_news_and_below_its_low_watermark(self) -> None:
        entries = tuple(arrival(20 + k, sent_at_s=20.0 + k) for k in range(IMAGE_ENTRIES + 2))
        image = Image.of(Slice(entries=entries, state=state(entries[-1].at, verified_id=1000)), whole=True)
        assert image.entries == entries[2:]
        assert image.state.low == entries[1].at
        assert image.state.settled == image.state.baseline == Baseline(newest_id=21, time_s=21.0)

    def test_what_is_not_verified_stays_longer_and_then_is_no_old_news(self) -> None:
        entries = tuple(arrival(20 + k, sent_at_s=20.0) for k in range(IMAGE_UNVERIFIED + 1))
        image = Image.of(Slice(entries=entries[:-1], state=state(entries[-2].at)), whole=True)
        assert len(image.entries) == IMAGE_UNVERIFIED
        full = image.joined(entries[-1:], state(entries[-1].at))
        assert full.entries == entries[1:]
        assert full.state.low == entries[0].at
        assert full.state.settled == Baseline(newest_id=10, time_s=1.0)
        assert len(full.joined((), state(entries[-1].at, verified_id=1000)).entries) == IMAGE_ENTRIES

    def test_one_of_the_end_alone_begins_with_a_gap(self) -> None:
        entries = (arrival(20), arrival(21))
        image = Image.of(Slice(entries=entries, state=state(entries[-1].at)), whole=False)
        assert image.state.low == entries[0].at.before()

    def test_an_entry_takes_some_hundred_bytes(self) -> None:
        (packed,) = Image.of(Slice(entries=(arrival(2**40),), state=state(arrival(2**40).at)), whole=True).packed
        assert len(packed) < 100


@pytest.mark.parametrize(
    ("id_", "sent_at_s", "verified"), [(20, 19.0, True), (20, 20.0, True), (20, 20.5, False), (101, 19.0, False)]
)
def test_a_baseline_may_move_past_what_is_verified_and_not_ahead_of_time(
    id_: int, sent_at_s: float, verified: bool
) -> None:
    assert state(START, verified_id=100).verifies(arrival(id_, sent_at_s=sent_at_s)) is verified
