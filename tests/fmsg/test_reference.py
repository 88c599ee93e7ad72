"""References are canonical decimal strings and keep all 64 bits."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.errors import BadInput
from fmsg.reference import MAX_ID, format_reference, parse_position, parse_reference
from tests.fmsg.fakehost import KEY

ids = st.integers(min_value=1, max_value=MAX_ID)


@given(ids)
def test_an_id_survives_the_round_trip(message_id: int) -> None:
    assert parse_reference(format_reference(message_id)) == message_id


def test_ids_above_two_to_the_53_are_exact() -> None:
    assert parse_reference("9007199254740993") == 9007199254740993
    assert parse_reference("9223372036854775807") == 2**63 - 1


@given(st.text(max_size=30))
def test_a_text_is_taken_exactly_if_it_is_how_an_id_is_written(text: str) -> None:
    canonical = text.isascii() and text.isdigit() and not text.startswith("0") and int(text) <= MAX_ID
    try:
        assert format_reference(parse_reference(text)) == text
    except BadInput:
        assert not canonical


@pytest.mark.parametrize(
    "value",
    [
        "", "0", "00", "01", "-1", "+1", "1.0", "1e3", " 1", "1 ", "1\n", "0x1", "١٢", "１", "1_000",
        "9223372036854775808", "99999999999999999999", 1, 2502, 0, -1, 1.0, True, None, b"1", ["1"], {"id": "1"},
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_the_name_of_the_argument(value: object) -> None:
    with pytest.raises(BadInput, match=r'^thread_of: .* is not a message reference\. Pass .* for example "2502"\.$'):
        parse_reference(value, name="thread_of")


def test_a_number_is_shown_as_a_number_so_that_the_missing_quotes_are_seen() -> None:
    with pytest.raises(BadInput, match="id: the number 2502 is not a message reference"):
        parse_reference(2502)


def test_a_number_of_a_million_digits_is_refused_as_quickly_as_any() -> None:
    with pytest.raises(BadInput, match="a value of type int"):
        parse_reference(10**1_000_000)


def test_the_error_for_a_long_value_is_short_and_holds_no_key() -> None:
    with pytest.raises(BadInput) as caught:
        parse_reference(KEY + "9" * 10_000)
    assert len(str(caught.value)) < 250
    assert "5dQ1kZ" not in str(caught.value)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text())))
def test_nothing_but_bad_input_is_ever_raised(value: object) -> None:
    with contextlib.suppress(BadInput):
        assert 1 <= parse_reference(value) <= MAX_ID


def test_a_position_may_be_before_everything() -> None:
    assert parse_position("0") == 0
    assert parse_position("7") == 7


@pytest.mark.parametrize("value", ["00", "-0", 0, False, "", None])
def test_only_the_string_0_is_the_position_before_everything(value: object) -> None:
    with pytest.raises(BadInput, match=r"^after_id: "):
        parse_position(value)
