from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from ledger.memory import SLICE, Listeners


def test_a_ring_reaches_everybody_with_the_key_and_nobody_else() -> None:
    listeners: Listeners[str] = Listeners()
    heard: list[str] = []
    end_first = listeners.add("a", lambda: heard.append("first"))
    listeners.add("a", lambda: heard.append("second"))
    listeners.add("b", lambda: heard.append("other"))
    listeners.ring("a")
    assert heard == ["first", "second"]
    end_first()
    end_first()
    listeners.ring("a")
    listeners.ring("nobody")
    assert heard == ["first", "second", "second"]
    assert len(listeners) == 2


def test_the_same_function_can_listen_twice() -> None:
    listeners: Listeners[str] = Listeners()
    heard: list[str] = []

    def wake() -> None:
        heard.append("x")

    end_one, end_two = listeners.add("a", wake), listeners.add("a", wake)
    end_one()
    end_one()
    listeners.ring("a")
    end_two()
    listeners.ring("a")
    assert heard == ["x"]
    assert len(listeners) == 0


def test_whoever_is_woken_may_stop_listening() -> None:
    listeners: Listeners[str] = Listeners()
    heard: list[int] = []
    ends: list[Callable[[], None]] = []
    for k in range(3):

        def wake(k: int = k) -> None:
            heard.append(k)
            ends[k]()

        ends.append(listeners.add("a", wake))
    listeners.ring("a")
    assert heard == [0, 1, 2]
    assert len(listeners) == 0


def test_a_listener_that_fails_does_not_keep_others_asleep(caplog: pytest.LogCaptureFixture) -> None:
    listeners: Listeners[str] = Listeners()
    heard: list[str] = []
    listeners.add("a", lambda: [][0])
    listeners.add("a", lambda: heard.append("second"))
    with caplog.at_level(logging.CRITICAL + 1):
        listeners.ring("a")
    assert heard == ["second"]


async def test_ringing_everybody_lets_others_run_in_between() -> None:
    listeners: Listeners[int] = Listeners()
    heard: list[int] = []
    seen_between: list[int] = []
    for k in range(2 * SLICE):
        listeners.add(k, lambda k=k: heard.append(k))  # type: ignore[misc]  # mypy cannot infer a lambda's default

    async def other() -> None:
        seen_between.append(len(heard))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listeners.ring_all())
        tasks.create_task(other())
    assert sorted(heard) == list(range(2 * SLICE))
    assert seen_between == [SLICE]
