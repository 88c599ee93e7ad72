"""`fmsg-mcpd sandbox`: fmsg hosts for trying and testing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ops.insight import Snippets
from ops.processes import announce
from ops.role import run_role
from ops.settings import SettingError, Settings


def sandbox(
    domains: Sequence[str],
    *,
    addresses: Sequence[str] = (),
    port: int,
    bind: str,
    sqlite_dir: str | None,
    as_json: bool = False,
    page_anywhere: bool = False,
) -> int:
    """Serve the hosts until a signal comes; each is announced, with keys of the addresses."""

    async def serve(_settings: Settings, stop: asyncio.Event) -> None:
        from sandbox.host import run_hosts

        def tell(host: dict[str, Any]) -> None:
            if as_json:
                announce(**host)
            else:
                print(readable(host), flush=True)
                if host["domain"] == domains[-1]:
                    print(CONNECT if addresses else f"{NOBODY}\n{CONNECT}", flush=True)

        try:
            await run_hosts(
                domains,
                ports=[0 if port == 0 else port + offset for offset in range(len(domains))],
                bind=bind,
                stop=stop,
                announce=tell,
                sqlite_dir=sqlite_dir,
                addresses=addresses,
                page=Snippets(),
                page_anywhere=page_anywhere,
            )
        except ValueError as error:
            raise SettingError(f"sandbox: {error}") from None

    if sqlite_dir is not None:
        Path(sqlite_dir).mkdir(parents=True, exist_ok=True)
    return run_role("sandbox", serve)


NOBODY = "There is no address yet: make one with its key on the page, or start again with --address @NAME@DOMAIN."
CONNECT = """\
To connect an agent: fmsg-mcpd connect --client NAME --api-url URL, with the Web API as the URL.
Runs until Ctrl-C."""

_ROWS = (("Page", "page"), ("Web API", "url"), ("Control", "control"))


def readable(host: Mapping[str, Any]) -> str:
    """An announced host as a person reads it."""
    rows = [(title, host[field]) for title, field in _ROWS if field in host]
    width = max(map(len, host["keys"]), default=0)
    for number, (address, key) in enumerate(host["keys"].items()):
        rows.append(("" if number else "Keys", f"{address:<{width}}  {key}"))
    return f"{host['domain']}\n" + "".join(f"  {name:<7}  {value}\n" for name, value in rows)
