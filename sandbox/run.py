"""Several federated sandbox hosts in one process, each on a port of its own, until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sandbox.host import SandboxHost, serve
from sandbox.switches import Switches


async def run_hosts(
    domains: Sequence[str],
    *,
    ports: Sequence[int],
    bind: str,
    stop: asyncio.Event,
    announce: Callable[[dict[str, Any]], None],
    sqlite_dir: str | Path | None = None,
    switches: Switches = Switches(),  # noqa: B008 - a frozen value
) -> None:
    """Serve one host per domain until ``stop`` is set.

    ``ports`` has one port per domain, 0 for any free one; fewer ports are filled up with 0. ``announce`` gets one
    ``{"domain", "url", "control"}`` per host once all of them answer. With ``sqlite_dir`` each host keeps its messages
    in ``<domain>.sqlite`` there, else in memory.
    """
    if not domains:
        raise ValueError("domains: no domain given; name at least one, for example a.test")
    if len({domain.casefold() for domain in domains}) != len(domains):
        raise ValueError("domains: a domain is given twice; each host needs its own")
    if len(ports) > len(domains):
        raise ValueError(f"ports: {len(ports)} ports for {len(domains)} domains; give at most one per domain")
    stores = ["memory" if sqlite_dir is None else Path(sqlite_dir) / f"{domain}.sqlite" for domain in domains]
    hosts = [SandboxHost(domain, switches=switches, store=store) for domain, store in zip(domains, stores, strict=True)]
    hosts[0].federate(*hosts[1:])
    wanted = [*ports, *([0] * (len(hosts) - len(ports)))]
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(serve(host, port, bind=bind))
            for host, port in zip(hosts, wanted, strict=True)
        ]
        for host, url in zip(hosts, urls, strict=True):
            announce({"domain": host.domain, "url": url, "control": f"{url}/_sandbox"})
        await stop.wait()
