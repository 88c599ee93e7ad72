"""A front as a process of its own: ``python -m tests.contract.front_process API_URL BUDGETS_JSON``.

The product with its ledger in memory. Prints its URL and serves until standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec
import uvloop

from fmsg.http import HostHttp
from ledger.store import MemoryStore
from mcp_front.http.serve import serve_http
from mcp_front.settings import Budgets, FrontSettings, HttpSettings


async def main(api_url: str, budgets: Budgets) -> None:
    """Serve until standard input ends."""
    stop = asyncio.Event()
    async with HostHttp(api_url) as http, MemoryStore() as store, asyncio.TaskGroup() as tasks:
        settings = FrontSettings(api_url=api_url, budgets=budgets, http=HttpSettings(port=0, drain_s=2.0))
        tasks.create_task(
            serve_http(
                settings,
                store,
                http,
                stop=stop,
                started=lambda bound, port: print(f"http://{bound}:{port}", flush=True),
            )
        )
        await asyncio.to_thread(sys.stdin.read)
        stop.set()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Budgets)))
