"""Several hosts in one process, as the command line runs them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sandbox.run import run_hosts


async def test_hosts_are_announced_and_federate(tmp_path: Path) -> None:
    stop, announced, ready = asyncio.Event(), list[dict[str, Any]](), asyncio.Event()

    def announce(line: dict[str, Any]) -> None:
        announced.append(line)
        if len(announced) == 2:
            ready.set()

    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
        group.create_task(
            run_hosts(
                ["a.test", "b.test"],
                ports=[0],
                bind="127.0.0.1",
                stop=stop,
                announce=announce,
                sqlite_dir=tmp_path,
                addresses=["@alice@A.test"],
            )
        )
        await ready.wait()
        async with session.get(f"{announced[1]['control']}/stats") as response:
            assert (await response.json())["result"]["domain"] == "b.test"
        key = announced[0]["keys"]["@alice@A.test"]
        url = f"{announced[0]['url']}/fmsg/token"
        async with session.post(url, headers={"Authorization": f"Bearer {key}"}) as response:
            assert response.status == 200
        stop.set()
    assert announced[1]["keys"] == {}
    assert [line["domain"] for line in announced] == ["a.test", "b.test"]
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".sqlite")) == [
        "a.test.sqlite",
        "b.test.sqlite",
    ]


@pytest.mark.parametrize(
    ("domains", "ports", "reason"),
    [([], [], "no domain"), (["a.test", "A.test"], [], "twice"), (["a.test"], [0, 0], "2 ports for 1 domains")],
)
async def test_what_cannot_be_run(domains: list[str], ports: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        await run_hosts(domains, ports=ports, bind="127.0.0.1", stop=asyncio.Event(), announce=print)


async def test_addresses_of_other_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="belongs to none"):
        await run_hosts(
            ["a.test"], ports=[], bind="127.0.0.1", stop=asyncio.Event(), announce=print, addresses=["@x@b.test"]
        )
