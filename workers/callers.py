"""Acting for a caller without a request of theirs: with the token that their last request left, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from fmsg.http import HostHttp
from fmsg.tokens import AccessToken, FixedTokens
from fmsg.webapi import WebApi
from ledger.port import Activations
from ledger.values import CallerKey

MIN_LIFE_S = 30.0
"""A token with less life left is not begun with: it would expire in the middle of a job."""


class Standing(msgspec.Struct, frozen=True):
    """A caller to act for: the Web API with their token, and their address."""

    api: WebApi
    address: str


class Callers:
    """Finds the Web API for a caller key. Never exchanges anything: workers have no keys."""

    def __init__(self, activations: Activations, http: HostHttp, *, clock: Callable[[], float] = time.time) -> None:
        self._activations = activations
        self._http = http
        self._clock = clock

    async def find(self, caller: CallerKey) -> Standing | None:
        """None where the caller is not active, left no token that still lasts, or is of another host."""
        activation = await self._activations.get(caller)
        if activation is None or activation.token is None:
            return None
        if activation.token_expires_at_s < self._clock() + MIN_LIFE_S:
            return None
        if activation.api_url.rstrip("/") != self._http.api_url.rstrip("/"):
            return None
        token = AccessToken(
            value=activation.token, address=activation.address, expires_at_s=activation.token_expires_at_s
        )
        return Standing(WebApi(self._http, FixedTokens(token, clock=self._clock)), activation.address)
