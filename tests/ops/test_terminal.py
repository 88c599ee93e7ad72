from __future__ import annotations

import pytest

from ops.terminal import coloured, many, span, table, wrapped


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1.0, "0 s"), (59.0, "59 s"), (150.0, "2 min"), (7200.0, "2 h"), (90_000.0, "25 h"), (864_000.0, "10 d")],
)
def test_lengths_of_time(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "thing", "told"), [(1, "caller", "1 caller"), (2, "caller", "2 callers"), (0, "process", "0 processes")]
)
def test_numbers_of_things(count: int, thing: str, told: str) -> None:
    assert many(count, thing) == told


def test_a_column_is_as_wide_as_its_widest_cell() -> None:
    assert table([("name", "n", ""), ("box-1", "7", "silent"), ("b", "12", "")]) == [
        "  name   n",
        "  box-1  7   silent",
        "  b      12",
    ]


def test_lines_break_between_words_under_the_last_column() -> None:
    text = wrapped("FAILED   redis  PING redis://127.0.0.1:6379: connection refused", indent=16, columns=44)
    assert text == "FAILED   redis  PING redis://127.0.0.1:6379:\n                connection refused"
    assert "redis://a-very-long-name" in wrapped("FAILED redis://a-very-long-name", indent=2, columns=10)


def test_colours_are_left_out_where_they_are_not_wanted() -> None:
    assert coloured("BAD", "31", wanted=False) == "BAD"
    assert coloured("BAD", "31", wanted=True) == "\x1b[31mBAD\x1b[0m"
