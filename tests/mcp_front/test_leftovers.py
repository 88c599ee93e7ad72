"""Requests leave nothing behind that only a full garbage collection would free: those are rare in a front."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from fmsg.http import HostHttp
from ledger.values import CallerKey
from mcp_front.callers import KeyCaller, KeyCallers
from mcp_front.gather import gather_bounded, gather_with
from mcp_front.http.connection import Connection
from mcp_front.settings import Budgets, FrontSettings
from mcp_front.shield import shielded
from mcp_front.timer_wheel import TimerWheel


def count(kind: type) -> int:
    """How many objects of a kind there are."""
    return sum(isinstance(each, kind) for each in gc.get_objects())


class Line:
    """A transport that goes nowhere."""

    def get_extra_info(self, _name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def write(self, _data: bytes) -> None:
        pass


async def served(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers anything."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def test_a_lost_connection_lets_go_of_what_refers_to_it() -> None:
    config = uvicorn.Config(served, lifespan="off", log_config=None)
    config.load()
    loop = asyncio.get_running_loop()
    timer_wheel = TimerWheel(now=loop.time, call_at=loop.call_at)
    connection = Connection(config, ServerState(), {}, budgets=Budgets(), timer_wheel=timer_wheel)
    line: Any = Line()
    connection.connection_made(line)
    connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
    assert connection.cycle is not None
    connection.connection_lost(None)
    left: list[Any] = [connection.cycle, connection.scope]
    assert left == [None, None]


@pytest.mark.parametrize("uses", [1, 3])
async def test_a_caller_and_its_client_go_together(uses: int) -> None:
    callers = KeyCallers(
        HostHttp("http://127.0.0.1:1"),
        FrontSettings(),
        transport="http",
        clock=time.time,
        rng=random.Random(1),
    )
    gc.collect()
    gc.disable()
    try:
        before = count(KeyCaller)
        for _ in range(uses):
            caller = KeyCaller(callers, "key", b"digest", "@ann@a.test", CallerKey("a" * 32))
            assert caller.api is not None
        del caller
        assert count(KeyCaller) == before
    finally:
        gc.enable()


class Large:
    """Stands for what a request brought along."""


async def _fails(large: Large) -> None:
    await asyncio.sleep(0)
    raise RuntimeError("refused")


async def _never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "step",
    [
        lambda large: shielded(_fails(large)),
        lambda large: gather_bounded(_fails, [large]),
        lambda large: gather_bounded(_fails, [large, large]),
        lambda large: gather_with(asyncio.sleep(0), _fails(large)),
        lambda large: gather_with(_fails(large), _never()),
    ],
)
async def test_a_failed_step_lets_go_of_what_was_sent(step: Callable[[Large], Awaitable[object]]) -> None:
    """An exception refers to the frames it came through. Where one of those refers back, 60 MB stay for minutes."""

    async def call() -> weakref.ref[Large]:
        large = Large()
        try:
            await step(large)
        except RuntimeError:
            return weakref.ref(large)
        raise AssertionError("it did not fail")

    gc.collect()
    gc.disable()
    try:
        left = await call()
        await asyncio.sleep(0)  # The event loop itself refers to the task whose end woke us.
        assert left() is None
    finally:
        gc.enable()
