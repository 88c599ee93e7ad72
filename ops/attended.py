"""What every process of a fleet has beside its work: a side port, a word in Redis that it is there, a look at Redis."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from ledger.facts import server_facts
from ledger.port import LedgerUnavailable, Store
from ledger.store import RedisStore
from ops import health
from ops.presence import presence
from ops.settings import Settings
from ops.version import version

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 2.0
"""A readiness probe answers before its own usual deadline of a few seconds."""


@contextlib.asynccontextmanager
async def attended(
    settings: Settings, store: RedisStore, stop: asyncio.Event, *, role: str, side_port: int | None
) -> AsyncIterator[int | None]:
    """Look at the Redis server once, then serve the side port and be listed while the context is open.

    Gives the bound side port. Raises `LedgerUnavailable` where Redis cannot be used.
    """
    await store.ping()
    await advise(store)

    async def ready() -> str | None:
        return "draining" if stop.is_set() else await why_not_ready(store)

    async with (
        health.serving(settings.metrics_host, side_port, role=role, version=version(), ready=ready) as bound,
        presence(store, role=role, metrics_host=settings.metrics_host, metrics_port=bound, stop=stop),
    ):
        yield bound


async def advise(store: RedisStore) -> None:
    """Log what of the Redis server an operator should change, and what it costs not to."""
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
