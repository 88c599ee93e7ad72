from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.reference import MAX_ID
from ledger.redis import entry
from ledger.values import Arrival, Seen, Source

ids = st.integers(0, MAX_ID)
times = st.floats(0.0, 1e11, allow_nan=False)


@given(
    message_id=ids,
    pid=st.none() | ids,
    root=ids,
    sender=st.text(st.characters(codec="utf-8"), max_size=60),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    sent_at_s=times,
    arrived_us=st.integers(0, 2**53),
    source=st.sampled_from(get_args(Source)),
)
def test_what_is_packed_is_unpacked(
    message_id: int,
    pid: int | None,
    root: int,
    sender: str,
    flags: tuple[bool, bool, bool],
    sent_at_s: float,
    arrived_us: int,
    source: Source,
) -> None:
    no_reply, reaction, terminal = flags
    seen = Seen(
        id=message_id,
        pid=pid,
        root=root,
        from_=sender,
        no_reply=no_reply,
        reaction=reaction,
        terminal=terminal,
        sent_at_s=sent_at_s,
    )
    whole = arrived_us.to_bytes(8, "big") + entry.pack(seen, source)
    assert entry.unpack(whole, n=7, message_id=message_id) == Arrival(
        n=7,
        id=message_id,
        pid=pid,
        root=root,
        from_=sender,
        no_reply=no_reply,
        reaction=reaction,
        terminal=terminal,
        sent_at_s=sent_at_s,
        arrived_at_s=arrived_us / 1e6,
        source=source,
    )


@given(one=times, other=times)
def test_packed_times_compare_as_the_times_do(one: float, other: float) -> None:
    assert (entry.pack_time(one) > entry.pack_time(other)) == (one > other)
    assert entry.unpack_time(entry.pack_time(one)) == one


@pytest.mark.parametrize("odd", [-1.0, -0.0])
def test_a_time_before_1970_counts_as_1970(odd: float) -> None:
    assert entry.pack_time(odd) == entry.pack_time(0.0) == bytes(8)
    assert entry.micros(odd) == 0


@given(time_s=times)
def test_microseconds_are_never_later(time_s: float) -> None:
    assert entry.micros(time_s) <= time_s * 1e6


def test_an_entry_is_as_small_as_the_manual_says() -> None:
    seen = Seen(id=1, pid=None, root=1, from_="@bob@b.test")
    assert len(entry.pack(seen, "push")) == 25 - 8 + 11
    assert len(entry.pack_root(5)) == 8
