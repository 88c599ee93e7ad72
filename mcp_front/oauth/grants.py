"""What a person granted: codes, access and refresh tokens, and the marks in the store that make them good only once.

Tokens carry what they stand for. The store holds, each with a TTL: what an authorization code stands for, sealed under
the code; that a refresh token was used; that a family of tokens was revoked. A family is everything that goes back to
one consent: a refresh token or code that is used twice ends it (RFC 9700, 2.2.2 and 4.14).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from ledger.port import Documents, LedgerError
from ledger.seal import SealBroken, SealKeys
from ledger.values import CallerKey
from mcp_front.oauth.sealed import (
    ACCESS_PREFIX,
    Access,
    AuthorizationCode,
    AuthorizationRequest,
    Refresh,
    Sealer,
    digest,
)

CODE_S = 60.0
"""Life of an authorization code: a redirect and one request (RFC 6749 allows ten minutes, and recommends less)."""
CODE_MARK_S = 600.0
"""How long a used code is remembered, so that one used twice ends what it gave."""
RECHECK_S = 60.0
"""How long a family found good is believed: the minute that holds for API keys as well."""
MAX_CHECKED = 50_000
"""Families whose last check is remembered: one for each client connection of a front."""
_USED = b"used:"


class GrantRefused(Exception):
    """A code or refresh token that is no good. The text is for the client's developer."""


class GrantsAway(Exception):
    """The store cannot be asked, and without it a code or refresh token could be used twice. Try again."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """An access token with its refresh token. ``expires_in_s`` is the access token's life."""

    access_token: str
    refresh_token: str
    expires_in_s: int
    scopes: tuple[str, ...]


class Grants:
    """The grants of one deployment. ``clock`` gives POSIX seconds."""

    def __init__(
        self,
        sealer: Sealer,
        documents: Documents,
        *,
        clock: Callable[[], float],
        access_s: float,
        refresh_s: float,
    ) -> None:
        self._sealer = sealer
        self._documents = documents
        self._clock = clock
        self._access_s = access_s
        self._refresh_s = refresh_s
        self._checked: OrderedDict[str, float] = OrderedDict()

    async def code(self, asked: AuthorizationRequest, api_key: str, scopes: tuple[str, ...]) -> str:
        """An authorization code for what a person consented to. Raises `GrantsAway`."""
        handle = secrets.token_urlsafe(32)
        code = AuthorizationCode(
            api_key=api_key,
            client=digest(asked.client_id),
            redirect_uri=asked.redirect_uri,
            redirect_uri_given=asked.redirect_uri_given,
            code_challenge=asked.code_challenge,
            scopes=scopes,
            family=secrets.token_hex(16),
            expires_at_s=self._clock() + CODE_S,
        )
        sealed = _code_keys(handle).seal(msgspec.msgpack.encode(code), bound_to=b"code")
        try:
            await self._documents.store(_place(handle), "oauth-code", "code", sealed, expected=0, ttl_s=CODE_S)
        except LedgerError as error:
            raise GrantsAway from error
        return handle

    async def redeem(
        self, handle: str, client_id: str, *, redirect_uri: str | None, code_verifier: str, resource_ok: bool
    ) -> Issued:
        """The tokens of a code, once (RFC 6749, 4.1.3; RFC 7636). Raises `GrantRefused`, `GrantsAway`."""
        place = _place(handle)
        try:
            held = await self._documents.load(place, "oauth-code", "code")
            if held.data.startswith(_USED):
                await self.end(held.data.removeprefix(_USED).decode("ascii", "replace"))
                raise GrantRefused("The code was used before. Everything it gave is revoked.")
            code = _opened(handle, held.data)
            if code is None or code.expires_at_s <= self._clock():
                raise GrantRefused("There is no such code, or it has expired. Ask for authorization once more.")
            if code.client != digest(client_id):
                raise GrantRefused("The code was given to another client.")
            used = await self._documents.store(
                place, "oauth-code", "code", _USED + code.family.encode(), expected=held.version, ttl_s=CODE_MARK_S
            )
            if not used:
                await self.end(code.family)
                raise GrantRefused("The code was used before. Everything it gave is revoked.")
        except LedgerError as error:
            raise GrantsAway from error
        if (code.redirect_uri_given or redirect_uri is not None) and redirect_uri != code.redirect_uri:
            raise GrantRefused("redirect_uri is another than in the authorization request.")
        if not secrets.compare_digest(_challenge(code_verifier), code.code_challenge):
            raise GrantRefused("code_verifier does not fit the code_challenge.")
        if not resource_ok:
            raise GrantRefused("The code is for another resource.")
        return self._issued(code.api_key, code.client, code.scopes, code.family)

    async def refresh(self, token: str, client_id: str, scopes: tuple[str, ...] | None) -> Issued:
        """New tokens for a refresh token, once (OAuth 2.1, 4.3.1). Raises `GrantRefused`, `GrantsAway`."""
        held = self._sealer.open(token, Refresh)
        if held is None or held.client != digest(client_id):
            raise GrantRefused("There is no such refresh token for this client. Ask for authorization once more.")
        left_s = held.expires_at_s - self._clock()
        if left_s <= 0:
            raise GrantRefused("The refresh token has expired. Ask for authorization once more.")
        try:
            if await self._ended(held.family):
                raise GrantRefused("The authorization was revoked. Ask for it once more.")
            first = await self._documents.store(
                _place(held.family), "oauth-refresh", held.serial, b"1", expected=0, ttl_s=left_s + 1.0
            )
            if not first:
                await self.end(held.family)
                raise GrantRefused("The refresh token was used before. Everything that goes back to it is revoked.")
        except LedgerError as error:
            raise GrantsAway from error
        granted = held.scopes if scopes is None else tuple(scope for scope in held.scopes if scope in scopes)
        issued = self._issued(held.api_key, held.client, granted, held.family)
        if granted == held.scopes:
            return issued
        # A narrower access token does not narrow what may be asked for next time (RFC 6749, 6).
        whole = self._refresh(held.api_key, held.client, held.scopes, held.family)
        return msgspec.structs.replace(issued, refresh_token=whole)

    async def access(self, token: str) -> Access | None:
        """What an access token stands for; None where it is none, expired or revoked.

        While the store is away a token is believed: the host still decides about the API key in it.
        """
        held = self._sealer.open(token.removeprefix(ACCESS_PREFIX), Access)
        if held is None or held.expires_at_s <= self._clock():
            return None
        checked_s = self._checked.get(held.family)
        if checked_s is None or self._clock() - checked_s > RECHECK_S:
            try:
                if await self._ended(held.family):
                    self._checked.pop(held.family, None)
                    return None
            except LedgerError:
                return held
            self._checked[held.family] = self._clock()
            self._checked.move_to_end(held.family)
            while len(self._checked) > MAX_CHECKED:
                self._checked.popitem(last=False)
        return held

    async def revoke(self, token: str, client_id: str) -> None:
        """End the family of an access or refresh token of this client (RFC 7009); nothing for any other text.

        Raises `GrantsAway`.
        """
        held: Access | Refresh | None = self._sealer.open(token, Refresh)
        if held is None:
            held = self._sealer.open(token.removeprefix(ACCESS_PREFIX), Access)
        if held is not None and held.client == digest(client_id):
            try:
                await self.end(held.family)
            except LedgerError as error:
                raise GrantsAway from error

    async def end(self, family: str) -> None:
        """Revoke everything that goes back to one consent. Raises `LedgerError`."""
        self._checked.pop(family, None)
        # As long as the longest-lived token of the family may live.
        await self._documents.store(
            _place(family), "oauth-ended", "ended", b"1", expected=0, ttl_s=self._refresh_s + 60
        )

    async def _ended(self, family: str) -> bool:
        return bool((await self._documents.load(_place(family), "oauth-ended", "ended")).version)

    def _issued(self, api_key: str, client: bytes, scopes: tuple[str, ...], family: str) -> Issued:
        access = Access(
            api_key=api_key,
            client=client,
            scopes=scopes,
            family=family,
            expires_at_s=self._clock() + self._access_s,
        )
        return Issued(
            access_token=ACCESS_PREFIX + self._sealer.seal(access),
            refresh_token=self._refresh(api_key, client, scopes, family),
            expires_in_s=int(self._access_s),
            scopes=scopes,
        )

    def _refresh(self, api_key: str, client: bytes, scopes: tuple[str, ...], family: str) -> str:
        return self._sealer.seal(
            Refresh(
                api_key=api_key,
                client=client,
                scopes=scopes,
                family=family,
                serial=secrets.token_hex(16),
                expires_at_s=self._clock() + self._refresh_s,
            )
        )


def _place(secret: str) -> CallerKey:
    """Where the store keeps what belongs to a code or a family: a hash, as all keys there."""
    return CallerKey(hashlib.sha256(f"oauth\0{secret}".encode()).hexdigest()[:32])


def _code_keys(handle: str) -> SealKeys:
    return SealKeys([hashlib.sha256(f"oauth code\0{handle}".encode()).digest()]).derived("oauth code")


def _opened(handle: str, sealed: bytes) -> AuthorizationCode | None:
    try:
        return msgspec.msgpack.decode(_code_keys(handle).open(sealed, bound_to=b"code"), type=AuthorizationCode)
    except (SealBroken, msgspec.DecodeError):
        return None


def _challenge(verifier: str) -> str:
    hashed = hashlib.sha256(verifier.encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
