"""Every route, the one repetition after a 401, and that no credential shows."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from msgspec.structs import replace

from fmsg import webapi
from fmsg.errors import (
    BadInput,
    CredentialMissing,
    FmsgError,
    Forbidden,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    NotFound,
    Transient,
    Unauthorized,
)
from fmsg.http import HostHttp
from fmsg.message import Added, AttachmentInfo, Draft, Reacted, ReadMark, Sent
from fmsg.tokens import FixedTokens
from fmsg.webapi import WebApi
from tests.fmsg.conftest import IMPATIENT
from tests.fmsg.fakehost import ALICE, KEY, FakeHost, access_token, jwt, takes_a_file

BIG = 2**63 - 1

DRAFT = Draft(from_=ALICE, to=("@b@b.test",), type="text/plain", size=2, data="hi")

SENT = {"version": 1, "from": "@zoe@x.test", "to": ["@ann@x.test"], "time": 1.0, "size": 0, "type": "text/plain"}
"""A message, as far as it matters whose it is."""


async def test_the_address_comes_from_the_exchange(api: WebApi) -> None:
    assert await api.address() == ALICE


async def test_lists(host: FakeHost, api: WebApi) -> None:
    headers = {"Date": "Thu, 01 Jan 1970 00:01:40 GMT"}
    host.answer("GET", "/fmsg", [{"id": BIG, "from": "@b@b.test", "time": None}, {"id": "?"}], headers=headers)
    host.answer("GET", "/fmsg/sent", None)
    received = await api.list_received(limit=100, offset=5)
    assert [(message.id, message.is_draft) for message in received.messages] == [(BIG, True)]
    assert (received.host_time_s, received.skipped) == (100.0, 1)
    assert (await api.list_sent()).messages == ()
    assert host.paths() == ["GET /fmsg?limit=100&offset=5", "GET /fmsg/sent?limit=20&offset=0"]


async def test_limits_of_lists_are_the_host_s_to_judge(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg", {"error": "invalid limit"}, status=400)
    with pytest.raises(FmsgError, match=r"^400: invalid limit$"):
        await api.list_received(limit=0)


async def test_a_message_gets_its_id(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", f"/fmsg/{BIG}", {"from": "@b@b.test", "pid": 2**53 + 1, "time": 1.5})
    message = await api.message(BIG)
    assert (message.id, message.pid) == (BIG, 2**53 + 1)


async def test_a_body_is_bytes_of_any_kind(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg/1/data", b"\xff\x00" * 5)
    assert await api.body(1) == webapi.Body(data=b"\xff\x00" * 5, truncated=False)


@pytest.mark.parametrize(("max_bytes", "truncated"), [(0, True), (9, True), (10, False), (11, False)])
async def test_a_body_is_cut_where_asked(host: FakeHost, api: WebApi, max_bytes: int, truncated: bool) -> None:
    host.answer("GET", "/fmsg/1/data", b"0123456789")
    assert await api.body(1, max_bytes=max_bytes) == webapi.Body(data=b"0123456789"[:max_bytes], truncated=truncated)


async def test_the_rest_of_a_cut_body_is_not_fetched(host: FakeHost, api: WebApi) -> None:
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1000)
        finally:
            gone.set()

    host.on("GET", "/fmsg/1/data", endless)
    assert await api.body(1, max_bytes=5000) == webapi.Body(data=b"x" * 5000, truncated=True)
    await gone.wait()


async def test_a_body_without_limit_has_one(host: FakeHost, api: WebApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webapi, "MAX_BODY_BYTES", 4)
    host.answer("GET", "/fmsg/1/data", b"12345")
    assert await api.body(1) == webapi.Body(data=b"1234", truncated=True)


async def test_a_thread(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg/3/thread/messages", {"root_id": 1, "trigger_id": 3, "messages": [{"id": 1}, {"id": 3}]})
    thread = await api.thread(3)
    assert (thread.root_id, thread.complete, len(thread.messages or ())) == (1, True, 2)


async def test_an_older_host_has_no_threads(api: WebApi) -> None:
    with pytest.raises(NotFound):
        await api.thread(3)


async def test_a_draft_is_created_sent_or_deleted(host: FakeHost, api: WebApi) -> None:
    host.answer("POST", "/fmsg", {"id": BIG}, status=201)
    host.answer("POST", f"/fmsg/{BIG}/send", {"id": BIG, "time": 1.25})
    host.answer("DELETE", f"/fmsg/{BIG}", b"", status=204)
    assert await api.create_draft(DRAFT) == BIG
    assert await api.send(BIG) == Sent(id=BIG, time=1.25)
    await api.delete_draft(BIG)
    assert host.asked[1].json() == {
        "version": 1,
        "from": ALICE,
        "to": ["@b@b.test"],
        "type": "text/plain",
        "size": 2,
        "data": "hi",
    }


async def test_a_parent_s_id_goes_out_exact_and_as_a_number(host: FakeHost, api: WebApi) -> None:
    host.answer("POST", "/fmsg", {"id": 1}, status=201)
    await api.create_draft(Draft(from_=ALICE, to=("@b@b.test",), type="text/plain", size=0, pid=2**53 + 1))
    assert b'"pid":9007199254740993' in host.asked[1].data


async def test_text_that_is_no_unicode_is_refused_before_it_is_sent(host: FakeHost, api: WebApi) -> None:
    with pytest.raises(BadInput, match="not valid Unicode"):
        await api.create_draft(Draft(from_=ALICE, to=("@b@b.test",), type="text/plain", size=1, data="\ud800"))
    assert host.paths() == []


async def test_marking_adding_reacting(host: FakeHost, api: WebApi) -> None:
    host.answer("POST", "/fmsg/1/read", {"id": 1, "time_read": 2.5})
    host.answer("POST", "/fmsg/1/add-to", {"id": 1, "added": 2, "batch_id": 7, "sha256": None})
    host.answer("POST", "/fmsg/1/react", {"id": None, "time": None, "sha256": None})
    assert await api.mark_read(1) == ReadMark(id=1, time_read=2.5)
    assert await api.add_recipients(1, ["@c@c.test", "@d@d.test"]) == Added(id=1, added=2, batch_id=7)
    assert await api.react(1, "") == Reacted(id=None)
    assert await api.react(1, "👍") == Reacted(id=None)
    assert [asked.data and asked.json() for asked in host.asked[1:]] == [
        b"",
        {"add_to": ["@c@c.test", "@d@d.test"]},
        {"emoji": None},
        {"emoji": "👍"},
    ]


@pytest.mark.parametrize("name", ["a.txt", 'quo"te\\.txt', "ümläut 日本.txt", "a b;c=d.txt"])
async def test_an_attachment_is_reported_under_the_name_the_host_gave_it(
    host: FakeHost, api: WebApi, name: str
) -> None:
    host.on("POST", "/fmsg/1/attach", takes_a_file)
    attached = await api.attach(1, name, b"abc", content_type="text/plain")
    assert attached == AttachmentInfo(filename=f"kept {name}", size=3)


async def test_an_attachment_may_be_a_stream(host: FakeHost, api: WebApi) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    host.on("POST", "/fmsg/1/attach", takes_a_file)
    attached = await api.attach(1, "a.bin", stream(), content_type="application/octet-stream")
    assert (attached.filename, attached.size) == ("kept a.bin", 100_000)


async def test_a_large_attachment_arrives_whole_and_of_known_length(host: FakeHost, api: WebApi) -> None:
    host.on("POST", "/fmsg/1/attach", takes_a_file)
    assert (await api.attach(1, "a", b"x" * 5_000_000, content_type="text/plain")).size == 5_000_000
    assert int(host.asked[1].headers["Content-Length"]) > 5_000_000


async def test_a_host_s_limit_is_reported_in_its_words(host: FakeHost, api: WebApi) -> None:
    host.answer("POST", "/fmsg/1/attach", {"error": "attachment too large"}, status=413)
    with pytest.raises(FmsgError, match=r"^413: attachment too large$"):
        await api.attach(1, "a", b"x" * 100_000, content_type="text/plain")


async def test_a_name_the_host_would_hang_on_is_not_sent(host: FakeHost, api: WebApi) -> None:
    with pytest.raises(BadInput, match="longer than 255 bytes"):
        await api.attach(1, "a" * 256, b"", content_type="text/plain")
    with pytest.raises(BadInput):
        await api.attachment(1, "..").__aenter__()
    assert host.paths() == []


async def test_a_download_s_name_is_one_segment_of_the_path(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg/1", SENT)
    host.answer("GET", "/fmsg/1/attach/a%2Fb%20%3F%23%25%C3%BC.txt", b"abc")
    async with api.attachment(1, "a/b ?#%ü.txt") as download:
        assert (download.size, download.content_type) == (3, "application/json")
        assert b"".join([chunk async for chunk in download.chunks]) == b"abc"


async def test_a_file_of_somebody_elses_draft_is_not_found(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg/1", {**SENT, "time": None})
    host.answer("GET", "/fmsg/1/attach/a", b"not sent yet")
    with pytest.raises(NotFound):
        await api.attachment(1, "a").__aenter__()


async def test_a_missing_attachment_is_not_found(host: FakeHost, api: WebApi) -> None:
    with pytest.raises(NotFound):
        await api.attachment(1, "a").__aenter__()


async def test_an_event_socket_opens_and_closes_with_its_context(host: FakeHost, api: WebApi) -> None:
    closed = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str('{"type":"new_msg","data":{"id":1}}')
        await socket.receive()
        closed.set()
        return socket

    host.on("GET", "/fmsg/ws", handler)
    async with api.events() as socket:
        assert (await anext(socket)).message.id == 1
    await closed.wait()
    assert socket.close_reason == "closed by us"
    assert host.asked[1].bearer == jwt(serial=1)


async def test_a_refused_upgrade_says_why(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg/ws", {"error": "User @alice@a.test not authorised"}, status=403)
    with pytest.raises(Forbidden, match="not authorised"):
        await api.events().__aenter__()


async def test_an_upgrade_answered_with_a_page_is_misbehaviour(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg/ws", b"<html>", status=200)
    with pytest.raises(HostMisbehaved, match="status 200"):
        await api.events().__aenter__()


async def _body(api: WebApi) -> object:
    return await api.body(1)


async def _attach(api: WebApi) -> object:
    return await api.attach(1, "a", b"abc", content_type="text/plain")


async def _attachment(api: WebApi) -> object:
    async with api.attachment(1, "a") as download:
        return b"".join([chunk async for chunk in download.chunks])


async def _events(api: WebApi) -> object:
    async with api.events() as socket:
        return socket


Use = Callable[[WebApi], Awaitable[object]]

ROUTES: dict[str, tuple[str, str, Use]] = {
    "list_received": ("GET", "/fmsg", lambda api: api.list_received()),
    "list_sent": ("GET", "/fmsg/sent", lambda api: api.list_sent()),
    "message": ("GET", "/fmsg/1", lambda api: api.message(1)),
    "body": ("GET", "/fmsg/1/data", _body),
    "thread": ("GET", "/fmsg/1/thread/messages", lambda api: api.thread(1)),
    "create_draft": ("POST", "/fmsg", lambda api: api.create_draft(DRAFT)),
    "delete_draft": ("DELETE", "/fmsg/1", lambda api: api.delete_draft(1)),
    "send": ("POST", "/fmsg/1/send", lambda api: api.send(1)),
    "mark_read": ("POST", "/fmsg/1/read", lambda api: api.mark_read(1)),
    "add_to": ("POST", "/fmsg/1/add-to", lambda api: api.add_recipients(1, ["@c@c.test"])),
    "react": ("POST", "/fmsg/1/react", lambda api: api.react(1, "👍")),
    "attach": ("POST", "/fmsg/1/attach", _attach),
    "attachment": ("GET", "/fmsg/1/attach/a", _attachment),
    "events": ("GET", "/fmsg/ws", _events),
}

each_route = pytest.mark.parametrize(("method", "path", "use"), ROUTES.values(), ids=ROUTES)


@each_route
async def test_after_a_401_a_new_token_and_one_repetition(
    host: FakeHost, api: WebApi, method: str, path: str, use: Use
) -> None:
    host.in_turn(method, path, (401, {"error": "token expired"}), (403, {"error": "got this far"}))
    with pytest.raises(Forbidden, match="got this far"):
        await use(api)
    assert host.exchanges == 2
    assert [asked.bearer for asked in host.asked if asked.path != "/fmsg/token"] == [jwt(serial=1), jwt(serial=2)]
    datas = [asked.data for asked in host.asked if asked.path != "/fmsg/token"]
    assert datas[0] == datas[1] or path.endswith("/attach")


@each_route
async def test_a_second_401_is_the_answer(host: FakeHost, api: WebApi, method: str, path: str, use: Use) -> None:
    host.answer(method, path, {"error": "api key revoked"}, status=401)
    with pytest.raises(Unauthorized, match="api key revoked"):
        await use(api)
    assert (host.exchanges, len(host.paths())) == (2, 2)


@each_route
@pytest.mark.parametrize("status", [400, 403, 404, 409, 429, 500, 503])
async def test_nothing_else_is_repeated(
    host: FakeHost, api: WebApi, method: str, path: str, use: Use, status: int
) -> None:
    host.answer(method, path, {"error": "the host's own words"}, status=status)
    with pytest.raises(FmsgError, match=f"{status}: the host's own words"):
        await use(api)
    assert (host.exchanges, len(host.paths())) == (1, 1)


@each_route
async def test_without_a_key_a_401_ends_it(host: FakeHost, fixed: WebApi, method: str, path: str, use: Use) -> None:
    host.answer(method, path, {"error": "api key revoked"}, status=401)
    with pytest.raises(CredentialMissing):
        await use(fixed)
    assert len(host.paths()) == 1


async def test_a_stream_that_was_read_is_not_sent_again(host: FakeHost, api: WebApi) -> None:
    async def stream() -> AsyncIterator[bytes]:
        yield b"once"

    host.answer("POST", "/fmsg/1/attach", {"error": "token expired"}, status=401)
    with pytest.raises(Unauthorized):
        await api.attach(1, "a", stream(), content_type="text/plain")
    assert len(host.paths()) == 1


FAULTS: dict[str, tuple[int, bytes]] = {
    "page": (502, f"<pre>Authorization: Bearer {jwt(serial=1)} {KEY}</pre>".encode()),
    "refusal": (403, json.dumps({"error": f"no {KEY} {jwt(serial=1)}", "code": KEY}).encode()),
    "unauthorized": (401, json.dumps({"error": f"no {KEY} {jwt(serial=1)}"}).encode()),
    "not json": (200, f"{jwt(serial=1)} {KEY}".encode()),
    "redirect": (302, b""),
}


@each_route
@pytest.mark.parametrize(("status", "data"), FAULTS.values(), ids=FAULTS)
async def test_no_error_and_no_log_shows_a_credential(
    host: FakeHost,
    api: WebApi,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    use: Use,
    status: int,
    data: bytes,
) -> None:
    host.answer(method, path, data, status=status, headers={"Location": f"https://x.test/?k={KEY}&t={jwt(serial=1)}"})
    said = [repr(api)]
    with caplog.at_level(logging.DEBUG):
        try:
            await use(api)
        except FmsgError as error:
            logging.getLogger("test").exception("failed")
            said += _everything_of(error)
    said.append(caplog.text)
    assert not any("5dQ1kZ" in text or "345678=" in text or "eyJ" in text for text in said)


@each_route
async def test_no_broken_connection_shows_a_credential(
    host: FakeHost, caplog: pytest.LogCaptureFixture, method: str, path: str, use: Use
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    host.on(method, path, cut)
    async with HostHttp(host.url, deadlines=IMPATIENT) as http:
        api = WebApi(http, FixedTokens(access_token(), clock=lambda: 1_000.0))
        with caplog.at_level(logging.DEBUG), pytest.raises(FmsgError) as caught:
            await use(api)
    said = [*_everything_of(caught.value), caplog.text]
    assert not any("5dQ1kZ" in text or "eyJ" in text for text in said)


def _everything_of(error: BaseException) -> list[str]:
    """All that a log or a debugger's summary could show of an error and those that hang on it."""
    said = ["".join(traceback.format_exception(error))]
    link: BaseException | None = error
    while link is not None:
        said += [repr(link), str(link), repr(link.args), repr(vars(link))]
        link = link.__cause__ or link.__context__
    return said


async def test_a_draft_is_its_authors_alone(host: FakeHost, api: WebApi) -> None:
    others = ("@bob@b.test", "@ａlice@a.test", "@alıce@a.test")
    for sender, own in (("@Alice@a.test", True), *((other, False) for other in others)):
        draft = {"id": 3, "from": sender, "to": ["@alice@a.test"], "type": "text/plain", "size": 1, "time": None}
        host.answer("GET", "/fmsg/3", draft)
        host.answer("GET", "/fmsg/3/thread/messages", {"root_id": 3, "trigger_id": 3, "messages": [draft]})
        if own:
            assert (await api.message(3)).is_draft
            assert (await api.thread(3)).root_id == 3
            continue
        with pytest.raises(NotFound):
            await api.message(3)
        with pytest.raises(NotFound):
            await api.thread(3)


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (replace(DRAFT, topic="ü" * 128), r"500: failed \(the topic has 256 bytes, and the protocol allows 255\)"),
        (replace(DRAFT, topic="a\0b"), r"500: failed \(the topic contains a NUL character\)"),
        (replace(DRAFT, to=("@b@b.test",) * 300), r"500: failed \(the message has 300 recipients"),
    ],
    ids=["topic", "nul", "recipients"],
)
async def test_a_failure_that_a_draft_beyond_the_protocol_causes_is_not_worth_another_try(
    host: FakeHost, api: WebApi, draft: Draft, said: str
) -> None:
    host.answer("POST", "/fmsg", {"error": "failed"}, status=500)
    with pytest.raises(HostRefused, match=said) as caught:
        await api.create_draft(draft)
    assert not isinstance(caught.value, Transient)
    with pytest.raises(HostFailed, match=r"^500: failed$"):
        await api.create_draft(DRAFT)


async def test_an_attachment_with_a_control_character_in_its_name_is_fetched(host: FakeHost, api: WebApi) -> None:
    host.answer("GET", "/fmsg/1", SENT)
    host.answer("GET", "/fmsg/1/attach/a%07b.txt", b"x")
    async with api.attachment(1, "a\x07b.txt") as download:
        assert [chunk async for chunk in download.chunks] == [b"x"]
