"""Hosts that are broken or mean harm: little is read of them, and nothing but declared errors comes of them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from fmsg.errors import AnswerTooLong, FmsgError, HostMisbehaved, HostRefused
from fmsg.http import HostHttp
from fmsg.message import Draft
from fmsg.tokens import FixedTokens, token_of
from fmsg.webapi import MAX_PAGE_BYTES, MAX_THREAD_BYTES, WebApi
from tests.fmsg.fakehost import ALICE, FakeHost, access_token, jwt, serve

MIB = 1024 * 1024
Call = Callable[[WebApi], Awaitable[object]]


def pouring(unit: bytes, *, head: bytes = b"[", announced: int | None = None) -> tuple[list[int], object]:
    """A handler that sends a unit up to 60 MiB, and how many bytes it could send."""
    sent = [0]

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if announced is not None:
            response.content_length = announced
        await response.prepare(request)
        piece = unit * (64 * 1024 // len(unit) + 1)
        await response.write(head)
        while sent[0] < 60 * MIB:
            sent[0] += len(piece)
            await response.write(piece)
        return response

    return sent, handler


FLOODS: dict[str, bytes] = {
    "entries": b'{"id":1},',
    "empty entries": b"{},",
    "blanks": b" ",
    "brackets": b"[",
    "digits": b"9",
}
STARTS: dict[str, bytes] = {
    "list": b"[",
    "reactions": b'[{"id":1,"reactions":[',
    "topic": b'[{"id":1,"topic":"',
}


@pytest.mark.parametrize("unit", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("head", STARTS.values(), ids=STARTS)
async def test_a_list_without_end_is_left_after_the_limit_of_its_route(
    host: FakeHost, fixed: WebApi, unit: bytes, head: bytes
) -> None:
    sent, handler = pouring(unit, head=head)
    host.on("GET", "/fmsg", handler)  # type: ignore[arg-type]
    with pytest.raises(AnswerTooLong, match=f"longer than {MAX_PAGE_BYTES} bytes"):
        await fixed.list_received()
    assert sent[0] < MAX_PAGE_BYTES + 16 * MIB, "what lies in buffers between"


async def test_an_answer_that_announces_too_much_is_not_read_at_all(host: FakeHost, fixed: WebApi) -> None:
    sent, handler = pouring(b" ", announced=60 * MIB)
    host.on("GET", "/fmsg", handler)  # type: ignore[arg-type]
    with pytest.raises(AnswerTooLong):
        await fixed.list_received()
    assert sent[0] < 16 * MIB


async def test_a_thread_that_is_too_long_is_refused_as_a_host_refuses_one(host: FakeHost, fixed: WebApi) -> None:
    """So that readers turn to its messages one by one."""
    _, handler = pouring(b"x", head=b'{"messages":[{"id":1,"body":{"text":"', announced=MAX_THREAD_BYTES + 1)
    host.on("GET", "/fmsg/1/thread/messages", handler)  # type: ignore[arg-type]
    with pytest.raises(HostRefused, match="413"):
        await fixed.thread(1)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "x"])
async def test_what_is_compressed_is_refused_before_it_is_read(host: FakeHost, fixed: WebApi, encoding: str) -> None:
    bomb = gzip.compress(b" " * (16 * MIB))
    headers = {"Content-Encoding": encoding}
    for method, path in (("GET", "/fmsg"), ("GET", "/fmsg/1/data"), ("GET", "/fmsg/1/attach/a")):
        host.answer(method, path, bomb, headers=headers)
    for call in (lambda: fixed.list_received(), lambda: fixed.body(1)):
        with pytest.raises(HostMisbehaved, match=f"the encoding {encoding}, which was not asked for"):
            await call()
    with pytest.raises(HostMisbehaved, match="not asked for"):
        async with fixed.attachment(1, "a"):
            pass
    assert all(asked.headers["Accept-Encoding"] == "identity" for asked in host.asked)


async def test_a_compressed_refusal_is_one_without_its_text(host: FakeHost, fixed: WebApi) -> None:
    host.answer("GET", "/fmsg", gzip.compress(b'{"error":"x"}'), status=503, headers={"Content-Encoding": "gzip"})
    with pytest.raises(HostRefused, match=r"^503: Service Unavailable$"):
        await fixed.list_received()


async def test_small_answers_are_small(host: FakeHost, fixed: WebApi) -> None:
    host.answer("POST", "/fmsg/1/read", b'{"id":1,"x":"' + b"y" * 70_000 + b'"}')
    with pytest.raises(AnswerTooLong):
        await fixed.mark_read(1)


scalar = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [10**400, -1, 2**63, 2**64, 253_402_300_799, "a" * 64, "", "@a@b.test", "0001-01-01T00:00:00+14:00"]
    )
    | st.floats()
    | st.text(max_size=8)
)
NAMES = st.sampled_from(
    [
        *("id", "pid", "from", "to", "add_to", "time", "topic", "type", "size", "short_text", "read", "body", "text"),
        *("attachments", "filename", "reaction", "reactions", "emoji", "sha256", "to_delivery", "addr", "deflate"),
        *("response_code", "batch_id", "add_to_from", "root_id", "trigger_id", "complete", "messages", "visible"),
        *("access_token", "expires_in", "added", "time_read", "error", "message_sha256", "time_delivered"),
    ]
)
document = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=8),
    max_leaves=30,
)
DRAFT = Draft(from_=ALICE, to=("@b@b.test",), type="text/plain", size=2, data="hi")
ROUTES: dict[tuple[str, str], Call] = {
    ("GET", "/fmsg"): lambda api: api.list_received(),
    ("GET", "/fmsg/sent"): lambda api: api.list_sent(),
    ("GET", "/fmsg/1"): lambda api: api.message(1),
    ("GET", "/fmsg/1/thread/messages"): lambda api: api.thread(1),
    ("GET", "/fmsg/1/data"): lambda api: api.body(1),
    ("POST", "/fmsg"): lambda api: api.create_draft(DRAFT),
    ("POST", "/fmsg/1/send"): lambda api: api.send(1),
    ("POST", "/fmsg/1/read"): lambda api: api.mark_read(1),
    ("POST", "/fmsg/1/add-to"): lambda api: api.add_recipients(1, ["@b@b.test"]),
    ("POST", "/fmsg/1/react"): lambda api: api.react(1, None),
    ("POST", "/fmsg/1/attach"): lambda api: api.attach(1, "a", b"x", content_type="text/plain"),
    ("DELETE", "/fmsg/1"): lambda api: api.delete_draft(1),
}


@settings(max_examples=40)
@given(data=st.data())
async def test_nothing_but_declared_errors_comes_of_any_route(data: st.DataObject) -> None:
    async with serve() as host, HostHttp(host.url) as http:
        api = WebApi(http, FixedTokens(access_token(), clock=lambda: 1_000.0))
        for (method, path), call in ROUTES.items():
            answer = data.draw(document | st.lists(st.dictionaries(NAMES, scalar), max_size=4))
            status = data.draw(st.sampled_from([200, 200, 200, 200, 400, 500]))
            host.answer(method, path, json.dumps(answer).encode(), status=status)
            with suppress(FmsgError):
                await call(api)


@given(answer=document)
def test_nothing_but_declared_errors_comes_of_an_exchange(answer: object) -> None:
    claims = base64.urlsafe_b64encode(json.dumps(answer).encode()).decode()
    for fields in (answer, {"access_token": answer}, {"access_token": f"a.{claims}.c", "expires_in": 1e308}):
        with suppress(FmsgError):
            token_of(json.dumps(fields).encode(), asked_at_s=0.0)


@pytest.mark.parametrize("life_s", [1e308, -1e308, 0, -1, 1e-300])
@pytest.mark.parametrize("exp", [1e308, -1e308, 0, 4600, 1e18])
def test_a_token_s_life_is_one_whatever_the_host_says(life_s: float, exp: float) -> None:
    answer = {"access_token": jwt(exp=exp, iat=1000), "expires_in": life_s}
    token = token_of(json.dumps(answer).encode(), asked_at_s=1000.0)
    assert 1000.0 <= token.expires_at_s <= 1000.0 + 366 * 86400
