"""People who use a sandbox host over real HTTP, for the tests of this folder."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from sandbox.host import SandboxHost

ANSWER_S = 5.0
"""Longest wait for anything a test expects; what it must not see it does not wait for."""


class Answer(msgspec.Struct, frozen=True):
    """An answer as a test looks at it."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> str:
        """The host's text for people."""
        text = self.json["error"]
        assert isinstance(text, str)
        return text


class Ears:
    """An open socket of a person."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next event: its type and its message."""
        message = await self.ws.receive(ANSWER_S)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        frame = msgspec.json.decode(message.data)
        return frame["type"], frame["data"]

    async def end(self) -> int | None:
        """Read to the end; the close code (1006: cut without a close frame)."""
        while True:
            message = await self.ws.receive(ANSWER_S)
            if message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR):
                return self.ws.close_code


class Person:
    """One address with a token."""

    def __init__(self, session: aiohttp.ClientSession, host: SandboxHost, url: str, address: str, key: str) -> None:
        self.session = session
        self.host = host
        self.url = url
        self.address = address
        self.key = key
        self.token = ""

    async def sign_in(self) -> Answer:
        """Exchange the key; the token is used from then on."""
        answer = await self.ask("POST", "/token", authorization=f"Bearer {self.key}")
        if answer.status == 200:
            self.token = answer.json["access_token"]
        return answer

    async def ask(self, method: str, path: str, *, authorization: str | None = None, **options: Any) -> Answer:
        """A request below ``/fmsg``; ``authorization`` "" sends none."""
        headers = dict(options.pop("headers", {}))
        value = f"Bearer {self.token}" if authorization is None else authorization
        if value:
            headers["Authorization"] = value
        async with self.session.request(method, f"{self.url}/fmsg{path}", headers=headers, **options) as response:
            return Answer(response.status, await response.read(), dict(response.headers))

    async def get(self, path: str = "") -> Answer:
        """A GET below ``/fmsg``."""
        return await self.ask("GET", path)

    async def post(self, path: str = "", fields: dict[str, Any] | None = None) -> Answer:
        """A POST with a JSON body below ``/fmsg``."""
        return await self.ask("POST", path, json=fields) if fields is not None else await self.ask("POST", path)

    def wire(self, *to: str, **fields: Any) -> dict[str, Any]:
        """The JSON of a draft to these addresses; ``data`` is "hello" unless given."""
        data = fields.get("data", "hello")
        size = len(data.encode()) if isinstance(data, str) else 0
        given = {"version": 1, "from": self.address, "to": list(to), "type": "text/plain", "size": size, "data": data}
        return {**given, **fields}

    async def draft(self, *to: str, **fields: Any) -> int:
        """Create a draft; its id."""
        answer = await self.post("", self.wire(*to, **fields))
        assert answer.status == 201, answer
        number = answer.json["id"]
        assert isinstance(number, int)
        return number

    async def send(self, *to: str, **fields: Any) -> int:
        """Create a draft and send it; its id."""
        number = await self.draft(*to, **fields)
        answer = await self.post(f"/{number}/send")
        assert answer.status == 200, answer
        return number

    async def message(self, number: int) -> dict[str, Any]:
        """The message object."""
        answer = await self.get(f"/{number}")
        assert answer.status == 200, answer
        assert isinstance(answer.json, dict)
        return answer.json

    async def ids(self, query: str = "") -> list[int]:
        """The ids of a page of the received list."""
        return [item["id"] for item in (await self.get(query)).json]

    async def attach(self, number: int, filename: str, data: bytes) -> Answer:
        """Upload a file, its name as it is."""
        disposition = f'form-data; name="file"; filename="{filename}"'
        body = b"--cut\r\nContent-Disposition: " + disposition.encode() + b"\r\n\r\n" + data + b"\r\n--cut--\r\n"
        headers = {"Content-Type": "multipart/form-data; boundary=cut"}
        return await self.ask("POST", f"/{number}/attach", data=io.BytesIO(body), headers=headers)

    async def control(self, name: str, **arguments: Any) -> Answer:
        """A request to the control surface."""
        async with self.session.post(f"{self.url}/_sandbox/{name}", json=arguments) as response:
            return Answer(response.status, await response.read(), dict(response.headers))

    async def asked(self, route: str) -> None:
        """Wait until the host got a request of the route; asks something else meanwhile, as others do."""
        while not self.host.control.stats()["requests"].get(route):
            await self.get("/sent")

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Ears]:
        """An open socket."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.session.ws_connect(f"{self.url}/fmsg/ws", headers=headers) as ws:
            yield Ears(ws)
