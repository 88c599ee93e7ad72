"""The token of a feed: what the caller's last request left in its activation (FMSG-003, Authentication)."""

from __future__ import annotations

from collections.abc import Callable

from fmsg.errors import CredentialMissing
from fmsg.tokens import AccessToken
from ledger.port import Activations
from ledger.values import CallerKey


class ActivationTokens:
    """A `fmsg.tokens.TokenSource` that asks nobody but the activation: it holds no key and cannot exchange one.

    A token is kept while it lasts, so that a feed goes on when the store forgets the activation.
    """

    __slots__ = ("_activations", "_address", "_caller", "_clock", "_known", "_refused")

    def __init__(
        self, activations: Activations, caller: CallerKey, address: str, *, clock: Callable[[], float]
    ) -> None:
        self._activations = activations
        self._caller = caller
        self._address = address
        self._clock = clock
        self._known: AccessToken | None = None
        self._refused: str | None = None

    def __repr__(self) -> str:
        return f"ActivationTokens({self._caller[:8]}…)"

    async def token(self) -> AccessToken:
        """The token known, else the one left since. Raises `CredentialMissing` and `LedgerUnavailable`."""
        known = self._known
        if known is not None and known.good(self._clock()):
            return known
        return await self._read()

    async def renew(self, stale: AccessToken) -> AccessToken:
        """Another token than the refused one, where a request left one since. Raises as `token`."""
        self._refused = stale.value
        if self._known is not None and self._known.value == stale.value:
            self._known = None
        return await self.token()

    def refuse(self) -> None:
        """The host refuses the caller with the token known: only another one is worth a try."""
        if self._known is not None:
            self._refused = self._known.value
            self._known = None

    async def _read(self) -> AccessToken:
        self._known = None
        activation = await self._activations.get(self._caller)
        if activation is None or activation.token is None:
            raise CredentialMissing("the activation holds no token")
        found = AccessToken(value=activation.token, address=self._address, expires_at_s=activation.token_expires_at_s)
        if found.value == self._refused or not found.good(self._clock()):
            raise CredentialMissing("the activation's token is refused or expired")
        self._known = found
        return found
