"""Access tokens: got with an API key at ``POST /fmsg/token`` (FMSG-003, Authentication), renewed before they expire."""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from fmsg.address import fold, is_address
from fmsg.answers import Answer
from fmsg.decode import JsonReader
from fmsg.errors import (
    CredentialMissing,
    FmsgError,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    Throttled,
)
from fmsg.http import HostHttp

LEEWAY_S = 10.0
"""A token is taken as expired this long before it is: it has to last until the request arrives (FMSG-003 as met)."""

RENEW_WITHIN = (0.05, 0.15)
"""A token is renewed in the last 5 to 15 % of its life, at a moment drawn per token: thousands of callers that came
with one burst must not come back as one."""

RETRY_FOR_S = 20.0
"""How long an exchange is tried again while the host is in trouble: a restart or a failover of its database."""

FIRST_DELAY_S, MAX_DELAY_S = 0.25, 4.0
"""Full-jitter back-off between the tries of one exchange."""

EXCHANGE_WITHIN_S = 10.0
"""One try: an exchange is a lookup and a signature, and somebody waits for it before anything else can begin."""

NO_SUCH_ROUTE = frozenset({404, 405})
"""What other web servers say to an exchange. A Web API has 400, 401 and 403 for keys (FMSG-003, Token exchange)."""

PUT_OFF_S = 30.0
"""After a failed renewal of a token that is still good, the next try comes this much later."""

MAX_SKEW_S = 60.0
"""Up to this difference between the host's clock and ours ``exp`` is taken as it is; beyond, life counts from now."""


MAX_LIFE_S = 366 * 86400.0
"""No token is taken to last longer than a year, whatever number a host gives."""


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


class KeyTokens:
    """Tokens of one API key. One exchange serves everybody who asks meanwhile, and its failure is theirs too."""

    def __init__(
        self,
        http: HostHttp,
        api_key: str,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        initial: AccessToken | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        self._http = http
        self._key = api_key.strip()
        self._clock = clock
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._retry_for_s = retry_for_s
        self._lock = asyncio.Lock()
        self._current = initial
        self._renew_at_s = 0.0 if initial is None else self._moment_to_renew(initial)
        self._refused: str | None = None
        self._failure: FmsgError | None = None

    def __repr__(self) -> str:
        return f"KeyTokens({self._http!r}, address={self._current.address if self._current else None!r})"

    async def token(self) -> AccessToken:
        """The current token, exchanged or renewed where it is time. Raises the host's refusal or `HostUnreachable`."""
        current = self._usable()
        if current is not None and (self._clock() < self._renew_at_s or self._lock.locked()):
            return current
        return await self._other_than(current)

    async def renew(self, stale: AccessToken) -> AccessToken:
        """A token other than ``stale``: the new one of somebody faster, or one exchanged now. Raises as `token`."""
        current = self._usable()
        if current is not None and current.value != stale.value:
            return current
        self._refused = stale.value
        return await self._other_than(stale)

    def _usable(self) -> AccessToken | None:
        current = self._current
        if current is None or current.value == self._refused or not current.good(self._clock()):
            return None
        return current

    async def _other_than(self, known: AccessToken | None) -> AccessToken:
        joined = self._lock.locked()
        async with self._lock:
            current = self._usable()
            if current is not None and (known is None or current.value != known.value):
                return current
            if joined and self._failure is not None:
                raise self._failure.with_traceback(None)
            self._failure = None
            try:
                return await self._exchanged(fallback=current)
            except FmsgError as error:
                self._failure = error
                raise

    async def _exchanged(self, *, fallback: AccessToken | None) -> AccessToken:
        """A new token; where the host is in trouble and the old one still good, the old one for a while longer."""
        trouble: FmsgError | None = None
        try:
            fresh = await self._exchange(retry_for_s=0.0 if fallback else self._retry_for_s)
        except (HostFailed, HostUnreachable, Throttled) as error:
            trouble = error
        else:
            self._current, self._renew_at_s = fresh, self._moment_to_renew(fresh)
            return fresh
        if fallback is None:
            raise trouble
        self._renew_at_s = self._clock() + PUT_OFF_S * self._rng.uniform(0.5, 1.5)
        return fallback

    async def _exchange(self, *, retry_for_s: float) -> AccessToken:
        give_up_at_s = self._clock() + retry_for_s
        longest_s = FIRST_DELAY_S
        while True:
            asked_at_s = self._clock()
            try:
                answer = await self._http.call(
                    "token", "POST", "/fmsg/token", bearer=self._key, within_s=EXCHANGE_WITHIN_S
                )
            except (HostFailed, HostUnreachable, Throttled) as error:
                trouble = error
            except HostRefused as error:
                if error.worded or error.status not in NO_SUCH_ROUTE:
                    raise
                raise HostMisbehaved(
                    f"{self._http.api_url} answers POST /fmsg/token with {error.status}, so it is no fmsg Web API. "
                    "Correct FMSG_API_URL; its host name or a path in it may be wrong."
                ) from None
            else:
                return self._granted(answer, asked_at_s)
            asked_for_s = 0.0 if isinstance(trouble, HostUnreachable) else trouble.retry_after_s or 0.0
            delay_s = max(self._rng.uniform(0.0, longest_s), asked_for_s)
            if self._clock() + delay_s > give_up_at_s:
                raise trouble
            await self._sleep(delay_s)
            longest_s = min(2 * longest_s, MAX_DELAY_S)

    def _granted(self, answer: Answer, asked_at_s: float) -> AccessToken:
        fresh = token_of(answer.data, asked_at_s=asked_at_s)
        known = self._current
        if known is not None and fold(known.address) != fold(fresh.address):
            raise HostMisbehaved(
                f"the API key stood for {known.address} and now stands for {fresh.address}. Start again with it."
            )
        return fresh

    def _moment_to_renew(self, token: AccessToken) -> float:
        life_s = max(token.expires_at_s - self._clock(), 0.0)
        return token.expires_at_s - LEEWAY_S - life_s * self._rng.uniform(*RENEW_WITHIN)


class FixedTokens:
    """One given token, for who has no key. Raises `CredentialMissing` once it has expired or was refused."""

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
