"""Clients that mean harm, all at once, against a front in its own process; one that means well keeps calling.

Afterwards a call costs the process as much as before, it is as small, and has nothing open that it had not before.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from mcp_front.settings import Budgets
from sandbox.host import SandboxHost, serve
from tests.within import within

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at the process through /proc"),
]

ANN = "@ann@a.test"
BUDGETS = Budgets(header_s=5.0, body_s=2.0, auth_failures=20, max_body_bytes=2_000_000, header_bytes=16_384)
IDLE = 1000
"""Connections that say nothing."""
PATIENCE_S = 60.0
UPSTREAM = 40
"""Connections to the host that are kept for the next requests."""
GROWTH_KB = 24_000
"""What memory may keep after an attack: an allocator does not give everything back that it took once. An attack that
left something behind for each of its few thousand requests would show as more when it is repeated."""
CALLS = 200
"""Calls over which the processor time of one is measured: the kernel counts it in hundredths of a second."""
DEARER = 3.0
"""How much more processor time a call may take afterwards."""

Attack = Callable[["Target"], Awaitable[None]]


class Target:
    """The front under attack."""

    def __init__(self, pid: int, url: str, host: SandboxHost) -> None:
        self.pid = pid
        self.url = url
        self.host = host
        self.port = int(url.rpartition(":")[2])
        self.key = host.control.create_key(ANN)

    @property
    def rss_kb(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    @property
    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def cost_s(self, session: aiohttp.ClientSession) -> float:
        """Processor time of `CALLS` good calls."""
        begun_s = self.cpu_s
        for _ in range(CALLS):
            await self.whoami(session)
        return self.cpu_s - begun_s

    @property
    def open_files(self) -> int:
        """Its open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    async def settled(self, files: int) -> None:
        """Wait until it has no more files open than this."""
        async with asyncio.timeout(PATIENCE_S):
            while self.open_files > files:  # noqa: ASYNC110 - the kernel does not tell
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def said(self, data: bytes, *, enough: int = 65536) -> bytes:
        """What is answered to these bytes on a connection of their own: its beginning, "" for a hang-up."""
        async with self.line() as (reader, writer):
            try:
                writer.write(data)
                await writer.drain()
                return await within(reader.read(enough), PATIENCE_S)
            except ConnectionError:
                return b""

    def post(self, body: bytes, *more: bytes, key: str | None = None, length: int | None = None) -> bytes:
        """The bytes of a POST."""
        lines = [
            b"POST /mcp HTTP/1.1",
            b"Host: 127.0.0.1",
            b"Authorization: Bearer " + (key or self.key).encode(),
            b"Content-Type: application/json",
            b"Content-Length: %d" % (len(body) if length is None else length),
            *more,
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    async def whoami(self, session: aiohttp.ClientSession) -> None:
        """A good call."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}}
        headers = {"Authorization": f"Bearer {self.key}", "MCP-Protocol-Version": "2025-11-25"}
        async with session.post(f"{self.url}/mcp", json=message, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert ANN in await answer.text()


async def slow_bodies(target: Target) -> None:
    """Bodies that are promised and do not come."""

    async def one() -> None:
        async with target.line() as (reader, writer):
            writer.write(target.post(b"{", length=1000))
            assert (await within(reader.read(100), PATIENCE_S)).startswith(b"HTTP/1.1 408")

    await asyncio.gather(*(one() for _ in range(50)))


async def slow_headers(target: Target) -> None:
    """Headers a byte at a time."""

    async def one() -> None:
        async with target.line() as (reader, writer):
            ended = asyncio.ensure_future(reader.read())
            while not ended.done():
                writer.write(b"P")
                await asyncio.sleep(0.05)
            await asyncio.gather(ended, return_exceptions=True)

    await asyncio.gather(*(one() for _ in range(50)))


async def huge_headers(target: Target) -> None:
    """Headers without end, in one piece and in many."""
    for header in (b"X: " + b"a" * 1_000_000, b"\r\n".join([b"X: y"] * 100_000)):
        for _ in range(20):
            assert (await target.said(target.post(b"", header)))[:12] in (b"", b"HTTP/1.1 431")


async def bad_bodies(target: Target) -> None:
    """Deep, wide, broken, in other encodings, in batches."""
    good = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    bodies = [
        b"[" * 1_000_000,
        b'{"a":' * 300_000,
        b"[" + b"[]," * 600_000 + b"1]",
        b"[" + b'"a",' * 400_000 + b"1]",
        b'"' + b'\\"' * 900_000,
        b'{"jsonrpc":"2.0","id":1,"method":"' + b"\xff" * 1000 + b'"}',
        b"\xef\xbb\xbf" + good,
        good.decode().encode("utf-16"),
        b"[" + b",".join([good] * 1000) + b"]",
        b"",
        b"\x00" * 1000,
    ]
    for body in bodies * 5:
        assert (await target.said(target.post(body))).startswith(b"HTTP/1.1 400"), body[:40]
    for kind in (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x"):
        message = target.post(good).replace(b"application/json", kind)
        assert (await target.said(message)).startswith(b"HTTP/1.1 415")
    assert (await target.said(target.post(b"", length=3_000_000))).startswith(b"HTTP/1.1 413")


async def smuggling(target: Target) -> None:
    """Requests that two readers could read in two ways."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    for more, statuses in (
        ((b"Content-Length: 5",), (b"400",)),
        ((b"Transfer-Encoding: chunked",), (b"400",)),
        ((b"Transfer-Encoding: xchunked",), (b"400",)),
        ((b"Host: evil.example",), (b"421",)),
        ((b"Authorization: Bearer " + target.key.encode(),), (b"401",)),
        ((b"Authorization : Bearer x",), (b"400",)),
        ((b" X: folded",), (b"400",)),
        ((b"MCP-Protocol-Version: 2026-07-28", b"MCP-Protocol-Version: 2025-06-18"), (b"400", b"200")),
        ((b"X: a\rb",), (b"400",)),
        ((b"X: a\x00b",), (b"400",)),
    ):
        answer = await target.said(target.post(body, *more))
        assert answer[9:12] in statuses, (more, answer[:100])


async def key_guesses(target: Target) -> None:
    """Keys by the thousand."""
    answers = []
    for number in range(0, 1000, 50):
        guesses = [target.post(b"{}", key=f"fmsgk_guess_{number + i}") for i in range(50)]
        answers += await asyncio.gather(*(target.said(guess, enough=12) for guess in guesses))
    assert set(answers) == {b"HTTP/1.1 401", b"HTTP/1.1 429"}
    assert target.host.control.stats()["requests"]["token"] < 200


async def idle_connections(target: Target) -> None:
    """Connections that say nothing until they are hung up on."""

    async def one() -> None:
        async with target.line() as (reader, _):
            try:
                assert await within(reader.read(), PATIENCE_S) == b""
            except ConnectionError:
                return

    await asyncio.gather(*(one() for _ in range(IDLE)))


async def broken_off_calls(target: Target) -> None:
    """Waits that are begun and left."""
    arguments = {"timeout_seconds": 200, "after_id": "0"}
    params = {"name": "wait_for_message", "arguments": arguments}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    for _ in range(20):
        async with target.line() as (_, writer):
            writer.write(target.post(body))
            await writer.drain()
            await asyncio.sleep(0.02)


ATTACKS: tuple[Attack, ...] = (
    slow_bodies,
    slow_headers,
    huge_headers,
    bad_bodies,
    smuggling,
    key_guesses,
    idle_connections,
    broken_off_calls,
)


@asynccontextmanager
async def target() -> AsyncIterator[Target]:
    budgets = msgspec.json.encode(BUDGETS).decode()
    host = SandboxHost("a.test")
    async with serve(host) as api_url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.contract.front_process", api_url, budgets,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        log = asyncio.ensure_future(process.stderr.read())
        try:
            url = (await within(process.stdout.readline(), PATIENCE_S)).decode().strip()
            yield Target(process.pid, url, host)
        finally:
            process.stdin.close()
            try:
                await within(process.wait(), PATIENCE_S)
            except TimeoutError:
                process.kill()
                raise
        assert process.returncode == 0
        told = (await log).decode()
        assert len(told) < 20_000, f"an attack must not fill the log: {told[:2000]}"
        assert "Traceback" not in told, told[:3000]


async def test_it_is_as_cheap_and_as_small_as_before() -> None:
    async with target() as front, aiohttp.ClientSession() as session:
        await asyncio.gather(*(attack(front) for attack in (bad_bodies, huge_headers)))  # what is allocated once
        before_s = await front.cost_s(session)
        files, rss_kb = front.open_files, front.rss_kb
        meanwhile = 0

        async def mean_well() -> None:
            nonlocal meanwhile
            while True:
                await within(front.whoami(session), PATIENCE_S)
                meanwhile += 1
                await asyncio.sleep(0.05)

        good = asyncio.ensure_future(mean_well())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(attack(front) for attack in ATTACKS))
        finally:
            ended = good.done()
            good.cancel()
        [said] = await asyncio.gather(good, return_exceptions=True)
        assert not ended, f"a good call failed: {said!r}"
        assert meanwhile > 10
        await front.settled(files + UPSTREAM)
        assert await front.cost_s(session) < before_s * DEARER + 0.05
        assert front.rss_kb - rss_kb < GROWTH_KB
