"""The proxy configurations: what they say, and what real proxies make of them between a client and two stub fronts."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ledger.embedded import free_port
from mcp_front.http.app import EXCLUDE_STORE
from mcp_front.settings import Budgets, FrontSettings, HttpSettings
from tests.ops.deploy_files import DEPLOY, run, tool

PROXIES = DEPLOY / "proxies"
KINDS = ("haproxy", "nginx", "caddy")
HAPROXY = (PROXIES / "haproxy.cfg").read_text()
NGINX = (PROXIES / "nginx.conf").read_text()
CADDY = (PROXIES / "Caddyfile").read_text()

ANSWER_WITHIN_S = 15.0
"""Far longer than anything here takes, and shorter than a test may."""


def values(text: str, pattern: str) -> list[float]:
    """The seconds a pattern's group finds; fails the test where there are none."""
    found = [float(value) for value in re.findall(pattern, text, re.MULTILINE)]
    assert found, pattern
    return found


@pytest.mark.parametrize("name", ["haproxy.cfg", "Caddyfile"])
def test_a_proxy_leaves_no_front_out_because_of_redis(name: str) -> None:
    """Without Redis all fronts are unready, and yet they serve."""
    asked = re.findall(r"/readyz\S*", (PROXIES / name).read_text())
    assert [path.encode() for path in asked] == [b"/readyz?" + EXCLUDE_STORE]


def test_silence_is_borne_longer_than_the_longest_wait() -> None:
    silences = [
        *values(HAPROXY, r"^ +timeout (?:client|server) (\d+)s"),
        *values(NGINX, r"(?:proxy_read_timeout|proxy_send_timeout|send_timeout) (\d+)s"),
        *values(CADDY, r"(?:read_timeout|write_timeout|response_header_timeout) (\d+)s"),
    ]
    assert min(silences) > FrontSettings().wait_max_s


def test_idle_connections_to_a_front_are_closed_before_the_front_closes_them() -> None:
    """Else a request meets a connection that is just being closed, and a POST cannot be sent again."""
    idle = [
        *values(HAPROXY, r"timeout http-keep-alive (\d+)s"),
        *values(NGINX, r"^ +keepalive_timeout (\d+)s"),
        *values(CADDY, r"keepalive (\d+)s"),
    ]
    assert max(idle) < HttpSettings().keep_alive_s


def test_headers_are_waited_for_as_long_as_the_front_does() -> None:
    patience = [
        *values(HAPROXY, r"timeout http-request (\d+)s"),
        *values(NGINX, r"client_header_timeout (\d+)s"),
        *values(CADDY, r"read_header (\d+)s"),
    ]
    assert set(patience) == {Budgets().header_s}


def test_one_connection_carries_all_waits_of_a_caller() -> None:
    (streams,) = values(NGINX, r"http2_max_concurrent_streams (\d+)")
    assert streams > Budgets().max_waits_per_caller


def test_the_front_has_the_only_limit_of_bodies() -> None:
    assert "client_max_body_size 0;" in NGINX
    assert "max_size" not in CADDY


def test_nothing_is_buffered() -> None:
    assert {"proxy_buffering off;", "proxy_request_buffering off;"} <= {line.strip() for line in NGINX.splitlines()}
    assert "http-buffer-request" not in HAPROXY


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for the name of the examples, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mcp.example.com")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = directory / "mcp.pem", directory / "mcp.key"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_path, key_path


def nginx_in(directory: Path, text: str) -> str:
    """The configuration with every path it writes to in a directory of the test's."""
    paths = "".join(
        f"    {kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("/var/log/nginx/", f"{directory}/").replace("http {\n", f"http {{\n{paths}", 1)
    return f"pid {directory}/pid;\nerror_log {directory}/error.log;\n{text}"


def caddy_env(directory: Path) -> dict[str, str]:
    """Where Caddy keeps what it keeps."""
    return {"XDG_DATA_HOME": str(directory / "data"), "XDG_CONFIG_HOME": str(directory / "config")}


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("env", [{"FRONTS": "localhost:3000", "METRICS": ":8405"}, {}], ids=["compose", "systemd"])
def test_haproxy_accepts_the_configuration(env: dict[str, str], tls: bool, tmp_path: Path) -> None:
    env = dict(env)
    if tls:
        both = tmp_path / "both.pem"
        both.write_text("".join(path.read_text() for path in make_certificate(tmp_path)))
        env["TLS_CERT"] = str(both)
    said = run(tool("haproxy"), "-c", "-f", PROXIES / "haproxy.cfg", env=env)
    assert "WARNING" not in said


def test_nginx_accepts_the_configuration(tmp_path: Path) -> None:
    nginx = tool("nginx")
    certificate, key = make_certificate(tmp_path)
    text = nginx_in(tmp_path, NGINX)
    text = re.sub(r"(ssl_certificate) .*;", rf"\1 {certificate};", text)
    text = re.sub(r"(ssl_certificate_key) .*;", rf"\1 {key};", text)
    config = tmp_path / "nginx.conf"
    config.write_text(text)
    run(nginx, "-t", "-e", "stderr", "-p", tmp_path, "-c", config)


def test_caddy_accepts_the_configuration(tmp_path: Path) -> None:
    said = run(
        tool("caddy"), "validate", "--adapter", "caddyfile", "--config", PROXIES / "Caddyfile", env=caddy_env(tmp_path)
    )
    assert "Valid configuration" in said


class Met(msgspec.Struct):
    """What stub fronts met, hold, and are to do."""

    posts: list[dict[str, list[str]]]
    """The headers of the requests they got, each name with all its values."""
    drop: bool = False
    """Close the connection after the whole request instead of answering."""
    release: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """A held answer ends when this is set."""
    held: int = 0
    """Calls that wait for that."""
    left: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """A held call was abandoned."""


async def stub_front(met: Met, stack: contextlib.AsyncExitStack) -> int:
    """A front that holds each call: a ping at once, the result when released. Returns its port."""

    async def call(request: web.Request) -> web.StreamResponse:
        await request.read()
        names = {name.lower() for name in request.headers}
        met.posts.append({name: list(request.headers.getall(name)) for name in names})
        if met.drop and request.transport is not None:
            request.transport.abort()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b": ping\n\n")
        met.held += 1
        try:
            await met.release.wait()
        except asyncio.CancelledError:
            met.left.set()
            raise
        finally:
            met.held -= 1
        await answer.write(b"data: done\n\n")
        return answer

    async def ready(_request: web.Request) -> web.Response:
        return web.json_response({"ready": True})

    app = web.Application()
    app.router.add_post("/mcp", call)
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return port


def haproxy_for(directory: Path, port: int, fronts: list[int]) -> tuple[list[str], dict[str, str]]:
    """The command that starts HAProxy in the background and ends once it listens."""
    text = HAPROXY.replace("bind :8080", f"bind 127.0.0.1:{port}")
    for number, front in enumerate(fronts):
        text = text.replace(f"127.0.0.1:{3000 + number}", f"127.0.0.1:{front}")
    (directory / "haproxy.cfg").write_text(text)
    command = [tool("haproxy"), "-D", "-p", f"{directory}/pid", "-f", f"{directory}/haproxy.cfg"]
    return command, {"METRICS": f"127.0.0.1:{free_port()}"}


def nginx_for(directory: Path, port: int, fronts: list[int]) -> tuple[list[str], dict[str, str]]:
    """The same for nginx, without TLS."""
    servers = iter(fronts)
    text = re.sub(r"server 127\.0\.0\.1:\d+", lambda _: f"server 127.0.0.1:{next(servers)}", nginx_in(directory, NGINX))
    text = re.sub(r"^ +ssl_.*\n", "", text, flags=re.MULTILINE)
    text = text.replace("listen 443 ssl http2;", f"listen 127.0.0.1:{port};")
    text = text.replace("worker_rlimit_nofile 131072;", "").replace("worker_connections 65536", "worker_connections 64")
    text = text.replace("worker_processes auto", "worker_processes 1")
    (directory / "nginx.conf").write_text(text)
    return [tool("nginx"), "-e", f"{directory}/error.log", "-p", str(directory), "-c", f"{directory}/nginx.conf"], {}


def caddy_for(directory: Path, port: int, fronts: list[int]) -> tuple[list[str], dict[str, str]]:
    """The same for Caddy, without TLS."""
    text = CADDY.replace("127.0.0.1:3000 127.0.0.1:3001", " ".join(f"127.0.0.1:{front}" for front in fronts))
    text = text.replace("mcp.example.com {", f"http://127.0.0.1:{port} {{").replace("{\n", "{\n\tadmin off\n", 1)
    (directory / "Caddyfile").write_text(text)
    command = [tool("caddy"), "start", "--adapter", "caddyfile", "--config", f"{directory}/Caddyfile"]
    return [*command, "--pidfile", f"{directory}/pid"], caddy_env(directory)


STARTS: dict[str, Callable[[Path, int, list[int]], tuple[list[str], dict[str, str]]]] = {
    "haproxy": haproxy_for,
    "nginx": nginx_for,
    "caddy": caddy_for,
}


@contextlib.contextmanager
def running_proxy(kind: str, directory: Path, fronts: list[int]) -> Iterator[str]:
    """A proxy before these fronts; gives the URL of its MCP endpoint."""
    directory.chmod(0o755)
    port = free_port()
    command, env = STARTS[kind](directory, port, fronts)
    log = directory / "started.log"
    with log.open("wb") as sink:
        done = subprocess.run(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            timeout=ANSWER_WITHIN_S,
            check=False,
        )
    assert done.returncode == 0, log.read_text()
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        os.kill(int((directory / "pid").read_text()), signal.SIGTERM)


@contextlib.asynccontextmanager
async def proxied(kind: str, directory: Path, met: Met, *, dead: int = 0) -> AsyncIterator[str]:
    """Two stub fronts behind a proxy, ``dead`` of them not there."""
    tool(kind)
    async with contextlib.AsyncExitStack() as stack:
        fronts = [free_port() for _ in range(dead)]
        while len(fronts) < 2:
            fronts.append(await stub_front(met, stack))
        url = stack.enter_context(running_proxy(kind, directory, fronts))
        async with asyncio.timeout(ANSWER_WITHIN_S):
            yield url


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
async def test_a_held_answer_passes_piece_by_piece(kind: str, tmp_path: Path) -> None:
    met = Met([])
    async with (
        proxied(kind, tmp_path, met) as url,
        aiohttp.ClientSession() as client,
        client.post(url, json={}) as answer,
    ):
        assert await answer.content.readuntil(b"\n\n") == b": ping\n\n"
        met.release.set()
        assert await answer.content.read() == b"data: done\n\n"


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_whose_client_has_gone_is_held_no_longer(kind: str, tmp_path: Path) -> None:
    """Else ghosts use up a caller's places until their time is over."""
    met = Met([])
    async with (
        proxied(kind, tmp_path, met) as url,
        aiohttp.ClientSession() as client,
        client.post(url, json={}) as stays,
        client.post(url, json={}) as leaves,
    ):
        for answer in (stays, leaves):
            assert await answer.content.readuntil(b"\n\n") == b": ping\n\n"
        assert met.held == 2
        leaves.close()
        await met.left.wait()
        assert met.held == 1
        met.release.set()
        assert await stays.content.read() == b"data: done\n\n"


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
async def test_the_proxy_names_request_and_client_and_passes_the_key(kind: str, tmp_path: Path) -> None:
    met = Met([])
    met.release.set()
    sent = {"X-Request-ID": "forged", "X-Forwarded-For": "192.0.2.66", "Authorization": "Bearer fmsgk_a+/="}
    async with proxied(kind, tmp_path, met) as url, aiohttp.ClientSession() as client:
        for _ in range(2):
            async with client.post(url, json={}, headers=sent) as answer:
                assert answer.status == 200
    (first,), (second,) = (headers["x-request-id"] for headers in met.posts)
    assert len({first, second, "forged"}) == 3
    for headers in met.posts:
        assert headers["x-forwarded-for"] == ["127.0.0.1"]
        assert headers["authorization"] == ["Bearer fmsgk_a+/="]


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_was_sent_is_not_sent_again(kind: str, tmp_path: Path) -> None:
    met = Met([], drop=True)
    met.release.set()
    async with (
        proxied(kind, tmp_path, met) as url,
        aiohttp.ClientSession() as client,
        client.post(url, json={}) as answer,
    ):
        assert answer.status in (502, 503, 504)
    assert len(met.posts) == 1


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
async def test_a_front_that_is_gone_fails_no_call(kind: str, tmp_path: Path) -> None:
    met = Met([])
    met.release.set()
    async with proxied(kind, tmp_path, met, dead=1) as url, aiohttp.ClientSession() as client:
        for _ in range(4):
            async with client.post(url, json={}) as answer:
                assert answer.status == 200
                assert (await answer.read()).endswith(b"data: done\n\n")
    assert len(met.posts) == 4


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
async def test_held_calls_spread_over_the_fronts(kind: str, tmp_path: Path) -> None:
    mine, other = Met([]), Met([])
    tool(kind)
    async with contextlib.AsyncExitStack() as stack:
        fronts = [await stub_front(mine, stack), await stub_front(other, stack)]
        url = stack.enter_context(running_proxy(kind, tmp_path, fronts))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        await stack.enter_async_context(asyncio.timeout(ANSWER_WITHIN_S))
        answers = []
        for _ in range(6):
            answer = await client.post(url, json={})
            await answer.content.readuntil(b"\n\n")
            answers.append(answer)
        assert [len(mine.posts), len(other.posts)] == [3, 3]
        for met in (mine, other):
            met.release.set()
        for answer in answers:
            await answer.read()
