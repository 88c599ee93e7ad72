"""What a hostile client does. ``python -m tests.attack.clients URL KEY ATTACK SCALE`` makes one attack and ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import uvloop

MIB = 1024 * 1024
PIECE = 256 * 1024
LIMIT_S = 25.0
"""An attack ends after this, whatever became of it."""


class Attacker:
    """Who attacks whom."""

    def __init__(self, url: str, key: str, scale: float) -> None:
        self.host, _, port = url.partition("//")[2].partition("/")[0].partition(":")
        self.port = int(port)
        self.key = key
        self.scale = scale

    def size(self, mib: float) -> int:
        """So many MiB of the full size."""
        return max(1, int(mib * MIB * self.scale))

    def many(self, count: int) -> int:
        """So many of the full number."""
        return max(1, int(count * self.scale))

    def head(self, length: int | None, *more: str, key: str | None = None) -> bytes:
        """The head of a POST; ``length`` None is chunked."""
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            f"Authorization: Bearer {self.key if key is None else key}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}",
            *more,
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**20)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def send(self, pieces: Iterable[bytes], length: int, *more: str, key: str | None = None) -> bytes:
        """A whole request; the beginning of its answer."""
        async with self.line() as (reader, writer):
            answer: asyncio.Task[bytes] = asyncio.ensure_future(reader.read(2000))
            try:
                writer.write(self.head(length, *more, key=key))
                for piece in pieces:
                    if answer.done():
                        break
                    writer.write(piece)
                    await writer.drain()
                return await answer
            except ConnectionError:
                return b""
            finally:
                answer.cancel()

    async def body(self, begin: bytes, filling: bytes, size: int, end: bytes) -> bytes:
        """A request whose body is mostly filling."""
        times = max(1, size // len(filling))

        def pieces() -> Iterator[bytes]:
            yield begin
            piece = filling * max(1, PIECE // len(filling))
            left = times * len(filling)
            while left > 0:
                yield piece[:left]
                left -= len(piece)
            yield end

        return await self.send(pieces(), len(begin) + times * len(filling) + len(end))

    async def call(self, tool: str, **arguments: Any) -> bytes:
        """A tool call; the beginning of its answer."""
        body = rpc("tools/call", {"name": tool, "arguments": arguments})
        return await self.send([body], len(body))


def rpc(method: str, params: dict[str, Any]) -> bytes:
    """A request."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


Attack = Callable[[Attacker], Awaitable[object]]


async def brackets(me: Attacker) -> None:
    """One bracket open, sixty million closed."""
    await me.body(b"[", b"]", me.size(60), b"")


async def spaces(me: Attacker) -> None:
    """Nothing but blanks."""
    await me.body(b"", b" ", me.size(60), b"{}")


async def digits(me: Attacker) -> None:
    """One number."""
    await me.body(b"[", b"1", me.size(60), b"]")


async def wide(me: Attacker) -> None:
    """As many values as are allowed, and more."""
    await me.body(b"[", b"[],", 250_000, b"1]")
    await me.body(b"[", b"{},", me.size(60), b"1]")


async def strings(me: Attacker) -> None:
    """Empty strings, and one of escapes."""
    await me.body(b"[", b'"",', me.size(60), b"1]")
    await me.body(b'{"a":"', b"\\n\\u0041", me.size(60), b'"}')


async def long_uri(me: Attacker) -> None:
    """A URI of sixty megabytes."""
    begin = b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"fmsg://message/'
    await me.body(begin, b"a", me.size(60), b'"}}')


async def _sent(me: Attacker, filling: bytes) -> None:
    begin = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message","arguments":'
        b'{"to":["@nobody@attack.test"],"topic":"t","body":"'
    )
    await me.body(begin, filling, me.size(60), b'"}}}')


async def sends_tokens(me: Attacker) -> None:
    """Sixty megabytes of what begins like a token."""
    await _sent(me, b"eyJ.")


async def sends_keys(me: Attacker) -> None:
    """Of what begins like a key."""
    await _sent(me, b"SK fmsgk_a sk- ghp_ :AA ")


async def sends_emoji(me: Attacker) -> None:
    """Of characters that take four bytes each in memory."""
    await _sent(me, "\U0001f600".encode())


async def worst_at_once(me: Attacker) -> None:
    """Sixteen connections, each with one of the worst."""
    worst: tuple[Attack, ...] = (brackets, spaces, wide, strings, long_uri, sends_tokens, sends_keys, sends_emoji)
    await asyncio.gather(*(attack(me) for attack in worst * 2))


async def downloads_unread(me: Attacker) -> None:
    """A hundred downloads that nobody reads."""
    body = rpc(
        "tools/call",
        {"name": "download_attachment", "arguments": {"id": "1", "filename": "a.txt", "max_inline_bytes": 10 * MIB}},
    )
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(100):
            _, writer = await stack.enter_async_context(me.line())
            writer.write(me.head(len(body)) + body)
        await asyncio.sleep(12 * min(1.0, me.scale + 0.1))


FILLINGS = (b"eyJ.", b"a", "\U0001f600".encode(), b"\\n", "\U0001f600".encode() + b"a" * 60_000)
"""What large messages are full of. Where one character takes four bytes in memory, all the others do."""


async def hundred_of_everything(me: Attacker) -> None:
    """A hundred connections of one key: forty uploads, forty downloads and twenty messages that nobody reads."""

    async def unread(tool: str, **arguments: Any) -> None:
        body = rpc("tools/call", {"name": tool, "arguments": {"id": "1", **arguments}})
        async with me.line() as (_, writer):
            writer.write(me.head(len(body)) + body)
            await asyncio.sleep(15 * min(1.0, me.scale + 0.1))

    await asyncio.gather(
        *(_sent(me, filling) for filling in FILLINGS * 8),
        *(unread("download_attachment", filename="a.txt", max_inline_bytes=10 * MIB) for _ in range(40)),
        *(unread("get_message") for _ in range(20)),
    )


async def declared_only(me: Attacker) -> None:
    """A hundred uploads that are declared, begun, and go no further."""
    async with contextlib.AsyncExitStack() as stack:
        for number in range(100):
            _, writer = await stack.enter_async_context(me.line())
            writer.write(me.head(64 * MIB) + b'{"a":"' + b"x" * (me.size(2) if number % 2 else 0))
        await asyncio.sleep(10 * min(1.0, me.scale + 0.1))


async def unknown_sender(me: Attacker) -> None:
    """Bodies without end from a sender with no key."""

    async def one() -> None:
        async with me.line() as (reader, writer):
            writer.write(me.head(10**12, key="fmsgk_wrong"))
            await reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(me.many(4000)):
                    writer.write(b"x" * PIECE)
                    await writer.drain()

    await asyncio.gather(*(one() for _ in range(4)))


async def guessed_keys(me: Attacker) -> None:
    """Keys by the hundred, each with a source of its own in a trailer."""
    for number in range(me.many(400)):
        async with me.line() as (reader, writer):
            trailer = f"X-Forwarded-For: 192.0.2.{number % 250}".encode()
            chunks = b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n\r\n"
            writer.write(me.head(None, key=f"fmsgk_guess{number}") + chunks)
            await reader.read(100)


async def offers(me: Attacker) -> None:
    """Requests that offer another protocol and hide a second one in the body."""
    hidden = me.head(2) + b"{}"
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    for _ in range(me.many(500)):
        await me.send([hidden], len(hidden), *upgrade)


async def silent_connections(me: Attacker) -> None:
    """A thousand connections that say nothing, or a header a second."""
    async with contextlib.AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(me.line()) for _ in range(me.many(1000))]
        for _ in range(6):
            for _, writer in lines[::2]:
                if not writer.transport.is_closing():
                    writer.write(b"P")
            await asyncio.sleep(1.0 * min(1.0, me.scale + 0.1))


async def broken_off_waits(me: Attacker) -> None:
    """Waits by the hundred, begun and left."""
    body = rpc("tools/call", {"name": "wait_for_message", "arguments": {"timeout_seconds": 200, "after_id": "0"}})
    for _ in range(me.many(10)):
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(100):
                _, writer = await stack.enter_async_context(me.line())
                writer.write(me.head(len(body)) + body)
            await asyncio.sleep(0.3)


async def calls(me: Attacker) -> None:
    """Every tool that asks the host, several times at once: for what a hostile host answers."""
    message = {"id": "1"}
    for _ in range(me.many(2)):
        await asyncio.gather(
            *(me.call("list_messages") for _ in range(3)),
            *(me.call("get_message", **message) for _ in range(3)),
            *(me.call("download_attachment", **message, filename="a.txt", max_inline_bytes=10 * MIB) for _ in range(3)),
            me.call("wait_for_message", after_id="0", timeout_seconds=1),
            me.call("get_thread", **message),
        )


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        brackets,
        spaces,
        digits,
        wide,
        strings,
        long_uri,
        sends_tokens,
        sends_keys,
        sends_emoji,
        worst_at_once,
        downloads_unread,
        hundred_of_everything,
        declared_only,
        unknown_sender,
        guessed_keys,
        offers,
        silent_connections,
        broken_off_waits,
        calls,
    )
}


async def main(url: str, key: str, attack: str, scale: float) -> None:
    """Make one attack."""
    with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        async with asyncio.timeout(LIMIT_S):
            await ATTACKS[attack](Attacker(url, key, scale))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
