"""How long whoever asks the store is willing to wait for it, where that is less than the store's own deadlines.

Those are made for work that has to be done: a hanging server holds a command for up to fifteen seconds. What may fail
without harm, and a call with a time limit of its own, must not wait so long. Code says so around what it asks::

    with patient_for(BEST_EFFORT_S):
        await chores.add(chore)  # raises LedgerUnavailable after a second

A store that answers from its own memory has no use for it.
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
"""Any command gets so long, however late it is: what was late is the host, and the store must not look away for it."""


class OutOfPatience(LedgerUnavailable):
    """Whoever asked did not wait for the answer any longer. The store is there: others got theirs meanwhile."""


_until: ContextVar[float | None] = ContextVar("patient_until", default=None)


@contextmanager
def patient_until(at_s: float) -> Iterator[None]:
    """Within: a command without an answer at this time of the event loop's fails. The sooner of two counts."""
    outer = _until.get()
    token = _until.set(at_s if outer is None else min(at_s, outer))
    try:
        yield
    finally:
        _until.reset(token)


def patient_for(seconds: float) -> AbstractContextManager[None]:
    """Within: a command fails that was not answered so many seconds from now."""
    return patient_until(asyncio.get_running_loop().time() + seconds)


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
        raise OutOfPatience("The store gave others no answer while this one was of use.") from None
