"""The fmsg identity a tool call acts as, from the key exchange, never from an argument (FMSG-007)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from ledger.values import CallerKey

if TYPE_CHECKING:  # They bring the HTTP client along, which stdio has no use for before the first call.
    from fmsg.tokens import AccessToken
    from fmsg.webapi import WebApi


class Caller(Protocol):
    """One caller. Its address and key are known, because the API key was exchanged first."""

    @property
    def address(self) -> str:
        """The caller's full address, lower case."""
        ...

    @property
    def key(self) -> CallerKey:
        """The only form of the caller in Redis keys, metrics and logs."""
        ...

    @property
    def api(self) -> WebApi:
        """The Web API as this caller."""
        ...

    @property
    def api_url(self) -> str:
        """The configured base URL."""
        ...

    @property
    def transport(self) -> Literal["stdio", "http"]:
        """The deployment profile the request came through."""
        ...

    async def token(self) -> AccessToken:
        """A token for the caller's feed, good for more than a few seconds."""
        ...

    async def confirm(self, *, within_s: float = 60.0, ahead_s: float = 0.0) -> None:
        """Make sure the host accepted the caller's credential within the last ``within_s`` seconds; else ask it now.

        Where less than ``ahead_s`` of that is left, the host is asked in the background: a caller in use then never
        waits for it. Raises what the Web API raises when the credential is refused. Every answer that does not come
        from the host itself is given only after it.
        """
        ...
