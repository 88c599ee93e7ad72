"""`fmsg-mcpd sandbox`: fmsg hosts for trying and testing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.processes import announce
from ops.serve import run_role
from ops.settings import SettingError, Settings


def sandbox(
    domains: Sequence[str], *, addresses: Sequence[str] = (), port: int, bind: str, sqlite_dir: str | None
) -> int:
    """Serve the hosts until a signal comes; each is announced as a line of JSON, with keys of the addresses."""

    async def serve(_settings: Settings, stop: asyncio.Event) -> None:
        from sandbox.host import run_hosts

        ports = [0 if port == 0 else port + offset for offset in range(len(domains))]

        def tell(host: dict[str, Any]) -> None:
            announce(**host)

        try:
            await run_hosts(
                domains,
                ports=ports,
                bind=bind,
                stop=stop,
                announce=tell,
                sqlite_dir=sqlite_dir,
                addresses=addresses,
            )
        except ValueError as error:
            raise SettingError(f"sandbox: {error}") from None

    if sqlite_dir is not None:
        Path(sqlite_dir).mkdir(parents=True, exist_ok=True)
    return run_role("sandbox", serve)
