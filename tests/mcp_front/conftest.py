from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.mcp_front.fakes import Front, front


@pytest.fixture
async def running() -> AsyncIterator[Front]:
    """A front over a sandbox host with a fake toolbox."""
    async with front() as up:
        yield up
