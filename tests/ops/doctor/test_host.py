from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fmsg.errors import (
    BadInput,
    CredentialMissing,
    FmsgError,
    Forbidden,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    NotFound,
    Throttled,
)
from fmsg.http import HostHttp
from ledger.embedded import free_port
from ops.doctor.findings import Finding, Trouble
from ops.doctor.host import HostChecks, explained, lookup
from sandbox.host import SandboxHost, serve
from tests.redis_setups import self_signed, tls_in_front

ALICE = "@alice@here.test"


@pytest.fixture
def host() -> SandboxHost:
    return SandboxHost("here.test")


@pytest.fixture
async def url(host: SandboxHost) -> AsyncIterator[str]:
    async with serve(host) as url:
        yield url


async def examine(url: str, key: str | None = None, *, clock: Callable[[], float] = time.time) -> dict[str, Finding]:
    async with HostHttp(url) as http:
        return {found.check: found async for found in HostChecks(http, api_key=key, clock=clock).run()}


@asynccontextmanager
async def answering(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A server that answers everything the same way."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_a_good_host_is_fine_and_nothing_is_sent(host: SandboxHost, url: str) -> None:
    key = host.control.create_key(ALICE)
    host.control.deliver("@bob@far.test", [ALICE], body="hello")
    found = await examine(url, key)
    assert [one.level for one in found.values()] == ["ok"] * 7, found
    assert list(found) == ["dns", "connection", "api", "clock", "token", "identity", "socket"]
    assert found["token"].came == f"it acts as {ALICE}; the token is good for 12 h"
    assert "the newest message is " in found["identity"].came
    assert "it stays open" in found["socket"].came
    assert host.control.stats()["messages"] == 1
    assert all(not route.startswith(("send", "create")) for route in host.control.stats()["requests"])
    assert key not in str(found)


async def test_without_a_key_the_rest_is_still_tried(url: str) -> None:
    found = await examine(url)
    assert [one.level for one in found.values()] == ["ok"] * 4 + ["skipped"] * 3
    assert found["token"].came == "no API key is given"


@pytest.mark.parametrize(
    ("key", "do"), [("fmsgk_bm9ib2R5", "The key is unknown, revoked or expired"), ("hunter2", "That is no API key")]
)
async def test_a_key_that_is_not_accepted(url: str, key: str, do: str) -> None:
    found = await examine(url, key)
    assert [found[name].level for name in ("token", "identity", "socket")] == ["failure", "skipped", "skipped"]
    assert found["token"].came.startswith("the host answered 401")
    assert do in found["token"].do


async def test_an_identity_that_is_refused(host: SandboxHost, url: str) -> None:
    key = host.control.create_key(ALICE)
    host.control.fail_next("list", times=2, status=403, text="not allowed")
    found = await examine(url, key)
    assert found["identity"].level == "failure"
    assert "not allowed" in found["identity"].came


@pytest.mark.parametrize(("status", "do"), [(502, "pass WebSocket upgrades"), (403, "refuses its socket")])
async def test_a_socket_that_is_refused(host: SandboxHost, url: str, status: int, do: str) -> None:
    key = host.control.create_key(ALICE)
    host.control.reject_upgrades(status=status)
    found = await examine(url, key)
    assert found["socket"].level == "failure"
    assert f"the host answered {status}" in found["socket"].came
    assert do in found["socket"].do


async def test_a_socket_that_does_not_last(host: SandboxHost, url: str) -> None:
    key = host.control.create_key(ALICE)
    add = host.core.listener.add

    def dropping(address: str, ear: object) -> None:
        add(address, ear)  # type: ignore[arg-type]  # passed on as it came
        host.control.drop_sockets(ALICE)

    host.core.listener.add = dropping  # type: ignore[method-assign]  # a proxy that cuts
    found = await examine(url, key)
    assert found["socket"].level == "failure"
    assert "closed at once" in found["socket"].came


async def test_a_socket_on_which_an_event_comes_at_once(host: SandboxHost, url: str) -> None:
    key = host.control.create_key(ALICE)
    add = host.core.listener.add

    def delivering(address: str, ear: object) -> None:
        add(address, ear)  # type: ignore[arg-type]  # passed on as it came
        host.control.deliver("@bob@far.test", [ALICE])

    host.core.listener.add = delivering  # type: ignore[method-assign]  # a busy address
    assert "an event came" in (await examine(url, key))["socket"].came


async def test_nobody_listens() -> None:
    found = await examine(f"http://127.0.0.1:{free_port()}")
    assert list(found) == ["dns", "connection"]
    assert (found["connection"].level, found["connection"].came) == ("failure", "connection refused")


async def test_a_name_that_there_is_not() -> None:
    found = await examine("https://nothing.invalid")
    assert list(found) == ["dns"]
    assert found["dns"].level == "failure"
    assert found["dns"].do


async def test_a_name_and_an_address_are_looked_up() -> None:
    assert set(await lookup("localhost", 80)) & {"127.0.0.1", "::1"}
    assert await lookup("192.0.2.1", 80) == ["192.0.2.1 is an address already"]


@pytest.mark.parametrize(
    ("status", "headers", "level", "told"),
    [
        (302, {"Location": "https://new.example.com/"}, "failure", "https://new.example.com/"),
        (404, {}, "failure", "404"),
        (503, {}, "failure", "503"),
        (200, {}, "failure", "200 instead of 401"),
        (403, {}, "warning", "403 instead of 401"),
        (429, {}, "warning", "429"),
    ],
)
async def test_what_is_no_web_api(status: int, headers: dict[str, str], level: str, told: str) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers)

    async with answering(handler) as url:
        found = await examine(url)
    assert found["api"].level == level
    assert told in found["api"].came
    assert found["api"].do
    assert ("clock" in found) == (level == "warning")


async def test_what_is_no_http() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        found = await examine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert found["api"].level == "failure"
    assert found["api"].came.startswith("no HTTP answer")


@pytest.mark.parametrize(
    ("ahead_s", "level", "told"),
    [
        (0.0, "ok", "agree"),
        (3.0, "ok", "differ by 3 s"),
        (-60.0, "warning", "60 s behind"),
        (7200.0, "warning", "ahead"),
    ],
)
async def test_clocks_are_compared(url: str, ahead_s: float, level: str, told: str) -> None:
    found = (await examine(url, clock=lambda: time.time() - ahead_s))["clock"]
    assert found.level == level
    assert told in found.came


async def test_a_host_without_a_clock() -> None:
    async def handler(request: web.Request) -> web.Response:
        answer = web.Response(status=401)
        answer.headers["Date"] = "never"
        return answer

    async with answering(handler) as url:
        assert (await examine(url))["clock"].level == "skipped"


class TestTls:
    async def _tls(self, url: str, tmp_path: Path, *, name: str | None = "127.0.0.1") -> tuple[Path, Finding]:
        certificate, context = self_signed(tmp_path, name=name)
        async with tls_in_front(int(url.rpartition(":")[2]), context) as port:
            return certificate, (await examine(f"https://127.0.0.1:{port}"))["tls"]

    async def test_a_certificate_that_is_not_accepted(self, url: str, tmp_path: Path) -> None:
        _, found = await self._tls(url, tmp_path)
        assert found.level == "failure"
        assert "its certificate is not accepted" in found.came
        assert "SSL_CERT_FILE" in found.do

    async def test_one_that_expires_soon(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        _, found = await self._tls(url, tmp_path)
        assert found.level == "warning"
        assert "TLSv1.3, certificate good for 1 days" in found.came

    async def test_one_for_another_name(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        _, found = await self._tls(url, tmp_path, name="127.0.0.2")
        assert found.level == "failure"
        assert "127.0.0.1" in found.came

    async def test_a_port_without_tls(self, url: str) -> None:
        found = (await examine(url.replace("http://", "https://")))["tls"]
        assert found.level == "failure"
        assert found.came.startswith("TLS fails")

    async def test_a_port_that_nobody_has(self) -> None:
        found = (await examine(f"https://127.0.0.1:{free_port()}"))["tls"]
        assert (found.level, found.came) == ("failure", "connection refused")


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "no"),
        NotFound(404, "no"),
        Throttled(429, "no"),
        HostFailed(500, "no"),
        HostRefused(400, "no"),
        HostMisbehaved("no"),
        HostUnreachable("no"),
        CredentialMissing("no"),
        BadInput("no"),
    ],
)
def test_every_error_has_a_next_step(error: FmsgError) -> None:
    trouble = explained(error)
    assert isinstance(trouble, Trouble)
    assert "no" in trouble.came
    assert trouble.do
