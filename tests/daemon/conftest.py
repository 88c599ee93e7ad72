"""A world per test, on memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ledger.store import MemoryStore
from tests.daemon.world import LIMITS, World, world_of


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A host and an empty store in memory."""
    async with MemoryStore(limits=LIMITS) as store, world_of(store) as world:
        yield world
