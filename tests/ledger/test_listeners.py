from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from ledger.memory import WAKES_AT_ONCE, Listeners


def test_a_wake_up_reaches_the_listeners_of_its_key_alone() -> None:
    listeners: Listeners[str] = Listeners()
    heard: list[str] = []
    end_first = listeners.add("a", lambda: heard.append("first"))
    listeners.add("a", lambda: heard.append("second"))
    listeners.add("b", lambda: heard.append("other"))
    listeners.wake("a")
    assert heard == ["first", "second"]
    end_first()
    end_first()
    listeners.wake("a")
    listeners.wake("nobody")
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
    listeners.wake("a")
    end_two()
    listeners.wake("a")
    assert heard == ["x"]
    assert len(listeners) == 0


def test_a_listener_may_stop_while_it_is_woken() -> None:
    listeners: Listeners[str] = Listeners()
    heard: list[int] = []
    ends: list[Callable[[], None]] = []
    for k in range(3):

        def wake(k: int = k) -> None:
            heard.append(k)
            ends[k]()

        ends.append(listeners.add("a", wake))
    listeners.wake("a")
    assert heard == [0, 1, 2]
    assert len(listeners) == 0


def test_a_listener_that_fails_does_not_keep_others_asleep(caplog: pytest.LogCaptureFixture) -> None:
    listeners: Listeners[str] = Listeners()
    heard: list[str] = []
    listeners.add("a", lambda: [][0])
    listeners.add("a", lambda: heard.append("second"))
    with caplog.at_level(logging.CRITICAL + 1):
        listeners.wake("a")
    assert heard == ["second"]


async def test_waking_all_lets_others_run_in_between() -> None:
    listeners: Listeners[int] = Listeners()
    heard: list[int] = []
    seen_between: list[int] = []
    for k in range(2 * WAKES_AT_ONCE):
        listeners.add(k, lambda k=k: heard.append(k))  # type: ignore[misc]  # mypy cannot infer a lambda's default

    async def other() -> None:
        seen_between.append(len(heard))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listeners.wake_all())
        tasks.create_task(other())
    assert sorted(heard) == list(range(2 * WAKES_AT_ONCE))
    assert seen_between == [WAKES_AT_ONCE]


async def test_waking_all_can_be_spread_over_a_time() -> None:
    listeners: Listeners[int] = Listeners()
    woken: list[float] = []
    now = asyncio.get_running_loop().time
    for k in range(200):
        listeners.add(k, lambda: woken.append(now()))
    began_s = now()
    await listeners.wake_all(within_s=0.2)
    assert len(woken) == 200
    assert woken[-1] - began_s > 0.15
    assert len({round(at_s, 4) for at_s in woken}) > 20


async def test_waking_nobody_takes_no_time() -> None:
    await Listeners[int]().wake_all(within_s=1000.0)
