"""Nothing of one caller in another's answers, nor of any in the logs and in Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledger.embedded import EmbeddedRedis
from tests.chaos.calls import Client
from tests.chaos.cluster import Sizes, running
from tests.fleet.isolation import isolation

pytestmark = pytest.mark.processes

CALLS = 800
"""Half of them by each caller; `make fleet` makes 10,000."""


async def test_two_callers_see_nothing_of_each_other(tmp_path: Path) -> None:
    """Every tool and resource with the other's ids, over two fronts, sixteen calls at a time."""
    logs, data = tmp_path / "logs", tmp_path / "redis"
    await asyncio.to_thread(logs.mkdir)
    async with (
        EmbeddedRedis(persist=True, directory=data) as redis,
        running(logs, sizes=Sizes(fronts=2, daemons=1, workers=1), redis=redis) as cluster,
        Client() as client,
    ):
        found = await isolation(cluster, client, calls=CALLS)
        left = await asyncio.to_thread(everything_below, tmp_path)
    assert found.leaks == []
    assert found.calls == CALLS
    assert found.refused > CALLS / 10
    shown = {"list_messages", "get_message", "get_thread", "download_attachment", "wait_for_message", "resources/read"}
    assert shown <= found.own.keys()
    assert b"appendonly" in b" ".join(name.encode() for name in left)
    for name, content in left.items():
        assert b"fmsgk_" not in content, name
        assert b"It is s" not in content, name
        assert b"eyJ" not in content, name


def everything_below(directory: Path) -> dict[str, bytes]:
    """Every file by its path: the logs, and what Redis writes down of each command it is sent."""
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
