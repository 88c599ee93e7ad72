from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.reference import MAX_ID
from ledger.redis.entry import NAMES, arrival_of, fields_of, read_id, read_time, time_text
from ledger.values import Arrival, Seen, Source, StreamId

ids = st.integers(0, MAX_ID)
times = st.floats(0.0, 1e11, allow_nan=False)
stream_ids = st.builds(StreamId, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
flags = st.booleans()


def written(seen: Seen, source: str) -> list[bytes]:
    """The fields of an entry as Redis answers them."""
    values = [*fields_of(seen), source]
    return [word.encode() for pair in zip(NAMES, values, strict=True) for word in pair]


SEEN = st.builds(
    Seen,
    id=ids,
    pid=st.none() | ids,
    root=ids,
    from_=st.text(st.characters(codec="utf-8"), max_size=60),
    no_reply=flags,
    reaction=flags,
    terminal=flags,
    sent_at_s=times,
)


@given(seen=SEEN, at=stream_ids, source=st.sampled_from(get_args(Source)), returned=flags)
def test_what_is_written_is_read(seen: Seen, at: StreamId, source: Source, returned: bool) -> None:
    found = arrival_of(str(at).encode(), written(seen, source), returned=returned)
    expected = Arrival.of(seen, at, source)
    assert [getattr(found, name) for name in Arrival.__struct_fields__ if name != "returned"] == [
        getattr(expected, name) for name in Arrival.__struct_fields__ if name != "returned"
    ]
    assert found.returned is returned


def test_a_late_root_takes_the_place_of_an_unknown_one() -> None:
    seen = Seen(id=7, pid=5, root=0, from_="@bob@b.test")
    assert arrival_of(b"5-0", written(seen, "push"), late_root=b"3").root == 3


def test_anybody_can_read_an_entry() -> None:
    seen = Seen(id=7, pid=None, root=7, from_="@bob@b.test", no_reply=True, terminal=True, sent_at_s=1.5)
    assert dict(zip(NAMES, fields_of(seen), strict=False)) == {
        "id": "7",
        "pid": "",
        "root": "7",
        "from": "@bob@b.test",
        "flags": "no_reply,terminal",
        "sent": "1.5",
    }


@pytest.mark.parametrize("odd", [-1.0, -0.0, math.nan, -math.inf, math.inf])
def test_a_time_that_is_none_counts_as_1970(odd: float) -> None:
    assert time_text(odd) == "0.0"


@given(time_s=times)
def test_a_time_is_exact(time_s: float) -> None:
    assert read_time(time_text(time_s).encode()) == time_s


@pytest.mark.parametrize("text", ["", "x", "-1", str(MAX_ID + 1), "1.5"])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_id(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", b"x"),
        ("id", str(MAX_ID + 1).encode()),
        ("pid", b"-4"),
        ("root", b""),
        ("from", b"\xff"),
        ("flags", b"loud"),
        ("sent", b"nan"),
        ("sent", b"soon"),
        ("source", b"hearsay"),
    ],
)
def test_a_damaged_entry_is_refused(name: str, value: bytes) -> None:
    fields = written(Seen(id=7, pid=5, root=3, from_="@bob@b.test"), "push")
    fields[2 * NAMES.index(name) + 1] = value
    with pytest.raises(ValueError, match=r"."):
        arrival_of(b"5-0", fields)


def test_so_is_one_with_other_fields_or_another_id() -> None:
    fields = written(Seen(id=7, pid=5, root=3, from_="@bob@b.test"), "push")
    for odd in (fields[:-1], fields[:-2], [*fields, b"more", b"x"]):
        with pytest.raises(ValueError, match=r"."):
            arrival_of(b"5-0", odd)
    with pytest.raises(ValueError, match="stream id"):
        arrival_of(b"5", fields)
