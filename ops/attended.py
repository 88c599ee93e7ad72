"""What every process of a fleet does beside its work: it serves a side port, announces itself, and checks its Redis."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

from ledger.port import LedgerUnavailable, Store
from ledger.redis.operators import server_facts
from ledger.store import RedisStore
from ops import health
from ops.presence import presence
from ops.settings import Settings
from ops.version import version

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 2.0
"""A readiness probe answers before its own usual deadline of a few seconds."""


ASK_AGAIN_S = 1.0
"""How long an answer of Redis counts. Anybody may ask a front whether it is ready, as often as they like."""


class Readiness:
    """Whether a process can do its work: Redis can be written and read, and it does not drain.

    ``work`` says what else is in the way of it, if anything is.
    """

    def __init__(
        self,
        store: Store,
        stop: asyncio.Event,
        *,
        work: Callable[[], str | None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._work = work
        self._stop = stop
        self._now = now
        self._asking = asyncio.Lock()
        self._asked_s = float("-inf")
        self._trouble: str | None = None

    async def why_not(self) -> str | None:
        """The reason, None where it can."""
        return "draining" if self._stop.is_set() else await self._store_trouble() or self._work()

    async def store_ready(self) -> bool:
        """Whether Redis can be written and read."""
        return await self._store_trouble() is None

    async def _store_trouble(self) -> str | None:
        async with self._asking:
            if self._now() - self._asked_s >= ASK_AGAIN_S:
                self._trouble = await why_not_ready(self._store)
                self._asked_s = self._now()
            return self._trouble


@contextlib.asynccontextmanager
async def attended(
    settings: Settings,
    store: RedisStore,
    stop: asyncio.Event,
    *,
    role: str,
    side_port: int | None,
    readiness: Readiness | None = None,
    own_redis: bool = False,
) -> AsyncIterator[int | None]:
    """Look at the Redis server once, then serve the side port and be listed while the context is open.

    ``own_redis``: this process has started and configured it, so no advice is due. Gives the bound
    side port. Raises `LedgerUnavailable` where Redis cannot be used.
    """
    readiness = readiness or Readiness(store, stop)
    await store.ping()
    if not own_redis:
        await advise(store)

    async with (
        health.serving(
            settings.metrics_host, side_port, role=role, version=version(), ready=readiness.why_not
        ) as bound,
        presence(store, role=role, metrics_host=settings.metrics_host, metrics_port=bound, stop=stop),
    ):
        yield bound


async def advise(store: RedisStore) -> None:
    """Log what an operator should change in the Redis server, and why."""
    try:
        facts = await server_facts(store.scripts)
    except LedgerUnavailable as error:
        log.warning(
            "Redis would not say what it is, so its version, eviction policy and persistence are unchecked: %s",
            error,
            extra={"action": "redis_unchecked"},
        )
        return
    for sentence in facts.advice():
        log.warning(sentence, extra={"action": "redis_advice"})


async def why_not_ready(store: Store) -> str | None:
    """None if Redis can be written and read, else the reason."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await store.ping()
    except (LedgerUnavailable, TimeoutError) as error:
        return f"Redis cannot be used: {error or 'no answer in time'}"
    return None
