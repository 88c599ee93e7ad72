"""What a host's answer says, and how little of it is believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from fmsg import answers
from fmsg.answers import (
    MAX_REASON_BYTES,
    MAX_RETRY_AFTER_S,
    check,
    host_time_s,
    read_answer,
    reason_of,
    retry_after_s,
)
from fmsg.errors import Forbidden, HostMisbehaved, Throttled
from tests.fmsg.fakehost import KEY, FakeHost, jwt


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


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A plain client of the library."""
    async with aiohttp.ClientSession() as opened:
        yield opened


async def test_an_answer_is_read_whole_up_to_a_limit(host: FakeHost, session: aiohttp.ClientSession) -> None:
    host.answer("GET", "/exact", b"0123456789", headers={"Date": "Thu, 01 Jan 1970 00:01:40 GMT"})
    host.answer("GET", "/more", b"0123456789a")
    answer = await read_answer(await session.get(f"{host.url}/exact"), max_bytes=10)
    assert (answer.status, answer.data, answer.host_time_s) == (200, b"0123456789", 100.0)
    with pytest.raises(HostMisbehaved, match="longer than 10 bytes"):
        await read_answer(await session.get(f"{host.url}/more"), max_bytes=10)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_success_passes_the_check(host: FakeHost, session: aiohttp.ClientSession, status: int) -> None:
    host.answer("GET", "/", b"", status=status)
    async with session.get(f"{host.url}/") as response:
        await check(response)


async def test_a_refusal_is_raised_with_all_it_says(host: FakeHost, session: aiohttp.ClientSession) -> None:
    host.answer("GET", "/", {"error": "wait", "code": "rate"}, status=429, headers={"Retry-After": "3"})
    with pytest.raises(Throttled) as caught:
        await check(await session.get(f"{host.url}/"))
    assert (caught.value.reason, caught.value.code, caught.value.retry_after_s) == ("wait", "rate", 3.0)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (
            {"Location": f"https://x.test/?k={KEY}"},
            r"redirect \(302\) to https://x\.test/\?k=\[redacted fmsg key\]\. Red",
        ),
        ({"Location": "https://x.test/" + "a" * 5000}, r"redirect \(302\) to https://x\.test/a{100,200}…\. Red"),
        ({}, "status 302, which the Web API does not use"),
    ],
)
async def test_a_redirect_is_shown_in_brief(
    host: FakeHost, session: aiohttp.ClientSession, headers: dict[str, str], text: str
) -> None:
    host.answer("GET", "/", b"", status=302, headers=headers)
    with pytest.raises(HostMisbehaved, match=text):
        await check(await session.get(f"{host.url}/", allow_redirects=False))


@pytest.mark.parametrize("hang", [True, False])
async def test_a_refusal_is_one_even_if_its_text_does_not_come(
    host: FakeHost, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, hang: bool
) -> None:
    monkeypatch.setattr(answers, "ERROR_WITHIN_S", 0.05)

    async def begin(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=403, headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        if hang:
            await asyncio.Event().wait()
        assert request.transport is not None
        request.transport.abort()
        return response

    host.on("GET", "/", begin)
    with pytest.raises(Forbidden, match=r"^403: Forbidden$"):
        await check(await session.get(f"{host.url}/"))


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
