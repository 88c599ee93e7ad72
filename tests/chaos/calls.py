"""Tool calls over HTTP as a light client makes them: thousands of callers in one process, with nothing kept."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp

PROTOCOL = "2025-11-25"
"""The revision of the protocol these clients speak."""


class CallError(Exception):
    """A call brought no result."""


class Dropped(CallError):
    """The connection ended before the answer, or none could be made."""


class Silent(Dropped):
    """Nothing came in the time the call may take at all."""


class Refused(CallError):
    """An HTTP status instead of an answer."""

    def __init__(self, status: int, text: str, *, retry_after_s: float | None) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status
        self.retry_after_s = retry_after_s


class ToolFailed(CallError):
    """The tool answered with ``isError``, or the server with a JSON-RPC error; the text is what an agent reads."""


class Client:
    """One connection pool for all callers of a run."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0)
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=2**18)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, url: str, key: str, tool: str, arguments: Mapping[str, Any], *, patience_s: float
    ) -> dict[str, Any]:
        """Call a tool; returns its structured content. Raises `CallError`."""
        result = await self.request(
            url, key, "tools/call", {"name": tool, "arguments": arguments}, patience_s=patience_s
        )
        if result.get("isError") or "structuredContent" not in result:
            raise ToolFailed(" ".join(block.get("text", "") for block in result.get("content", ())))
        return dict(result["structuredContent"])

    async def request(
        self, url: str, key: str, method: str, params: Mapping[str, Any], *, patience_s: float
    ) -> dict[str, Any]:
        """One JSON-RPC request; returns its result. Raises `CallError`."""
        if self._session is None:
            raise RuntimeError("the client is not open")
        request_id = next(self._ids)
        body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
        }
        try:
            async with (
                asyncio.timeout(patience_s),
                self._session.post(url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                data = await response.read()
        except TimeoutError:
            raise Silent(f"nothing within {patience_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Dropped(f"{type(error).__name__}: {error}") from error
        if response.status != 200:
            raise _refused(response.status, data, response.headers.get("Retry-After"))
        message = _message(data, response.content_type, request_id)
        if "error" in message:
            raise ToolFailed(str(message["error"].get("message")))
        return dict(message["result"])


def _refused(status: int, data: bytes, retry_after: str | None) -> Refused:
    retry_after_s = float(retry_after) if retry_after and retry_after.isdigit() else None
    return Refused(status, data.decode(errors="replace"), retry_after_s=retry_after_s)


def _message(data: bytes, content_type: str, request_id: int) -> dict[str, Any]:
    """The answer out of a body, JSON or a stream of events. Raises `Dropped` where the stream ended without it."""
    if content_type == "application/json":
        candidates = [data]
    else:
        candidates = [line[5:] for line in data.splitlines() if line.startswith(b"data:")]
    for candidate in candidates:
        try:
            message = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("id") == request_id:
            return message
    raise Dropped("the stream ended without an answer")
