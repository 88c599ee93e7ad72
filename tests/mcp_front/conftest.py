"""A world of two federated hosts for the tests of the front."""

from __future__ import annotations

from collections.abc import AsyncIterator

import hypothesis
import pytest

from sandbox.switches import OLDER
from tests.mcp_front.agents import Agent, World, running_world
from tests.mcp_front.fakes import Front, front

hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")
"""Examples are timed by the whole machine's load, which says nothing about them."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Two current hosts."""
    async with running_world() as running:
        yield running


@pytest.fixture
async def older_world() -> AsyncIterator[World]:
    """Two hosts from before hashes, reactions, terminal messages and thread answers."""
    async with running_world(OLDER) as running:
        yield running


@pytest.fixture
def ann(world: World) -> Agent:
    """At the first host."""
    return world.agent("ann")


@pytest.fixture
def bob(world: World) -> Agent:
    """At the second host."""
    return world.agent("bob", "there.test")


@pytest.fixture
def cat(world: World) -> Agent:
    """At the first host, as ann."""
    return world.agent("cat")


@pytest.fixture
async def running() -> AsyncIterator[Front]:
    """A front over a sandbox host with a fake toolbox."""
    async with front() as up:
        yield up
