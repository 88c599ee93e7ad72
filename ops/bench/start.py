"""Scenario: the stdio server, from its spawn to its answer, and its memory when idle."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from ops.bench.figures import Scene
from ops.bench.measure import cost_of, own_bytes
from ops.bench.sizes import Size
from ops.processes import child_environment

ANSWER_WITHIN_S = 30.0

IDLE_S = 3.0
"""After the last answer, until memory is read."""

_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
_FOLLOWING = (
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}},
)

BARE_PROGRAM = "import asyncio, json, sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)"
"""A Python process that answers each line with the line. No stdio server in Python can be quicker."""


async def start(size: Size, env: Mapping[str, str]) -> Scene:
    """Start the stdio server some times. ``env``: its settings."""
    scene = Scene(
        name="stdio",
        title="The stdio server",
        how=(
            f"`fmsg-mcpd stdio` is started {size.stdio_starts} times, one after another: spawn to the answer to "
            "`initialize`, to `tools/list`, and to the first `whoami`, each asked for at once; and resident memory 3 s "
            "after that, its feed open. The yardstick is a Python process that imports asyncio and gives a line back."
        ),
    )
    to_initialize: list[float] = []
    to_tools: list[float] = []
    to_whoami: list[float] = []
    memory_mb: list[float] = []
    own_mb: list[float] = []
    bare_ms: list[float] = []
    bare_mb: list[float] = []
    bare_own_mb: list[float] = []
    for number in range(size.stdio_starts):
        bare = await _start([sys.executable, "-c", BARE_PROGRAM], {}, full=False)
        bare_ms.append(bare[0])
        bare_mb.append(bare[3])
        bare_own_mb.append(bare[4])
        idle_s = IDLE_S if number == size.stdio_starts - 1 or number < 2 else 0.0
        initialize_ms, tools_ms, whoami_ms, mb, own = await _start(
            [sys.executable, "-m", "fmsg_mcpd", "stdio"], env, idle_s=min(idle_s, size.idle_s)
        )
        to_initialize.append(initialize_ms)
        to_tools.append(tools_ms)
        to_whoami.append(whoami_ms)
        if idle_s:
            memory_mb.append(mb)
            own_mb.append(own)
    scene.note_rounds("spawn to initialize answered", to_initialize, "ms", bare=bare_ms)
    scene.note_rounds("spawn to tools/list answered", to_tools, "ms", bare=bare_ms)
    scene.note_rounds("spawn to whoami answered", to_whoami, "ms", bare=bare_ms)
    scene.note_rounds("memory when idle", memory_mb, "MB", bare=bare_mb)
    scene.note_rounds("of it shared with no other process", own_mb, "MB", bare=bare_own_mb)
    return scene


async def _start(
    command: Sequence[str], env: Mapping[str, str], *, idle_s: float = 0.0, full: bool = True
) -> tuple[float, float, float, float, float]:
    """Milliseconds to the first answer, the list of tools and ``whoami``; memory in MB, and the part not shared."""
    began_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**child_environment(env), "PATH": os.environ.get("PATH", "")},
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a process without pipes")
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            process.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
            await process.stdout.readline()
            initialize_ms = (time.monotonic() - began_s) * 1000
            tools_ms = whoami_ms = initialize_ms
            if full:
                for message in _FOLLOWING:
                    process.stdin.write(json.dumps(message).encode() + b"\n")
                    if message.get("id"):
                        await process.stdout.readline()
                    if message.get("id") == 2:
                        tools_ms = (time.monotonic() - began_s) * 1000
                whoami_ms = (time.monotonic() - began_s) * 1000
        await asyncio.sleep(idle_s)
        memory_mb, own_mb = cost_of(process.pid).rss_bytes / 1e6, own_bytes(process.pid) / 1e6
        process.stdin.close()
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return initialize_ms, tools_ms, whoami_ms, memory_mb, own_mb
