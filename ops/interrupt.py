"""Ctrl-C for commands that are one coroutine: once is enough, at any moment.

`asyncio.run` lets it come in the middle of a step. Where that step then enters an `asyncio.timeout` that is over at
once, as redis-py does before a command, the interruption is taken for the timeout, and the command goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

GRACE_S = 2.0
"""How long a command that only has to close connections may take to end."""


def run(
    main: Coroutine[Any, Any, Result],
    *,
    grace_s: float = GRACE_S,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Result:
    """As `asyncio.run`. Raises `KeyboardInterrupt` after SIGINT, once ``main`` has cleaned up.

    A second SIGINT, or ``grace_s`` over, ends it with whatever it is doing then.
    """
    interrupted = False

    async def attended() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def give_up() -> None:
            raise KeyboardInterrupt

        def interrupt() -> None:
            nonlocal interrupted
            if interrupted or task is None:
                raise KeyboardInterrupt
            interrupted = True
            task.cancel()
            loop.call_later(grace_s, give_up)

        # Windows, and threads other than the first, have no such handler: asyncio.run's own way is left.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGINT, interrupt)
        return await main

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return runner.run(attended())
        except asyncio.CancelledError:
            if interrupted:
                raise KeyboardInterrupt from None
            raise
