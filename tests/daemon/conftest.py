"""A world per test, on memory."""

from __future__ import annotations

from asyncio import Task, TaskGroup
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from ledger.store import MemoryStore
from tests.daemon.parts import Parts
from tests.daemon.world import LIMITS, World, world_of


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A host and an empty store in memory."""
    async with MemoryStore(limits=LIMITS) as store, world_of(store) as world:
        yield world


@pytest.fixture
async def parts(world: World) -> AsyncIterator[Parts]:
    """What all feeds of a daemon share; their tasks end with the test."""
    async with TaskGroup() as group:
        tasks: set[Task[None]] = set()

        def spawn(work: Coroutine[Any, Any, None]) -> Task[None]:
            task = group.create_task(work)
            tasks.add(task)
            return task

        parts = Parts(world, spawn)
        yield parts
        for task in tasks:
            task.cancel()
