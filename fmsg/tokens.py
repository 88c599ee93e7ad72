"""Access tokens: an API key is exchanged for one at ``POST /fmsg/token`` (FMSG-003, Token exchange)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from fmsg.address import is_address
from fmsg.backoff import backoff_s
from fmsg.decode import JsonReader
from fmsg.errors import CredentialMissing, HostMisbehaved, HostRefused, Transient
from fmsg.http import HostHttp

LEEWAY_S = 10.0
"""A token counts as expired this long before it is, since it has to last until the request arrives."""

RETRY_FOR_S = 20.0
"""How long an exchange is tried again while the host is in trouble. Its database restarts or fails over in less."""

FIRST_DELAY_S, MAX_DELAY_S = 0.25, 4.0
"""Back-off between the tries of one exchange."""

EXCHANGE_WITHIN_S = 10.0
"""The longest one try may take. An exchange is a lookup and a signature, and a request waits for it."""

NO_SUCH_ROUTE = frozenset({404, 405})
"""The answers of a web server that has no such route. A Web API answers 400, 401 or 403 to a bad key."""

MAX_SKEW_S = 60.0
"""Up to this difference between the host's clock and ours ``exp`` counts. Beyond it the token's life does, from now."""

MAX_LIFE_S = 366 * 86400.0
"""The longest life that a token is taken to have. A host could give any number."""


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token, the address it acts as (lower case) and when it expires (POSIX seconds)."""

    value: str
    address: str
    expires_at_s: float

    def __repr__(self) -> str:
        return f"AccessToken(address={self.address!r}, expires_at_s={self.expires_at_s!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("address", self.address), ("expires_at_s", self.expires_at_s)]

    def good(self, now_s: float) -> bool:
        """Whether it still lasts for a request."""
        return now_s < self.expires_at_s - LEEWAY_S


class TokenSource(Protocol):
    """Where the Web API client gets a caller's token from."""

    async def token(self) -> AccessToken:
        """A token good for at least a few seconds. Raises `CredentialMissing`, or what the exchange raises."""
        ...

    async def renew(self, stale: AccessToken) -> AccessToken:
        """Another token than ``stale``, which the host refused. Raises as `token`."""
        ...


class _Exchange(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float | None = None


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    exp: float
    iat: float | None = None


_read_exchange = JsonReader(_Exchange, "token answer")
_read_claims = JsonReader(_Claims, "access token's claims")


async def exchange(
    http: HostHttp,
    api_key: str,
    *,
    clock: Callable[[], float] = time.time,
    rng: random.Random | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    retry_for_s: float = RETRY_FOR_S,
) -> AccessToken:
    """A token for the key. A host in trouble is asked again for ``retry_for_s``.

    Raises the host's refusal or its trouble, or `HostMisbehaved` where it is no Web API.
    """
    rng = rng or random.Random()
    give_up_at_s = clock() + retry_for_s
    failures = 0
    while True:
        asked_at_s = clock()
        try:
            answer = await http.call("token", "POST", "/fmsg/token", bearer=api_key.strip(), within_s=EXCHANGE_WITHIN_S)
        except HostMisbehaved:
            raise  # A wrong URL, which time does not correct.
        except Transient as error:
            trouble = error
        except HostRefused as error:
            if error.worded or error.status not in NO_SUCH_ROUTE:
                raise
            raise HostMisbehaved(
                f"{http.api_url} answers POST /fmsg/token with {error.status}, so it is no fmsg Web API. "
                "Correct FMSG_API_URL; its host name or a path in it may be wrong."
            ) from None
        else:
            return token_of(answer.data, asked_at_s=asked_at_s)
        failures += 1
        delay_s = backoff_s(failures, rng, base_s=FIRST_DELAY_S, cap_s=MAX_DELAY_S)
        delay_s = max(delay_s, trouble.retry_after_s or 0.0)
        if clock() + delay_s > give_up_at_s:
            raise trouble
        await sleep(delay_s)


class FixedTokens:
    """One given token. Raises `CredentialMissing` once it has expired or was refused."""

    def __init__(self, token: AccessToken, *, clock: Callable[[], float] = time.time) -> None:
        self._token = token
        self._clock = clock
        self._refused = False

    def __repr__(self) -> str:
        return f"FixedTokens({self._token!r})"

    async def token(self) -> AccessToken:
        """The token. Raises `CredentialMissing`."""
        if self._refused or not self._token.good(self._clock()):
            fate = "was refused by the host" if self._refused else "has expired"
            raise CredentialMissing(
                f"the access token of {self._token.address} {fate}. The address's next request brings a new one."
            )
        return self._token

    async def renew(self, stale: AccessToken) -> AccessToken:
        """There is no other: raises `CredentialMissing` from now on."""
        self._refused = self._refused or stale.value == self._token.value
        return await self.token()


def token_of(data: bytes, *, asked_at_s: float) -> AccessToken:
    """The token in an exchange's answer: identity from the JWT's ``sub``, expiry from its ``exp``.

    The signature is not checked: the answer came over TLS from the configured URL, and there is no key to check it
    with. Raises `HostMisbehaved`.
    """
    answer = _read_exchange(data)
    claims = _read_claims(_payload(answer.access_token))
    if not is_address(claims.sub):
        raise HostMisbehaved("the host's access token names no fmsg address. Is this the Web API's URL?")
    return AccessToken(
        value=answer.access_token,
        address=claims.sub.lower(),
        expires_at_s=_expiry_s(claims, answer.expires_in, asked_at_s),
    )


def _payload(jwt: str) -> bytes:
    parts = jwt.split(".")
    if len(parts) == 3:
        try:
            return base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        except (binascii.Error, ValueError):
            pass
    raise HostMisbehaved("the host's access token is no JWT. Is this the Web API's URL?")


def _expiry_s(claims: _Claims, expires_in_s: float | None, asked_at_s: float) -> float:
    """``exp``; where the clocks differ too much for it to mean anything here, the token's length of life from now."""
    lives = [life for life in (expires_in_s, None if claims.iat is None else claims.exp - claims.iat) if life]
    from_now_s = asked_at_s + min(lives) if lives else claims.exp
    expires_at_s = claims.exp if abs(claims.exp - from_now_s) <= MAX_SKEW_S else from_now_s
    return min(max(expires_at_s, asked_at_s), asked_at_s + MAX_LIFE_S)
