"""A real proxy in front of the fronts, with the configuration that operators are given."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp

from ledger.embedded import free_port

PROXIES = Path(__file__).resolve().parents[2] / "ops" / "deploy" / "proxies"
CONNECTIONS = 8000
"""Held calls a proxy takes here; it needs two descriptors for each, and may have 20,000."""
START_S = 15.0
"""A proxy that does not answer within this time does not work."""
INSTALL = (
    "proxy: neither haproxy nor nginx is on PATH. Install one of them, for example `apt-get install haproxy`, "
    "and run this again."
)


class NoProxy(RuntimeError):
    """There is no proxy on this machine, or it does not start."""


def find_proxy() -> str | None:
    """haproxy, else nginx, else None."""
    for name in ("haproxy", "nginx"):
        if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"):
            return found
    return None


@contextlib.asynccontextmanager
async def in_front_of(
    ports: Sequence[int], directory: Path, *, check_s: float = 1.0, port: int | None = None
) -> AsyncIterator[str]:
    """Run a proxy before the fronts at these ports; gives the URL of the MCP endpoint. Raises `NoProxy`.

    ``port`` is its own, a free one where None. ``check_s``: how often it asks them whether they are ready, where it
    does (HAProxy).
    """
    program = find_proxy()
    if program is None:
        raise NoProxy(INSTALL)
    port = port or free_port()
    prepare = _haproxy if program.endswith("haproxy") else _nginx
    command = [program, *prepare(directory, port, ports, check_s)]
    log = directory / "proxy.log"
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        await _answering(process, f"http://127.0.0.1:{port}/healthz", log)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _answering(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_S
    async with aiohttp.ClientSession() as session:
        while asyncio.get_running_loop().time() < deadline and process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)
    raise NoProxy(f"proxy: it does not answer. It said: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _haproxy(directory: Path, port: int, fronts: Sequence[int], check_s: float) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    text = (PROXIES / "haproxy.cfg").read_text()
    servers = "".join(f"    server front-{number} 127.0.0.1:{front}\n" for number, front in enumerate(fronts))
    text = re.sub(r"(^ +server front-\d+ .*\n)+", servers, text, flags=re.MULTILINE)
    text = text.replace("bind :8080", f"bind 127.0.0.1:{port}").replace("127.0.0.1:8405", f"127.0.0.1:{free_port()}")
    # What this machine allows may be less than what a proxy is given.
    text = text.replace("fd-hard-limit 262144", f"maxconn {CONNECTIONS}")
    text = text.replace("check inter 1s", f"check inter {round(check_s * 1000)}ms")
    (directory / "haproxy.cfg").write_text(text)
    return ["-db", "-f", f"{directory}/haproxy.cfg"]


def _nginx(directory: Path, port: int, fronts: Sequence[int], _check_s: float) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    text = (PROXIES / "nginx.conf").read_text()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {kind}_temp_path {directory}/{kind};\n" for kind in kinds)
    servers = "".join(f"        server 127.0.0.1:{front} max_fails=1 fail_timeout=2s;\n" for front in fronts)
    text = re.sub(r"^ +ssl_.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(^ +server 127\.0\.0\.1:\d+ .*\n)+", servers, text, flags=re.MULTILINE)
    text = text.replace("/var/log/nginx/", f"{directory}/").replace("http {\n", f"http {{\n{paths}", 1)
    text = text.replace("listen 443 ssl http2;", f"listen 127.0.0.1:{port};")
    text = text.replace("worker_rlimit_nofile 131072;", "").replace("connections 65536", f"connections {CONNECTIONS}")
    text = f"pid {directory}/pid;\nerror_log {directory}/error.log;\ndaemon off;\n{text}"
    (directory / "nginx.conf").write_text(text)
    return ["-e", f"{directory}/error.log", "-p", str(directory), "-c", f"{directory}/nginx.conf"]
