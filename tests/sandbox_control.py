"""The control surface of a sandbox host, from another process."""

from __future__ import annotations

from typing import Any

import aiohttp


class SandboxControl:
    """Calls the methods of `sandbox.control.Control` over HTTP. ``url`` is the host's announced ``control`` URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method; returns its result. Raises `aiohttp.ClientResponseError`."""
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.post(f"{self.url}/{method}", json=arguments) as answer,
        ):
            return (await answer.json())["result"]

    async def make_person(self, address: str) -> str:
        """Create an address with a key; returns the key."""
        await self.call("create_address", address=address)
        return str(await self.call("create_key", address=address))
