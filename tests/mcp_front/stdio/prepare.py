"""What the SDK answers to a client's first questions. As a program it writes `mcp_front.stdio.opening.PREPARED`."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

from mcp_front.settings import FrontSettings
from mcp_front.stdio.opening import HANDSHAKE_VERSIONS, NEWEST_VERSION, PREPARED, VERSION_MARK, tools_key
from mcp_front.tools.registry import tools_for
from tests.mcp_front.fakes import request
from tests.mcp_front.stdio.test_serve import META, session

LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
DIRECTORIES = tuple(itertools.product((False, True), repeat=2))
"""Whether files are taken, and whether they are written."""


def initialize(version: str = "2025-06-18", *, id_: int | str = 3, **more: Any) -> dict[str, Any]:
    """The first request of an older era."""
    client = {"name": "t", "version": "1", "title": "a client"}
    return request(
        "initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client, **more}, id_=id_
    )


def questions(version: str) -> list[dict[str, Any]]:
    """What a client of a version begins with."""
    if version == NEWEST_VERSION:
        return [request(method, {"_meta": META}, id_=method) for method in ("server/discover", *LISTS)]
    return [initialize(version, id_="initialize"), *(request(method, id_=method) for method in LISTS)]


async def by_the_sdk(version: str, *, uploads: bool, downloads: bool, product: str) -> dict[str, bytes]:
    """The SDK's lines that answer them, by method."""
    anywhere = Path("/")
    settings = FrontSettings(
        transport="stdio", upload_dir=anywhere if uploads else None, download_dir=anywhere if downloads else None
    )
    lines: dict[str, bytes] = {}
    async with session(api_key=None, tools=tools_for(settings), version=product) as client:
        for question in questions(version):
            await client.say(question)
            lines[question["method"]] = await client.lines.next()
    return lines


async def prepared() -> bytes:
    """What `PREPARED` has to hold: one result in a line."""
    results: dict[str, bytes] = {}
    for version, (uploads, downloads) in itertools.product((*HANDSHAKE_VERSIONS, NEWEST_VERSION), DIRECTORIES):
        lines = await by_the_sdk(version, uploads=uploads, downloads=downloads, product=VERSION_MARK.decode())
        for method, line in lines.items():
            if version in (*HANDSHAKE_VERSIONS[-1:], NEWEST_VERSION) or method == "initialize":
                key = tools_key(uploads=uploads, downloads=downloads) if method == "tools/list" else method
                results[f"{version} {key}"] = line.partition(b'"result":')[2].rstrip()[:-1]
    written = b",\n".join(json.dumps(key).encode() + b":" + result for key, result in results.items())
    return b"{\n" + written + b"\n}\n"


if __name__ == "__main__":
    PREPARED.write_bytes(asyncio.run(prepared()))
