"""The official runner's scenarios for authorization servers, with the arguments NODE RUNNER OUT.

Starts a sandbox host, a Redis and a front whose people sign in, registers a client, and is the person in front of the
browser whose URL the runner prints. Exit status 0 if every scenario passed.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path

import httpx2

from ledger.embedded import EmbeddedRedis, free_port
from ledger.seal import SealKeys
from ops.processes import Child
from sandbox.host import SandboxHost, serve
from tests.contract.test_sign_in import by_form
from tests.within import within

TIMEOUT_S = 120.0
"""For both scenarios; they take seconds."""


async def play(node: str, runner: str, out: str) -> int:
    """The runner's exit status."""
    host = SandboxHost("here.test")
    host.control.create_address("@ann@here.test")
    key = host.control.create_key("@ann@here.test")
    port, callback = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as logs:
        async with EmbeddedRedis() as redis, serve(host) as api_url:
            env = {
                "FMSG_API_URL": api_url,
                "FMSG_REDIS_URL": redis.url,
                "FMSG_SEAL_KEY": SealKeys.generate(),
                "FMSG_MCP_PUBLIC_URL": url,
                "FMSG_METRICS_PORT": "0",
            }
            front = await Child.start("front", "front", "--port", str(port), env=env, log_dir=Path(logs))
            try:
                await front.announcement("mcp_url")
                return await _run(node, runner, out, url=url, callback=callback, key=key)
            finally:
                await front.stop()


async def _run(node: str, runner: str, out: str, *, url: str, callback: int, key: str) -> int:
    asked = {
        "redirect_uris": [f"http://127.0.0.1:{callback}/callback"],
        "token_endpoint_auth_method": "none",
        "client_name": "Conformance runner",
    }
    async with httpx2.AsyncClient() as http:
        client_id = (await http.post(f"{url}/oauth/register", json=asked)).json()["client_id"]
    arguments = ["--url", url, "--client-id", client_id, "--resource", f"{url}/mcp", "-p", str(callback), "-o", out]
    process = await asyncio.create_subprocess_exec(
        node, runner, "authorization", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    visited = False
    async for line in process.stdout:
        text = line.decode("utf-8", "replace")
        print(text, end="", flush=True)
        found = re.search(rf"{re.escape(url)}/oauth/authorize\S+", text)
        if found is not None and not visited:
            visited = True
            location = await by_form(key)(found[0])
            async with httpx2.AsyncClient() as http:
                await http.get(location)
    return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(within(play(*sys.argv[1:4]), TIMEOUT_S)))
