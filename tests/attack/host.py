"""A sandbox host that answers one address with what a broken or hostile host would.

``python -m tests.attack.host ADDRESS`` prints one line of JSON: ``url``, ``control``, ``key`` (of ADDRESS) and
``attack``. A POST to ``<attack>/NAME`` chooses what the address is answered; ``none`` is the truth.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sandbox.host import SandboxHost

DOMAIN = "attack.test"
MB = 1_000_000
PREFIX = "/_attack"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Made = Callable[[], web.StreamResponse]


def message(**fields: Any) -> dict[str, Any]:
    """A message as a host gives it."""
    whole: dict[str, Any] = {
        "id": 1,
        "version": 1,
        "from": f"@stranger@{DOMAIN}",
        "to": [f"@mallory@{DOMAIN}"],
        "time": 1_700_000_000.0,
        "topic": "t",
        "type": "text/plain;charset=UTF-8",
        "size": 5,
        "short_text": "hello",
    }
    return {**whole, **fields}


def array(item: bytes, size: int) -> bytes:
    """A JSON array of so many bytes."""
    return b"[" + item * (size // len(item)) + b"{}]"


def answers(scale: float) -> dict[str, dict[str, Made]]:
    """By attack and kind of route (list, message, data, attachment): what is answered."""
    size = int(60 * MB * scale)

    def plain(data: bytes, *, encoding: str | None = None) -> Made:
        headers = {"Content-Type": "application/json"} | ({"Content-Encoding": encoding} if encoding else {})
        return lambda: web.Response(body=data, headers=headers)

    def text(data: bytes) -> Made:
        return lambda: web.Response(body=data, headers={"Content-Type": "text/plain;charset=utf-8"})

    def of(**fields: Any) -> Made:
        return plain(json.dumps(message(**fields)).encode())

    def listed(**fields: Any) -> Made:
        return plain(json.dumps([message(**fields)]).encode())

    nested = b"[" + b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}]"
    return {
        "list_of_ids": {"list": plain(array(b'{"id":1},', size))},
        "list_of_nothing": {"list": plain(array(b"{},", size))},
        "list_gzipped": {"list": plain(gzip.compress(array(b"{},", size), 1), encoding="gzip")},
        "list_deflate_bomb": {"list": plain(_bomb(int(1000 * MB * scale)), encoding="deflate")},
        "list_nested": {"list": plain(nested)},
        "list_of_addresses": {"list": listed(to=["@a@b.test"] * int(1_000_000 * scale))},
        "reactions": {"message": of(reactions=[{"from": ["@a@b.test"], "emoji": "x"}] * int(1_200_000 * scale))},
        "topic": {"list": listed(topic="t" * (size // 2)), "message": of(topic="eyJ." * (size // 8))},
        "sizes": {"list": listed(size=10**400), "message": of(size=10**400, time=1e308)},
        "body_of_tokens": {
            "message": of(size=10 * MB, short_text=None),
            "data": text(b"eyJ." * int(2.5 * MB * scale)),
        },
        "body_of_keys": {
            "message": of(size=10 * MB, short_text=None),
            "data": text(b"SK sk- " * int(1.4 * MB * scale)),
        },
        "attachment_of_tokens": {"attachment": text(b"eyJ." * int(0.25 * MB * scale))},
        "attachment_of_controls": {"attachment": text(b"\x01" * int(10 * MB * scale))},
        "attachment_of_emoji": {"attachment": text("\U0001f600".encode() * int(2.5 * MB * scale))},
        "attachment_with_emoji": {"attachment": text("\U0001f600".encode() + b"a" * int(9 * MB * scale))},
        "error_without_end": {"list": lambda: web.Response(status=500, body=b"x" * size)},
    }


def _bomb(size: int) -> bytes:
    packer = zlib.compressobj(9)
    zeros = b" " * MB
    return b"".join([packer.compress(zeros) for _ in range(size // MB)] + [packer.flush()])


def kind_of(request: web.Request) -> str:
    """Which of the kinds a route is."""
    parts = request.path.strip("/").split("/")
    if request.method != "GET" or parts[0] != "fmsg":
        return ""
    match parts[1:]:
        case [] | ["sent"]:
            return "list"
        case [_]:
            return "message"
        case [_, "data"]:
            return "data"
        case [_, "attach", _]:
            return "attachment"
    return ""


class HostileHost:
    """The middleware, and the switch."""

    def __init__(self, key: str, scale: float) -> None:
        self._key = key
        self._answers = answers(scale)
        self._tokens: set[str] = set()
        self._chosen = "none"

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Lie to the one address."""
        bearer = request.headers.get("Authorization", "").partition(" ")[2]
        if request.path == "/fmsg/token" and bearer == self._key:
            response = await handler(request)
            if isinstance(response, web.Response) and response.text:
                self._tokens.add(json.loads(response.text).get("access_token", ""))
            return response
        lie = self._lie(kind_of(request)) if bearer in self._tokens else None
        return lie or await handler(request)

    def _lie(self, kind: str) -> web.StreamResponse | None:
        made = self._answers.get(self._chosen, {}).get(kind)
        return None if made is None else made()

    async def choose(self, request: web.Request) -> web.Response:
        """Switch to another attack."""
        self._chosen = request.match_info["name"]
        return web.json_response({"attacks": list(self._answers)})


async def main(address: str, scale: float) -> None:
    """Serve until standard input ends."""
    host = SandboxHost(DOMAIN)
    key = host.control.create_key(address)
    hostile = HostileHost(key, scale)
    app = host.application()
    app.middlewares.insert(0, hostile.answer)
    app.router.add_post(f"{PREFIX}/{{name}}", hostile.choose)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    print(json.dumps({"url": url, "control": f"{url}/_sandbox", "attack": f"{url}{PREFIX}", "key": key}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0))
