"""Access tokens shared with the other fronts, so that a caller who meets another replica costs no exchange.

Sealed under a key that is derived from the API key itself (HKDF, RFC 5869), and named by another one: only a request
that carries the API key can find and open its token, and nothing in Redis tells whose it is. API keys are long random
strings, so neither can be guessed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fmsg.tokens import AccessToken
from ledger.deadlines import BEST_EFFORT_S, answered_within
from ledger.port import LedgerError
from ledger.redis.scripts import Key, Scripts
from ledger.redis.topology import Topology
from ledger.seal import KEY_BYTES, SealBroken, SealKeys
from ledger.unreadable import tell_unreadable

log = logging.getLogger(__name__)

NAME_BYTES = 16
"""Of the name of a shared token: no two keys meet by chance."""

NOT_WORTH_S = 30.0
"""A token with less life left is not shared: a front that found it would have to exchange at once."""


class _Shared(msgspec.Struct, frozen=True, array_like=True):
    value: str
    address: str
    expires_at_s: float


class SharedTokens:
    """Tokens in Redis for who has the API key. Never a reason to fail: without Redis each front exchanges by itself."""

    def __init__(self, scripts: Scripts, topology: Topology, *, clock: Callable[[], float] = time.time) -> None:
        self._scripts = scripts
        self._topology = topology
        self._clock = clock

    async def share(self, api_key: str, api_url: str, token: AccessToken) -> None:
        """Leave a token until it expires."""
        life_ms = int((token.expires_at_s - self._clock()) * 1000)
        if life_ms < NOT_WORTH_S * 1000:
            return
        name, keys = _derive(api_key, api_url)
        plain = msgspec.msgpack.encode(_Shared(token.value, token.address, token.expires_at_s))
        sealed = keys.seal(plain, bound_to=name.encode())
        try:
            with answered_within(BEST_EFFORT_S):
                await self._scripts.command("SET", self._key(name), sealed, "PX", life_ms, idempotent=True)
        except LedgerError as error:
            log.info("a token could not be shared", extra={"action": "share_failed", "error": str(error)})

    async def find(self, api_key: str, api_url: str) -> AccessToken | None:
        """The token that another front left for the same key and host."""
        name, keys = _derive(api_key, api_url)
        try:
            with answered_within(BEST_EFFORT_S):
                sealed = await self._scripts.command("GET", self._key(name), idempotent=True, holds="string")
        except LedgerError as error:
            log.info("a shared token could not be read", extra={"action": "shared_token_failed", "error": str(error)})
            return None
        if sealed is None:
            return None
        try:
            shared = msgspec.msgpack.decode(keys.open(sealed, bound_to=name.encode()), type=_Shared)
        except (SealBroken, msgspec.DecodeError):
            tell_unreadable("shared_token")
            return None
        if shared.expires_at_s - NOT_WORTH_S < self._clock():
            return None
        return AccessToken(value=shared.value, address=shared.address, expires_at_s=shared.expires_at_s)

    async def drop(self, api_key: str, api_url: str) -> None:
        """Take a token away, for instance when the host refused it."""
        name, _ = _derive(api_key, api_url)
        try:
            with answered_within(BEST_EFFORT_S):
                await self._scripts.command("DEL", self._key(name), idempotent=True)
        except LedgerError as error:
            log.info(
                "a shared token could not be dropped", extra={"action": "shared_token_failed", "error": str(error)}
            )

    def _key(self, name: str) -> Key:
        return self._topology.shared_key(f"shared-{name}", "token")


def _derive(api_key: str, api_url: str) -> tuple[str, SealKeys]:
    """The name of an API key's token and the keys that seal it; both differ from host to host."""
    derived = HKDF(
        algorithm=SHA256(),
        length=NAME_BYTES + KEY_BYTES,
        salt=api_url.rstrip("/").encode(),
        info=b"fmsg-mcpd shared token",
    ).derive(api_key.encode())
    return derived[:NAME_BYTES].hex(), SealKeys([derived[NAME_BYTES:]])
