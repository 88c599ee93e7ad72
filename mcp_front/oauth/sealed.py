"""What signing in hands out: values that any replica opens, since they carry everything and are sealed.

Each kind has a key of its own, derived from ``FMSG_SEAL_KEY``, so that one kind never passes for another. All are bound
to the resource they were made for (RFC 8707): a token of another server does not open here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TypeVar

import msgspec

from ledger.seal import SealBroken, SealKeys

ACCESS_PREFIX = "fmsgo_"
"""Access tokens begin so, and API keys with ``fmsgk_``: the one Authorization header takes both."""

READ, WRITE = "fmsg:read", "fmsg:write"
SCOPES = (READ, WRITE)
"""What a grant may allow: to list and read, and to act."""


class Registration(msgspec.Struct, frozen=True, array_like=True, tag="client"):
    """A registered client. Sealed it is the client id itself (RFC 7591)."""

    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str
    secret: str | None
    issued_at_s: int


class AuthorizationRequest(msgspec.Struct, frozen=True, array_like=True, tag="asked"):
    """An authorization request that was checked, on its way through the pages (RFC 6749, 4.1.1)."""

    client_id: str
    client_name: str
    redirect_uri: str
    redirect_uri_given: bool
    state: str | None
    scopes: tuple[str, ...]
    code_challenge: str
    expires_at_s: float


class Signed(msgspec.Struct, frozen=True, array_like=True, tag="signed"):
    """A person who proved an address, on the page that asks for consent."""

    api_key: str
    address: str
    asked: bytes
    """Digest of the request this is about."""
    expires_at_s: float


class AuthorizationCode(msgspec.Struct, frozen=True, array_like=True, tag="code"):
    """What an authorization code stands for, as the store holds it under the code."""

    api_key: str
    client: bytes
    redirect_uri: str
    redirect_uri_given: bool
    code_challenge: str
    scopes: tuple[str, ...]
    family: str
    expires_at_s: float


class Access(msgspec.Struct, frozen=True, array_like=True, tag="access"):
    """An access token. ``family`` names the consent it goes back to; ``client`` is the digest of the client's id."""

    api_key: str
    client: bytes
    scopes: tuple[str, ...]
    family: str
    expires_at_s: float

    @property
    def may_write(self) -> bool:
        """Whether more than reading was granted."""
        return WRITE in self.scopes


class Refresh(msgspec.Struct, frozen=True, array_like=True, tag="refresh"):
    """A refresh token, good once. ``serial`` marks it as used."""

    api_key: str
    client: bytes
    scopes: tuple[str, ...]
    family: str
    serial: str
    expires_at_s: float


_LABELS: dict[type[msgspec.Struct], str] = {
    Registration: "client",
    AuthorizationRequest: "asked",
    Signed: "signed",
    Access: "access",
    Refresh: "refresh",
}
"""Kinds that travel, each under a key of its own. An `AuthorizationCode` rests in the store, sealed under the code."""

T = TypeVar("T", Registration, AuthorizationRequest, Signed, Access, Refresh)

MAX_SEALED_CHARS = 16_384
"""Longer than anything sealed here; more is not looked at."""


class Sealer:
    """Seals and opens the values of one resource."""

    def __init__(self, keys: SealKeys, resource: str) -> None:
        self._keys = {kind: keys.derived(f"oauth {label}") for kind, label in _LABELS.items()}
        self._bound_to = resource.encode()
        self._secret = keys.derived("oauth form")

    def seal(self, value: Registration | AuthorizationRequest | Signed | Access | Refresh) -> str:
        """The value as text that is safe in a URL."""
        sealed = self._keys[type(value)].seal(msgspec.msgpack.encode(value), bound_to=self._bound_to)
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, text: str, kind: type[T]) -> T | None:
        """The value; None for whatever is not one of ours, of this kind and for this resource."""
        if len(text) > MAX_SEALED_CHARS:
            return None
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            plain = self._keys[kind].open(sealed, bound_to=self._bound_to)
            return msgspec.msgpack.decode(plain, type=kind)
        except (binascii.Error, ValueError, SealBroken, msgspec.DecodeError):
            return None

    def form_proof(self, visitor: str, asked: str) -> str:
        """Proves that a form was served to this visitor for this request."""
        return base64.urlsafe_b64encode(self._secret.seal(b"", bound_to=_form(visitor, asked))).decode()

    def form_is_proven(self, proof: str, visitor: str, asked: str) -> bool:
        """Whether `form_proof` made the proof for the two."""
        try:
            return self._secret.open(base64.urlsafe_b64decode(proof), bound_to=_form(visitor, asked)) == b""
        except (binascii.Error, ValueError, SealBroken):
            return False


def _form(visitor: str, asked: str) -> bytes:
    """What the proof of a form is bound to."""
    return hashlib.sha256(f"{visitor}\0{asked}".encode()).digest()


def digest(text: str) -> bytes:
    """A short name for a long value, such as a client id inside a token."""
    return hashlib.sha256(text.encode()).digest()[:16]
