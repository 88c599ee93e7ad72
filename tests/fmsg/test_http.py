"""Deadlines, limits, and where a credential does not go."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from fmsg import answers
from fmsg.errors import (
    BadInput,
    Forbidden,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    Throttled,
    Unauthorized,
)
from fmsg.http import Deadlines, HostHttp
from fmsg.transfer import file_form
from tests.fmsg.conftest import IMPATIENT
from tests.fmsg.fakehost import FakeHost, never, raw, serve, stream


async def call(http: HostHttp, path: str = "/fmsg/1", method: str = "GET") -> answers.Answer:
    """A request of no particular kind."""
    return await http.call("message", method, path, bearer="token")


async def test_an_answer_comes_with_status_bytes_and_the_host_s_time(host: FakeHost, http: HostHttp) -> None:
    host.answer("GET", "/fmsg/1", {"id": 1}, headers={"Date": "Thu, 01 Jan 1970 00:01:40 GMT"})
    answer = await call(http)
    assert (answer.status, answer.data, answer.host_time_s) == (200, b'{"id": 1}', 100.0)


async def test_the_credential_travels_in_the_authorization_header_alone(host: FakeHost, http: HostHttp) -> None:
    host.answer("POST", "/fmsg", {"id": 1})
    await http.call("create_draft", "POST", "/fmsg", bearer="t0ken", content=b'{"a":1}')
    asked = host.asked[0]
    assert asked.headers["Authorization"] == "Bearer t0ken"
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["Accept-Encoding"] == "identity"
    assert (asked.path, asked.data) == ("/fmsg", b'{"a":1}')


async def test_a_body_of_megabytes_goes_out_whole_and_without_a_warning(host: FakeHost, http: HostHttp) -> None:
    host.answer("POST", "/fmsg", {"id": 1})
    content = b"x" * 900_000 + b"y" * 900_000
    await http.call("create_draft", "POST", "/fmsg", bearer="t0ken", content=content)
    assert host.asked[0].data == content
    assert host.asked[0].headers["Content-Length"] == str(len(content))


async def test_a_refusal_carries_the_host_s_reason_code_and_delay(host: FakeHost, http: HostHttp) -> None:
    host.answer("GET", "/fmsg/1", {"error": "slow down", "code": "rate"}, status=429, headers={"Retry-After": "3"})
    with pytest.raises(Throttled) as caught:
        await call(http)
    assert (caught.value.reason, caught.value.code, caught.value.retry_after_s) == ("slow down", "rate", 3.0)


async def test_a_proxy_s_page_is_a_bounded_preview(host: FakeHost, http: HostHttp) -> None:
    host.answer("GET", "/fmsg/1", b"<html>502" + b"x" * 1_000_000, status=502)
    with pytest.raises(HostFailed) as caught:
        await call(http)
    assert caught.value.reason.startswith("<html>502x")
    assert len(caught.value.reason.encode()) <= answers.MAX_REASON_BYTES


async def test_a_refusal_without_a_text_says_the_status(host: FakeHost, http: HostHttp) -> None:
    host.answer("GET", "/fmsg/1", b"", status=403)
    with pytest.raises(Forbidden, match=r"^403: Forbidden$"):
        await call(http)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_reported_and_not_followed(host: FakeHost, http: HostHttp, status: int) -> None:
    async with serve() as elsewhere:
        host.answer("GET", "/fmsg/1", b"", status=status, headers={"Location": f"{elsewhere.url}/fmsg/1"})
        host.answer("GET", "/fmsg/ws", b"", status=status, headers={"Location": f"{elsewhere.url}/fmsg/ws"})
        with pytest.raises(HostMisbehaved, match=rf"redirect \({status}\) to {elsewhere.url}/fmsg/1"):
            await call(http)
        with pytest.raises(HostMisbehaved, match=rf"redirect \({status}\)"):
            await http.socket("/fmsg/ws", bearer="token", heartbeat_s=20, max_frame_bytes=1000)
        assert elsewhere.asked == []


@pytest.mark.parametrize("status", [304, 399])
async def test_a_status_that_means_nothing_here_is_the_host_s_fault(
    host: FakeHost, http: HostHttp, status: int
) -> None:
    host.answer("GET", "/fmsg/1", b"", status=status)
    with pytest.raises(HostMisbehaved, match=f"status {status}"):
        await call(http)


async def test_requests_one_after_the_other_share_a_connection(host: FakeHost, http: HostHttp) -> None:
    ports = []

    async def note(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.json_response({})

    host.on("GET", "/fmsg/1", note)
    for _ in range(3):
        await call(http)
    async with http.download("body", "/fmsg/1", bearer="t") as download:
        assert [chunk async for chunk in download.chunks] == [b"{}"]
    await call(http)
    assert len(ports) == 5
    assert len(set(ports)) == 1


async def test_cookies_are_not_kept(host: FakeHost, http: HostHttp) -> None:
    host.answer("GET", "/fmsg/1", {}, headers={"Set-Cookie": "session=1; Path=/"})
    await call(http)
    await call(http)
    assert "Cookie" not in host.asked[1].headers


async def test_a_proxy_in_the_environment_is_not_used(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    host.answer("GET", "/fmsg/1", {})
    async with HostHttp(host.url) as http:
        assert (await call(http)).status == 200


async def test_a_host_that_is_not_there_was_sent_nothing(unused_port: int) -> None:
    async with HostHttp(f"http://127.0.0.1:{unused_port}") as http:
        with pytest.raises(
            HostUnreachable, match=rf"^http://127\.0\.0\.1:{unused_port}: no connection \(Connection refused\)\.$"
        ) as caught:
            await call(http, method="POST")
    assert not caught.value.sent


async def test_a_name_that_does_not_resolve_was_sent_nothing() -> None:
    async with HostHttp("https://nowhere.invalid") as http:
        with pytest.raises(HostUnreachable) as caught:
            await call(http)
    assert not caught.value.sent


async def test_a_host_that_does_not_shake_hands_was_sent_nothing() -> None:
    hasty = Deadlines(connect_s=0.1)
    async with raw(b"", stay=True) as port, HostHttp(f"https://127.0.0.1:{port}", deadlines=hasty) as http:
        with pytest.raises(HostUnreachable, match=r"no connection within 0\.1 s") as caught:
            await call(http, method="POST")
    assert not caught.value.sent


async def test_a_request_without_an_answer_may_have_arrived(host: FakeHost, impatient: HostHttp) -> None:
    host.on("POST", "/fmsg/1", never())
    with pytest.raises(HostUnreachable, match="no answer in time") as caught:
        await call(impatient, method="POST")
    assert caught.value.sent
    assert host.paths() == ["POST /fmsg/1"]


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"]
)
async def test_an_answer_cut_off_may_have_been_a_success(answer: bytes) -> None:
    async with raw(answer) as port, HostHttp(f"http://127.0.0.1:{port}") as http:
        with pytest.raises(HostUnreachable, match="the connection was cut") as caught:
            await call(http, method="POST")
    assert caught.value.sent


async def test_an_answer_that_stops_in_its_middle_is_not_waited_for() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    async with raw(head, stay=True) as port, HostHttp(f"http://127.0.0.1:{port}", deadlines=IMPATIENT) as http:
        with pytest.raises(HostUnreachable, match="no answer in time"):
            await call(http)


async def test_a_refusal_whose_text_does_not_come_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ERROR_WITHIN_S", 0.05)
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{"
    async with raw(head, stay=True) as port, HostHttp(f"http://127.0.0.1:{port}") as http:
        with pytest.raises(Forbidden, match=r"^403: Forbidden$"):
            await call(http)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x01\x00\x02\x02\x16", b"HTTP/1.1 banana\r\n\r\n"]
)
async def test_what_is_not_http_is_misbehaviour(answer: bytes) -> None:
    async with raw(answer) as port, HostHttp(f"http://127.0.0.1:{port}") as http:
        with pytest.raises(HostMisbehaved, match="not what HTTP prescribes"):
            await call(http)


async def test_more_requests_than_places_wait_and_then_give_up(host: FakeHost) -> None:
    entered = asyncio.Event()
    host.on("GET", "/fmsg/1", never(entered))
    host.answer("GET", "/fmsg/2", {})
    async with HostHttp(host.url, max_concurrent=1, deadlines=IMPATIENT) as http:
        held = asyncio.create_task(http.call("message", "GET", "/fmsg/1", bearer="token", within_s=60.0))
        await entered.wait()
        with pytest.raises(HostUnreachable, match="too many requests are waiting") as caught:
            await call(http, "/fmsg/2")
        assert not caught.value.sent
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        assert (await call(http, "/fmsg/2")).status == 200


async def accept_socket(request: web.Request) -> web.StreamResponse:
    """An event socket on which nothing ever comes."""
    response = web.WebSocketResponse()
    await response.prepare(request)
    await response.receive()
    return response


async def test_sockets_take_no_place(host: FakeHost) -> None:
    host.on("GET", "/fmsg/ws", accept_socket)
    host.answer("GET", "/fmsg/1", {})
    async with HostHttp(host.url, max_concurrent=1) as http:
        sockets = [await http.socket("/fmsg/ws", bearer="t", heartbeat_s=20, max_frame_bytes=1000) for _ in range(3)]
        assert (await call(http)).status == 200
        for one in sockets:
            await one.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system has other names for it")
async def test_the_kernel_looks_whether_the_host_of_a_socket_is_there(host: FakeHost) -> None:
    """A host that vanished sends no FIN: the connection of an event socket is probed, and soon."""

    host.on("GET", "/fmsg/ws", accept_socket)
    async with HostHttp(host.url) as http:
        opened = await http.socket("/fmsg/ws", bearer="t", heartbeat_s=20, max_frame_bytes=1000)
        connection = opened.get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        after_s, each_s, probes = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert after_s + each_s * probes <= 30
        await opened.close()


async def test_the_observer_hears_of_every_request(host: FakeHost) -> None:
    heard: list[tuple[str, int | None]] = []
    host.answer("GET", "/fmsg/1", {})
    host.answer("GET", "/fmsg/2", {"error": "no"}, status=403)
    host.on("GET", "/fmsg/3", never())
    host.answer("GET", "/fmsg/ws", {"error": "api key revoked"}, status=401)

    def observe(route: str, status: int | None, duration_s: float) -> None:
        assert duration_s >= 0.0
        heard.append((route, status))

    async with HostHttp(host.url, observer=observe, deadlines=IMPATIENT) as http:
        await call(http)
        for path in ("/fmsg/2", "/fmsg/3"):
            with pytest.raises((Forbidden, HostUnreachable)):
                await call(http, path)
        with pytest.raises(Unauthorized, match="api key revoked"):
            await http.socket("/fmsg/ws", bearer="t", heartbeat_s=20, max_frame_bytes=1000)
    assert heard == [("message", 200), ("message", 403), ("message", None), ("ws", 401)]


@pytest.mark.parametrize("bearer", ["", "a b", "a\r\nX: y", "ü", "a" * 9000])
async def test_a_credential_that_fits_no_header_is_refused_here(host: FakeHost, http: HostHttp, bearer: str) -> None:
    with pytest.raises(Unauthorized, match="Copy it again"):
        await http.call("message", "GET", "/fmsg/1", bearer=bearer)
    assert host.asked == []


async def test_a_download_comes_in_chunks_with_its_size(host: FakeHost, http: HostHttp) -> None:
    host.answer("GET", "/fmsg/1/data", b"x" * 300_000)
    async with http.download("body", "/fmsg/1/data", bearer="t") as download:
        assert download.size == 300_000
        assert sum([len(chunk) async for chunk in download.chunks]) == 300_000


async def test_a_download_may_take_long_as_long_as_something_moves(host: FakeHost, impatient: HostHttp) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10):
            await asyncio.sleep(IMPATIENT.idle_s / 8)
            await response.write(b"x")
        return response

    host.on("GET", "/fmsg/1/data", drip)
    started = asyncio.get_running_loop().time()
    async with impatient.download("body", "/fmsg/1/data", bearer="t") as download:
        assert b"".join([chunk async for chunk in download.chunks]) == b"x" * 10
    assert asyncio.get_running_loop().time() - started > IMPATIENT.idle_s


async def test_a_download_in_which_nothing_moves_is_given_up() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"
    async with (
        raw(head, stay=True) as port,
        HostHttp(f"http://127.0.0.1:{port}", deadlines=IMPATIENT) as http,
        http.download("body", "/fmsg/1/data", bearer="t") as download,
    ):
        assert await anext(download.chunks) == b"hello"
        with pytest.raises(HostUnreachable, match="no answer in time"):
            await anext(download.chunks)


async def test_a_download_that_ends_early_is_no_whole_file() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"
    async with (
        raw(head) as port,
        HostHttp(f"http://127.0.0.1:{port}") as http,
        http.download("body", "/fmsg/1/data", bearer="t") as download,
    ):
        with pytest.raises(HostUnreachable, match="cut"):
            assert [chunk async for chunk in download.chunks] == []


async def test_what_the_reader_of_a_download_raises_is_his_own(host: FakeHost, http: HostHttp) -> None:
    host.answer("GET", "/fmsg/1/data", b"x")
    with pytest.raises(OSError, match="disk full"):
        async with http.download("body", "/fmsg/1/data", bearer="t"):
            raise OSError("disk full")


async def test_an_upload_whose_source_fails_raises_what_the_source_raised(host: FakeHost, http: HostHttp) -> None:
    host.answer("POST", "/fmsg/1/attach", {})
    form = file_form("a", stream(b"x", then=OSError("the disk is gone")), content_type="text/plain")
    with pytest.raises(OSError, match="the disk is gone"):
        await http.upload("attach", "/fmsg/1/attach", bearer="t", form=form)


async def test_an_upload_whose_source_stops_is_given_up(host: FakeHost, impatient: HostHttp) -> None:
    form = file_form("a", stream(b"x", held=True), content_type="text/plain")
    with pytest.raises(HostUnreachable, match="no answer in time"):
        await impatient.upload("attach", "/fmsg/1/attach", bearer="t", form=form)


async def test_an_upload_may_take_long_as_long_as_something_moves(host: FakeHost, impatient: HostHttp) -> None:
    async def slow() -> AsyncIterator[bytes]:
        for _ in range(10):
            await asyncio.sleep(IMPATIENT.idle_s / 8)
            yield b"x"

    host.answer("POST", "/fmsg/1/attach", {"filename": "a", "size": 10}, status=201)
    form = file_form("a", slow(), content_type="text/plain")
    assert (await impatient.upload("attach", "/fmsg/1/attach", bearer="t", form=form)).status == 201


async def test_a_host_that_never_answers_an_upload_is_given_up(host: FakeHost, impatient: HostHttp) -> None:
    host.on("POST", "/fmsg/1/attach", never())
    form = file_form("a", b"x", content_type="text/plain")
    with pytest.raises(HostUnreachable, match="no answer in time") as caught:
        await impatient.upload("attach", "/fmsg/1/attach", bearer="t", form=form)
    assert caught.value.sent


async def test_a_host_that_does_not_read_an_upload_is_given_up() -> None:
    async with raw(b"", stay=True) as port, HostHttp(f"http://127.0.0.1:{port}", deadlines=IMPATIENT) as http:
        form = file_form("a", b"x" * 50_000_000, content_type="text/plain")
        with pytest.raises(HostUnreachable):
            await http.upload("attach", "/fmsg/1/attach", bearer="t", form=form)


async def test_a_refusal_in_the_middle_of_an_upload_is_heard() -> None:
    refusal = b'HTTP/1.1 413 Too Large\r\nContent-Length: 21\r\nConnection: close\r\n\r\n{"error":"too large"}'
    async with raw(refusal, stay=True) as port, HostHttp(f"http://127.0.0.1:{port}", deadlines=IMPATIENT) as http:
        form = file_form("a", b"x" * 20_000_000, content_type="text/plain")
        with pytest.raises(HostRefused, match="413: too large"):
            await http.upload("attach", "/fmsg/1/attach", bearer="t", form=form)


async def test_it_is_used_only_within_its_context(host: FakeHost) -> None:
    http = HostHttp(host.url)
    with pytest.raises(RuntimeError, match="outside of its context"):
        await call(http)


def test_cleartext_elsewhere_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(BadInput, match="cleartext"):
        HostHttp("http://api.a.test")
    assert HostHttp("http://api.a.test", allow_insecure=True).api_url == "http://api.a.test"


async def test_only_a_certificate_that_is_trusted_gets_the_credential(certificate: Path) -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    async with raw(answer, ssl_context=served) as port:
        async with HostHttp(f"https://localhost:{port}") as http:
            with pytest.raises(HostUnreachable, match="certificate is not accepted") as caught:
                await call(http)
            assert not caught.value.sent
        trusting = ssl.create_default_context(cafile=str(certificate))
        async with HostHttp(f"https://localhost:{port}", ssl_context=trusting) as http:
            assert (await call(http)).data == b"{}"


async def test_requests_go_through_the_proxy_that_the_environment_names(host: FakeHost) -> None:
    host.answer("GET", "/fmsg/1", {"through": "proxy"})
    environment = {"HTTP_PROXY": host.url}
    async with HostHttp("http://api.a.test", allow_insecure=True, environment=environment) as http:
        assert (await call(http)).data == b'{"through": "proxy"}'
    assert host.asked[0].headers["Host"] == "api.a.test"


@asynccontextmanager
async def tunnel(port: int) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A proxy that leads every CONNECT to one port of this machine: its own port, and what it was asked."""
    asked: list[bytes] = []

    connections: list[asyncio.Task[None]] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        ways = [asyncio.ensure_future(pass_on(reader, back)), asyncio.ensure_future(pass_on(there, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, back):
            end.close()
            with suppress(OSError):
                await end.wait_closed()
        await asyncio.gather(*ways, return_exceptions=True)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.create_task(connect(reader, writer)))  # awaited below

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        await asyncio.gather(*connections)


async def test_https_goes_through_a_proxy_without_showing_it_the_credential(certificate: Path) -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with raw(answer, ssl_context=served) as port, tunnel(port) as (proxy, asked):
        environment = {"HTTPS_PROXY": f"http://ann:secret@127.0.0.1:{proxy}"}
        async with HostHttp("https://api.a.test", ssl_context=trusting, environment=environment) as http:
            assert (await call(http)).data == b"{}"
    (lines,) = asked
    assert lines.startswith(b"CONNECT api.a.test:443 ")
    assert b"Proxy-Authorization: Basic " in lines
    assert b"Bearer" not in lines


async def test_a_proxy_that_refuses_or_is_not_there_is_named(unused_port: int) -> None:
    async with raw(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as port:
        for proxy, said in (
            (port, "the proxy on the way to it answered 407"),
            (unused_port, "no connection to the proxy"),
        ):
            environment = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}
            async with HostHttp("https://api.a.test", environment=environment) as http:
                with pytest.raises(HostUnreachable, match=said) as caught:
                    await call(http)
                assert not caught.value.sent


async def test_a_key_that_is_the_name_of_a_variable_is_refused_without_being_shown(http: HostHttp) -> None:
    for bearer in ("${FMSG_API_KEY}", "$FMSG_API_KEY", "%FMSG_API_KEY%", "${fmsgk_a_b}"):
        with pytest.raises(Unauthorized, match=r"is the name of a variable, like \$\{FMSG_API_KEY\}") as caught:
            await http.call("list", "GET", "/fmsg", bearer=bearer)
        assert "fmsgk" not in str(caught.value)
