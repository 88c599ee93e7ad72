"""From an API key to the caller it stands for, without keeping the key.

The process remembers a keyed hash of the API key (the hash's key is random and dies with the process), the address, and
the access token, sealed under a key derived from the API key: only a request that brings the API key opens it. Requests
with the same key share one exchange. A key that the host refused is refused here for some seconds, so that a flood of
guesses does not reach the host. A host that is away has refused nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeVar

import msgspec

from fmsg.errors import FmsgError, HostRefused, Transient, Unauthorized
from fmsg.http import HostHttp
from fmsg.tokens import AccessToken, exchange
from fmsg.webapi import WebApi
from ledger.seal import SealKeys
from ledger.values import CallerKey, caller_key
from mcp_front.limits import PerCallerLimiter
from mcp_front.settings import FrontSettings
from telemetry import metrics

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEW_BELOW = 0.1
"""A token is renewed in the last tenth of its life, by the first request that comes then. Callers' requests are spread
over time, and so are their renewals."""
LEAST_S = 15.0
"""A token with less life left is not handed out: it goes to a feed that has to connect with it."""
RETRY_FOR_S = 1.5
"""How long an exchange is repeated while the host is in trouble. The client is told to come back after that."""

KeyDigest = bytes


class SharedTokenStore(Protocol):
    """Tokens that fronts leave for each other, for example `ledger.shared_tokens.SharedTokens`."""

    async def share(self, api_key: str, api_url: str, token: AccessToken) -> None:
        """Leave a token."""
        ...

    async def find(self, api_key: str, api_url: str) -> AccessToken | None:
        """A token somebody left."""
        ...

    async def drop(self, api_key: str, api_url: str) -> None:
        """Take a token away."""
        ...


class _Known:
    """A key that the host accepted, without the key."""

    __slots__ = ("accepted_at_s", "address", "believed_until_s", "expires_at_s", "key", "renew_at_s", "sealed")

    def __init__(self, address: str, key: CallerKey) -> None:
        self.address = address
        self.key = key
        self.sealed = b""
        self.expires_at_s = 0.0
        self.renew_at_s = 0.0
        self.accepted_at_s = 0.0
        self.believed_until_s = 0.0


class _Refusal(msgspec.Struct, frozen=True):
    error: HostRefused
    until_s: float


class KeyCallers:
    """The callers of one process. ``clock`` gives POSIX seconds."""

    def __init__(
        self,
        http: HostHttp,
        settings: FrontSettings,
        *,
        transport: Literal["stdio", "http"],
        clock: Callable[[], float],
        rng: random.Random,
        shared_tokens: SharedTokenStore | None = None,
    ) -> None:
        self.http = http
        """The connection pool to the host."""
        self.transport: Literal["stdio", "http"] = transport
        """The deployment profile."""
        self.clock = clock
        """POSIX seconds."""
        self._settings = settings
        self._rng = rng
        self._shared_tokens = shared_tokens
        self._secret = os.urandom(32)
        self._known: OrderedDict[KeyDigest, _Known] = OrderedDict()
        self._refused: OrderedDict[KeyDigest, _Refusal] = OrderedDict()
        self._exchanges: dict[KeyDigest, asyncio.Task[AccessToken]] = {}
        self.host_requests = PerCallerLimiter(settings.requests_per_caller)
        """How many requests to the host each caller may have under way."""

    def __repr__(self) -> str:
        return f"KeyCallers({self.http!r}, known={len(self._known)})"

    def __len__(self) -> int:
        return len(self._known)

    def known(self, api_key: str) -> KeyCaller | None:
        """The caller of a key that was accepted not long ago. None where the host has to be asked."""
        digest = self._digest(api_key)
        known = self._known.get(digest)
        if known is None or known.believed_until_s <= self.clock():
            return None
        self._known.move_to_end(digest)
        return KeyCaller(self, api_key, digest, known.address, known.key)

    def refusal(self, api_key: str) -> HostRefused | None:
        """The host's refusal, where it refused the key a moment ago."""
        digest = self._digest(api_key)
        refusal = self._refused.get(digest)
        if refusal is None:
            return None
        if refusal.until_s <= self.clock():
            del self._refused[digest]
            return None
        return refusal.error

    async def identify(self, api_key: str) -> KeyCaller:
        """The caller of a key. The host is asked where the key is not known, or was not confirmed for long.

        Raises `HostRefused` where the host refuses the key, or another `FmsgError` where it cannot be asked.
        """
        caller = self.known(api_key)
        if caller is not None:
            return caller
        refused = self.refusal(api_key)
        if refused is not None:
            raise refused
        digest = self._digest(api_key)
        known = self._known.get(digest)
        try:
            token = await self._exchanged(api_key, digest, may_be_shared=known is None, insists=known is None)
        except FmsgError as error:
            if known is None or (isinstance(error, HostRefused) and _about_the_key(error)):
                raise
            # The host cannot be asked now, and it accepted the key before.
            return KeyCaller(self, api_key, digest, known.address, known.key)
        return KeyCaller(self, api_key, digest, token.address, caller_key(self.http.api_url, token.address))

    async def token(self, api_key: str, digest: KeyDigest) -> AccessToken:
        """The current token of a key, renewed where it is time. Raises what an exchange raises."""
        now_s = self.clock()
        known = self._known.get(digest)
        if known is None or known.expires_at_s - LEAST_S <= now_s:
            return await self._exchanged(api_key, digest)
        current = self._open(api_key, digest, known)
        if now_s < known.renew_at_s:
            return current
        try:
            return await self._exchanged(api_key, digest, insists=False)
        except FmsgError as error:
            if isinstance(error, HostRefused) and _about_the_key(error):
                raise
            # The host is in trouble and the old token still good: ask again a little later, not with each request.
            known.renew_at_s = now_s + LEAST_S
            return current

    async def renewed(self, api_key: str, digest: KeyDigest, stale: AccessToken) -> AccessToken:
        """Another token than ``stale``, which the host refused."""
        known = self._known.get(digest)
        if known is not None:
            current = self._open(api_key, digest, known)
            if current.value != stale.value:
                return current
        if self._shared_tokens is not None:
            await self._shared_tokens.drop(api_key, self.http.api_url)
        return await self._exchanged(api_key, digest)

    async def confirm(self, api_key: str, digest: KeyDigest, *, within_s: float, ahead_s: float) -> None:
        """Have the host accept the key, unless it did in the last ``within_s`` seconds."""
        known = self._known.get(digest)
        age_s = within_s if known is None else self.clock() - known.accepted_at_s
        if known is None or age_s > within_s:
            await self._exchanged(api_key, digest)
        elif age_s > within_s - ahead_s:
            self._exchange_task(api_key, digest, insists=False)

    def note_accepted(self, digest: KeyDigest) -> None:
        """The host has just served a request with the key's token, so it still accepts the key (FMSG-003)."""
        known = self._known.get(digest)
        if known is not None:
            known.accepted_at_s = self.clock()
            known.believed_until_s = known.accepted_at_s + self._settings.recheck_s

    async def aclose(self) -> None:
        """End the exchanges that are under way."""
        running = list(self._exchanges.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _exchanged(
        self, api_key: str, digest: KeyDigest, *, may_be_shared: bool = False, insists: bool = True
    ) -> AccessToken:
        """A token from the one exchange there is for a key. It goes on when the request that began it is cancelled.

        ``insists``: there is nothing to fall back on, so a host in trouble is asked again for `RETRY_FOR_S`.
        """
        return await asyncio.shield(self._exchange_task(api_key, digest, may_be_shared=may_be_shared, insists=insists))

    def _exchange_task(
        self, api_key: str, digest: KeyDigest, *, may_be_shared: bool = False, insists: bool = True
    ) -> asyncio.Task[AccessToken]:
        task = self._exchanges.get(digest)
        if task is None:
            work = self._exchange(api_key, digest, may_be_shared=may_be_shared, insists=insists)
            # Ends by itself within the client's deadlines, or with `aclose`.
            task = self._exchanges[digest] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda done: self._finished(digest, done))
        return task

    def _finished(self, digest: KeyDigest, task: asyncio.Task[AccessToken]) -> None:
        self._exchanges.pop(digest, None)
        if not task.cancelled():
            task.exception()  # Those who waited have it. Where nobody waits, it is nobody's.

    async def _exchange(self, api_key: str, digest: KeyDigest, *, may_be_shared: bool, insists: bool) -> AccessToken:
        if may_be_shared and self._shared_tokens is not None:
            shared = await self._shared_tokens.find(api_key, self.http.api_url)
            if shared is not None:
                # Accepted by the host at some time before: `confirm` asks again where that matters.
                self._remember(api_key, digest, shared, accepted_at_s=0.0)
                metrics.EXCHANGES.labels("shared").inc()
                return shared
        retry_for_s = RETRY_FOR_S if insists else 0.0
        try:
            token = await exchange(self.http, api_key, clock=self.clock, rng=self._rng, retry_for_s=retry_for_s)
        except HostRefused as refused:
            metrics.EXCHANGES.labels("refused" if _about_the_key(refused) else "failed").inc()
            if _about_the_key(refused):
                self._refuse(digest, refused)
            raise
        except FmsgError:
            metrics.EXCHANGES.labels("failed").inc()
            raise
        metrics.EXCHANGES.labels("granted").inc()
        self._remember(api_key, digest, token, accepted_at_s=self.clock())
        if self._shared_tokens is not None:
            await self._shared_tokens.share(api_key, self.http.api_url, token)
        return token

    def _remember(self, api_key: str, digest: KeyDigest, token: AccessToken, *, accepted_at_s: float) -> None:
        known = self._known.get(digest)
        key = caller_key(self.http.api_url, token.address)
        if known is None or known.key != key:
            known = self._known[digest] = _Known(token.address, key)
        self._known.move_to_end(digest)
        self._refused.pop(digest, None)
        known.sealed = self._cipher(api_key).seal(msgspec.msgpack.encode(token), bound_to=digest)
        known.expires_at_s = token.expires_at_s
        known.renew_at_s = token.expires_at_s - (token.expires_at_s - self.clock()) * RENEW_BELOW
        known.accepted_at_s = max(known.accepted_at_s, accepted_at_s)
        known.believed_until_s = self.clock() + self._settings.recheck_s
        while len(self._known) > self._settings.known_callers:
            self._known.popitem(last=False)

    def _refuse(self, digest: KeyDigest, refused: HostRefused) -> None:
        self._known.pop(digest, None)
        self._refused[digest] = _Refusal(refused.with_traceback(None), self.clock() + self._settings.refused_s)
        self._refused.move_to_end(digest)
        while len(self._refused) > self._settings.refused_keys:
            self._refused.popitem(last=False)

    def _open(self, api_key: str, digest: KeyDigest, known: _Known) -> AccessToken:
        plain = self._cipher(api_key).open(known.sealed, bound_to=digest)
        return msgspec.msgpack.decode(plain, type=AccessToken)

    def _cipher(self, api_key: str) -> SealKeys:
        return SealKeys([hmac.digest(self._secret, b"seal\0" + api_key.encode(), "sha256")])

    def _digest(self, api_key: str) -> KeyDigest:
        return hmac.digest(self._secret, b"name\0" + api_key.encode(), "sha256")


def _about_the_key(refused: HostRefused) -> bool:
    """Whether a refusal says that this key is no use: 4xx, but not 429 (FMSG-003, Token exchange)."""
    return not isinstance(refused, Transient)


class KeyCaller:
    """`mcp_front.caller.Caller` of one request. It has the API key only as long as the request lasts.

    It is also the token source (`fmsg.tokens.TokenSource`) of its own Web API client.
    """

    __slots__ = ("_address", "_api_key", "_callers", "_digest", "_key")

    def __init__(self, callers: KeyCallers, api_key: str, digest: KeyDigest, address: str, key: CallerKey) -> None:
        self._callers = callers
        self._api_key = api_key
        self._digest = digest
        self._address = address
        self._key = key

    def __repr__(self) -> str:
        return f"KeyCaller({self._key!r})"

    @property
    def address(self) -> str:
        return self._address

    @property
    def key(self) -> CallerKey:
        return self._key

    @property
    def api(self) -> WebApi:
        # Not kept: it refers to this caller, and only a full garbage collection would free the two.
        return _CallersApi(self._callers, self, self._digest)

    @property
    def api_url(self) -> str:
        return self._callers.http.api_url

    @property
    def transport(self) -> Literal["stdio", "http"]:
        return self._callers.transport

    async def token(self) -> AccessToken:
        return self._mine(await self._callers.token(self._api_key, self._digest))

    async def renew(self, stale: AccessToken) -> AccessToken:
        return self._mine(await self._callers.renewed(self._api_key, self._digest, stale))

    async def confirm(self, *, within_s: float = 60.0, ahead_s: float = 0.0) -> None:
        await self._callers.confirm(self._api_key, self._digest, within_s=within_s, ahead_s=ahead_s)

    def _mine(self, token: AccessToken) -> AccessToken:
        """A request acts as one address for its whole life, whatever the host makes of the key meanwhile."""
        if caller_key(self.api_url, token.address) != self._key:
            raise Unauthorized(401, "the API key stands for another address now; the next request acts as that one")
        return token


class _CallersApi(WebApi):
    """The Web API client of one caller among many. It waits for a place, and notes that the host took the token."""

    def __init__(self, callers: KeyCallers, caller: KeyCaller, digest: KeyDigest) -> None:
        super().__init__(callers.http, caller)
        self._callers = callers
        self._key = caller.key
        self._digest = digest

    async def _with_token(self, request: Callable[[str], Awaitable[T]]) -> T:
        await self._callers.host_requests.acquire(self._key)
        try:
            answer = await super()._with_token(request)
        finally:
            self._callers.host_requests.release(self._key)
        self._callers.note_accepted(self._digest)
        return answer
