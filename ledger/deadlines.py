"""How long a piece of code waits for the store, where that is less than the store's own deadlines.

Those are made for work that has to be done: a hanging server holds a command for up to fifteen seconds. What may fail
without harm, and a call with a time limit of its own, must not wait so long. Code says so around what it asks::

    with answered_within(BEST_EFFORT_S):
        await store.deferred.add(task)  # raises LedgerUnavailable after a second

A store in memory answers at once and needs none of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar

from ledger.port import LedgerUnavailable

BEST_EFFORT_S = 1.0
"""For what may fail: longer than a healthy server ever takes, short enough not to be felt in a tool call."""

LEAST_S = 1.0
"""Any command gets so long, however late it is. Else a slow host would make the store look as if it were away."""


class GaveUp(LedgerUnavailable):
    """The caller of the store gave up before the answer came. The store is there: it answered others meanwhile."""


_until: ContextVar[float | None] = ContextVar("answered_by", default=None)


@contextmanager
def answered_by(at_s: float) -> Iterator[None]:
    """Within: a command without an answer at this time of the event loop's fails. The sooner of two counts."""
    outer = _until.get()
    token = _until.set(at_s if outer is None else min(at_s, outer))
    try:
        yield
    finally:
        _until.reset(token)


def answered_within(seconds: float) -> AbstractContextManager[None]:
    """Within: a command fails that was not answered so many seconds from now."""
    return answered_by(asyncio.get_running_loop().time() + seconds)


def give_up_at() -> float | None:
    """When a command that is sent now fails, in the event loop's time; None: no sooner than the store lets it."""
    until_s = _until.get()
    return None if until_s is None else max(until_s, asyncio.get_running_loop().time() + LEAST_S)


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    """Around a wait for what somebody else asks of the store: it ends like a command that is sent now.

    Raises `LedgerUnavailable`.
    """
    try:
        async with asyncio.timeout_at(give_up_at()):
            yield
    except TimeoutError:
        raise GaveUp("The store gave others no answer while this one was of use.") from None
