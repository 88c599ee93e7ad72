"""Several federated sandbox hosts in one process, each on a port of its own, until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from fmsg.address import parse_address
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
    addresses: Sequence[str] = (),
    switches: Switches = Switches(),  # noqa: B008 - a frozen value
) -> None:
    """Serve one host per domain until ``stop`` is set.

    ``ports`` has one port per domain, 0 for any free one; fewer ports are filled up with 0. ``announce`` gets one
    ``{"domain", "url", "control", "keys"}`` per host once all of them answer: ``control`` is the URL of the control
    surface (`sandbox.routes_control`), ``keys`` has a new API key for each of ``addresses`` that belongs there. With
    ``sqlite_dir`` each host keeps its messages in ``<domain>.sqlite`` there, else in memory. Raises `ValueError` for
    domains, ports or addresses that do not go together.
    """
    if not domains:
        raise ValueError("domains: no domain given; name at least one, for example a.test")
    if len({domain.casefold() for domain in domains}) != len(domains):
        raise ValueError("domains: a domain is given twice; each host needs its own")
    if len(ports) > len(domains):
        raise ValueError(f"ports: {len(ports)} ports for {len(domains)} domains; give at most one per domain")
    stores = ["memory" if sqlite_dir is None else Path(sqlite_dir) / f"{domain}.sqlite" for domain in domains]
    hosts = [SandboxHost(domain, switches=switches, store=store) for domain, store in zip(domains, stores, strict=True)]
    for address in addresses:
        if not any(host.core.is_local(parse_address(address)) for host in hosts):
            raise ValueError(f"addresses: {address} belongs to none of the domains {', '.join(domains)}")
    hosts[0].federate(*hosts[1:])
    wanted = [*ports, *([0] * (len(hosts) - len(ports)))]
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(serve(host, port, bind=bind))
            for host, port in zip(hosts, wanted, strict=True)
        ]
        for host, url in zip(hosts, urls, strict=True):
            keys = {address: host.control.create_key(address) for address in addresses if host.core.is_local(address)}
            announce({"domain": host.domain, "url": url, "control": f"{url}/_sandbox", "keys": keys})
        await stop.wait()
