"""Bodies as bounded text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_front.bodies import clipped, decoded


@given(st.text(), st.integers(0, 50))
def test_a_clipped_text_is_a_beginning_of_it_in_whole_characters(text: str, most: int) -> None:
    data = text.encode("utf-8", "replace")
    cut = clipped(text, most)
    assert cut.text is not None
    assert len(cut.text.encode()) <= most
    assert data.startswith(cut.text.encode())
    assert len(data) - len(cut.text.encode()) < 4 or len(cut.text.encode()) > most - 4
    assert cut.truncated is (len(data) > most)


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_become_text(data: bytes, more: bool) -> None:
    decoded(data, more=more).encode()


def test_what_is_cut_in_the_middle_of_a_character_is_left_out_only_where_there_is_more() -> None:
    assert decoded("é".encode()[:1], more=True) == ""
    assert decoded("é".encode()[:1], more=False) == "\ufffd"
