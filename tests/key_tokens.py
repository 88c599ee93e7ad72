"""Tokens of an API key for clients that tests make: exchanged with the first request, and again when refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from fmsg.http import HostHttp
from fmsg.tokens import AccessToken, exchange


class KeyTokens:
    """A `TokenSource` of one key."""

    def __init__(
        self,
        http: HostHttp,
        api_key: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        retry_for_s: float = 20.0,
    ) -> None:
        self._exchange = partial(exchange, http, api_key, clock=clock, sleep=sleep, retry_for_s=retry_for_s)
        self._clock = clock
        self._current: AccessToken | None = None

    async def token(self) -> AccessToken:
        """The current token."""
        if self._current is None or not self._current.good(self._clock()):
            self._current = await self._exchange()
        return self._current

    async def renew(self, stale: AccessToken) -> AccessToken:
        """Another token than ``stale``."""
        if self._current is None or self._current.value == stale.value:
            self._current = None
            self._current = await self._exchange()
        return self._current
