"""The safety re-read of all waits of a process: a notification may be lost, and this finds the message then.

A wait at rest is looked at some time after it last looked for itself, many of them with two commands: where its
caller's ledger ends, and whether the caller's feed still is what it was. Only a wait for which something moved is woken
and sees for itself what it means. So what an idle process does grows with batches and not with waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Protocol

from ledger.port import LedgerError, Store
from ledger.values import CallerKey, Head

log = logging.getLogger(__name__)

SLACK_S = 0.25
"""What falls due so soon after is looked at together: a message whose notification was lost is as much later."""
AT_ONCE = 250
"""Waits looked at together: some hundred microseconds for Redis, a millisecond for us."""


class Resting(Protocol):
    """A wait for which there is nothing to do until something changes."""

    @property
    def caller(self) -> CallerKey:
        """Whose it is."""
        ...

    @property
    def head(self) -> Head | None:
        """Where the ledger ended when the wait last read it."""
        ...

    def wake(self) -> None:
        """Have it read on."""
        ...

    def doubt(self) -> None:
        """Have it read on and see anew whether its caller has a live feed."""
        ...


class Sweep:
    """Looks at each wait that rests, every ``every_s`` seconds."""

    def __init__(self, store: Store, *, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._due: OrderedDict[Resting, float] = OrderedDict()
        """When each is to be looked at, the earliest first."""
        self._looking: dict[Resting, None] = {}
        """Those being looked at now."""
        self._task: asyncio.Task[None] | None = None

    def add(self, wait: Resting) -> None:
        """A wait rests from now on, having just read."""
        loop = asyncio.get_running_loop()
        self._due[wait] = loop.time() + self._every_s
        if self._task is None:
            # Ended by `stop`, when no wait is held any more.
            self._task = loop.create_task(self._run())

    def discard(self, wait: Resting) -> None:
        """It does not rest any more; harmless where it did not."""
        self._due.pop(wait, None)
        self._looking.pop(wait, None)

    def stop(self) -> None:
        """Nobody rests any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            earliest_s = next(iter(self._due.values()), loop.time() + self._every_s)
            await asyncio.sleep(max(earliest_s - loop.time(), 0.0) + SLACK_S)
            while self._take(loop.time()):
                await self._look()

    def _take(self, until_s: float) -> bool:
        """Begin with some of those that are due, if any are."""
        while self._due and len(self._looking) < AT_ONCE:
            wait, due_s = next(iter(self._due.items()))
            if due_s > until_s:
                break
            del self._due[wait]
            self._looking[wait] = None
        return bool(self._looking)

    async def _look(self) -> None:
        callers = list(dict.fromkeys(wait.caller for wait in self._looking))
        try:
            heads = dict(zip(callers, await self._store.ledger.heads(callers), strict=True))
            settled = dict(zip(callers, await self._store.activations.settled(callers), strict=True))
        except LedgerError:
            # The waits find out for themselves whether the store is away.
            heads, settled = {}, {}
        except Exception:
            # Whatever it is, it must not end the sweep for all.
            log.exception("the sweep of waits failed", extra={"action": "sweep_failed"})
            heads, settled = {}, {}
        again_s = asyncio.get_running_loop().time() + self._every_s
        while self._looking:
            wait, _ = self._looking.popitem()
            self._due[wait] = again_s
            if not settled.get(wait.caller):
                wait.doubt()
            elif heads.get(wait.caller) != wait.head:
                wait.wake()
