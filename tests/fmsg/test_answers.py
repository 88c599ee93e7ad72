"""What a host's answer says, and how little of it is believed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.answers import MAX_REASON_BYTES, MAX_RETRY_AFTER_S, host_time_s, reason_of, retry_after_s
from tests.fmsg.fakehost import KEY, jwt


def reason(data: bytes) -> str:
    """The reason alone."""
    return reason_of(data, fallback="nothing said")[0]


def test_the_host_s_text_is_kept_verbatim() -> None:
    text = 'invalid to address: "bob" — see §3,  two blanks'
    assert reason_of(json.dumps({"error": text, "code": "invalid_address"}).encode(), fallback="") == (
        text,
        "invalid_address",
    )


def test_a_numeric_code_is_a_code() -> None:
    assert reason_of(b'{"error":"x","code":17}', fallback="") == ("x", "17")


@pytest.mark.parametrize("data", [b"", b"   ", b"\x00\x01", b'{"error":""}'])
def test_where_nothing_is_said_the_fallback_is(data: bytes) -> None:
    assert reason(data) == "nothing said"


def test_a_proxy_s_page_is_shown_as_it_is_and_bounded() -> None:
    page = b"<html><body><h1>502 Bad Gateway</h1>" + b"x" * 100_000
    shown = reason(page)
    assert shown.startswith("<html><body><h1>502 Bad Gateway</h1>xxx")
    assert len(shown.encode()) <= MAX_REASON_BYTES


@given(st.binary(max_size=6000))
def test_any_bytes_give_a_bounded_printable_reason(data: bytes) -> None:
    shown = reason(data)
    assert len(shown.encode()) <= MAX_REASON_BYTES
    assert "\x1b" not in shown
    assert "\x00" not in shown


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3000))
def test_a_long_reason_is_cut_at_a_character(text: str) -> None:
    shown = reason(json.dumps({"error": text}).encode())
    assert len(shown.encode()) <= MAX_REASON_BYTES
    assert "\ufffd" not in shown or "\ufffd" in text


def test_a_host_that_echoes_credentials_is_not_quoted() -> None:
    for data in (
        json.dumps({"error": f"bad key {KEY}", "code": KEY}).encode(),
        f"<p>Authorization: Bearer {jwt()} and {KEY}".encode(),
        b"x" * (MAX_REASON_BYTES - 10) + KEY.encode(),
    ):
        text, code = reason_of(data, fallback="")
        assert "5dQ1kZ" not in text + str(code)
        assert jwt()[:20] not in text


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "999999999999999999"}, MAX_RETRY_AFTER_S),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "²"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:30 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


@pytest.mark.parametrize("value", ["", "x", "Wed, 99 Oct 2026 07:28:30 GMT", "0", "Wed, 21 Oct 99999 07:28:30 GMT"])
def test_a_date_that_is_none_is_ignored(value: str) -> None:
    assert host_time_s({"Date": value}) is None


def test_the_host_s_date_is_its_clock() -> None:
    assert host_time_s({"Date": "Thu, 01 Jan 1970 00:01:40 GMT"}) == 100.0
