"""Scenario: quick tools, called as fast as they answer over some connections."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ops.bench.client import BenchClient, CallFailed
from ops.bench.figures import Scene
from ops.bench.hold import WARM_UP, warm_up
from ops.bench.measure import spread, total
from ops.bench.sizes import Size
from ops.bench.target import BenchCaller, BenchTarget, connect, connect_all

MESSAGES = 25
"""In each caller's mailbox, so that a page of 20 is full."""

THREAD = 20
"""Messages in the thread that each caller asks for."""

BODY = "x" * 1000
"""Of a message that is sent."""

BARE_PATHS = {"whoami": "/answer", "list_messages": "/list"}
"""Where the yardstick does the same for less."""

Arguments = Callable[[int], Mapping[str, Any]]
"""What the caller with this number passes."""


async def tools(target: BenchTarget, size: Size) -> Scene:
    """Call the tools over each number of connections."""
    scene = Scene(
        name="tools",
        title="Tool calls",
        how=(
            f"Connections of callers of their own call a tool again and again, {size.tool_rounds} rounds of "
            f"{size.tool_s:g} s, turn about with the yardstick, which answers `whoami` at once and `list_messages` "
            "after the same request to the host. Each caller has 25 messages; a thread has 20, a message that is sent "
            "1 kB and an idempotency key of its own."
        ),
    )
    people = await target.callers(max(WARM_UP, *size.connections))
    await warm_up(target, people[:WARM_UP])
    for _ in range(MESSAGES):
        await target.deliver(people, body="Something to list, of the length that messages have. " * 4)
    threads = [await _thread_of(target, person) for person in people[: max(size.connections)]]
    called: dict[str, Arguments] = {
        "whoami": lambda _: {},
        "list_messages": lambda _: {"limit": 20},
        "get_thread": lambda number: {"id": threads[number]},
        "send_message": lambda number: {
            "to": [people[number].address],
            "topic": "bench",
            "body": BODY,
            "idempotency_key": secrets.token_hex(8),
        },
    }
    for tool, arguments in called.items():
        for count in size.connections:
            keys = [person.api_key for person in people[:count]]
            await _measure(scene, target, size, tool, arguments, keys)
    return scene


async def _thread_of(target: BenchTarget, person: BenchCaller) -> str:
    """Have the caller answer its newest message, and its answers, until the thread is full; the id of the last."""
    client = await connect(target.mcp_url, person.api_key)
    try:
        newest: str = (await client.call("list_messages", {"limit": 1})).content["messages"][0]["id"]
        for _ in range(THREAD - 1):
            answer = await client.call("reply", {"id": newest, "body": "And what of this?"})
            if answer.is_error:
                raise CallFailed(f"reply: {answer.text[:200]}")
            newest = answer.content["id"]
    finally:
        client.close()
    return newest


async def _measure(
    scene: Scene, target: BenchTarget, size: Size, tool: str, arguments: Arguments, keys: Sequence[str]
) -> None:
    at = f"{tool}, {len(keys)} connection{'s' if len(keys) > 1 else ''}"
    clients = await connect_all(target.mcp_url, keys)
    path = BARE_PATHS.get(tool)
    yardstick: list[BenchClient] = []
    if target.bare_url is not None and path is not None:
        yardstick = await connect_all(target.bare_url, keys, path=path)
    rates: list[float] = []
    bare_rates: list[float] = []
    times_ms: list[float] = []
    bare_ms: list[float] = []
    cpu_ms: list[float] = []
    try:
        await _burst(clients, tool, arguments, min(0.5, size.tool_s))
        for _ in range(size.tool_rounds):
            before = total(target.costs().values()).cpu_s
            found_ms, took_s = await _burst(clients, tool, arguments, size.tool_s)
            cpu_ms.append((total(target.costs().values()).cpu_s - before) / len(found_ms) * 1000)
            rates.append(len(found_ms) / took_s)
            times_ms += found_ms
            if yardstick:
                found_ms, took_s = await _burst(yardstick, tool, arguments, size.tool_s)
                bare_rates.append(len(found_ms) / took_s)
                bare_ms += found_ms
    except CallFailed as failed:
        scene.failures.append(f"{at}: {failed}")
    finally:
        for client in [*clients, *yardstick]:
            client.close()
    if rates:
        scene.note_rounds(f"{at}: calls per second", rates, "/s", bare=bare_rates)
        scene.note_times(f"{at}: time", times_ms, bare=spread(bare_ms).p50 if bare_ms else None)
        scene.note_rounds(f"{at}: CPU per call, all processes", cpu_ms, "ms")


async def _burst(
    clients: Sequence[BenchClient], tool: str, arguments: Arguments, length_s: float
) -> tuple[list[float], float]:
    """Call over every connection for so long; the times in ms, and how long it took. Raises `CallFailed`."""
    times_ms: list[float] = []
    began_s = time.monotonic()
    until_s = began_s + length_s

    async def again_and_again(number: int, client: BenchClient) -> None:
        while time.monotonic() < until_s:
            answer = await client.call(tool, arguments(number))
            if answer.is_error:
                raise CallFailed(f"{tool}: {answer.text[:200]}")
            times_ms.append((answer.at_s - client.sent_s) * 1000)

    await asyncio.gather(*(again_and_again(number, client) for number, client in enumerate(clients)))
    return times_ms, time.monotonic() - began_s
