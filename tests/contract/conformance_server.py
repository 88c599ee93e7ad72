"""A front for the official MCP conformance runner: ``python -m tests.contract.conformance_server``.

The runner can neither authenticate nor bring its own tools, so this one takes every request for the same caller's and
offers the runner's fixtures beside the product's tools. Everything else is the product. Prints its URL and serves until
standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvloop

import mcp_front.http.admission
import mcp_front.http.app
import mcp_front.http.serve
from fmsg.http import HostHttp
from ledger.store import MemoryStore
from mcp_front.server import build_server
from mcp_front.settings import FrontSettings, HttpSettings
from sandbox.host import SandboxHost, serve
from tests.contract.conformance_tools import tools_with_fixtures, with_fixtures

ADDRESS = "@conformance@a.test"


def open_to_everybody(key: str) -> None:
    """Take every request of this process for the one that has this key."""
    setattr(mcp_front.http.admission, "bearer_token", lambda headers: key)  # noqa: B010 - patched nowhere else


def built_with_fixtures(*args: Any, **options: Any) -> Any:
    """A server as the product builds it, with the runner's fixtures."""
    return with_fixtures(build_server(*args, **options))


async def main() -> None:
    """Serve until standard input ends."""
    host = SandboxHost("a.test")
    open_to_everybody(host.control.create_key(ADDRESS))
    setattr(mcp_front.http.serve, "build_server", built_with_fixtures)  # noqa: B010 - as above
    stop = asyncio.Event()
    async with (
        serve(host) as api_url,
        HostHttp(api_url) as http,
        MemoryStore() as store,
        asyncio.TaskGroup() as tasks,
    ):
        settings = FrontSettings(api_url=api_url, http=HttpSettings(port=0, drain_s=2.0))
        tasks.create_task(
            mcp_front.http.serve.serve_http(
                settings,
                store,
                http,
                stop=stop,
                tools=tools_with_fixtures(),
                started=lambda bound, port: print(f"http://{bound}:{port}/mcp", flush=True),
            )
        )
        await asyncio.to_thread(sys.stdin.read)
        stop.set()


if __name__ == "__main__":
    uvloop.run(main())
