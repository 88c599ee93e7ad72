"""Who may act on a host: accounts, API keys, and the access tokens (JWT, HS256) they are exchanged for (FMSG-003)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable

import msgspec

from sandbox.records import Account, ApiKey, lowered
from sandbox.store import Journal
from sandbox.wire import RouteRefused

KEY_PREFIX = "fmsgk_"
"""Every API key begins with it (FMSG-003)."""

_AUDIENCE = "fmsg-web-api"
"""The ``aud`` claim; clients do not look at it."""

_EVERYBODY = "*"
"""Stands for every address where tokens are expired."""

_MAX_VERIFIED = 50_000
"""Signatures remembered as good: more than the callers of a load test, and a bound for a host that runs for days."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of an access token. ``iat`` and ``exp`` are POSIX seconds."""

    sub: str
    owner: str
    api_key_id: str
    iss: str
    aud: str
    iat: float
    exp: float


class Accounts:
    """Accounts by address in lower case, keys by id."""

    def __init__(self, domain: str, *, clock: Callable[[], float], journal: Journal, signing_key: bytes) -> None:
        self.accounts: dict[str, Account] = {}
        """By address in lower case."""
        self.keys: dict[str, ApiKey] = {}
        """By key id."""
        self.identity_service_down = False
        """Answer 503: the service that knows the addresses does not answer."""
        self.database_down = False
        """Answer 500: keys cannot be looked up."""
        self._domain = domain
        self._clock = clock
        self._journal = journal
        self._signing_key = signing_key
        self._last_iat_s = 0.0
        self._expired_until_s: dict[str, float] = {}
        self._verified: dict[str, Claims] = {}

    def create(self, address: str, *, owner: str | None = None) -> Account:
        """The account of an address, made where it does not exist."""
        account = self.accounts.get(lowered(address))
        if account is None:
            account = Account(addr=address, owner=owner or address)
            self.accounts[lowered(address)] = account
            self._journal.save("account", account.addr, account)
        return account

    def save(self, account: Account) -> None:
        """Keep what changed in an account."""
        self._journal.save("account", account.addr, account)

    def create_key(
        self, address: str, *, expires_at_s: float | None = None, cidrs: tuple[str, ...] | None = None
    ) -> str:
        """A new API key of the form ``fmsgk_<key id>_<secret>``; the secret holds ``+``, ``/`` and ``=``."""
        account = self.create(address)
        for cidr in cidrs or ():
            ipaddress.ip_network(cidr)
        key_id = base64.b64encode(secrets.token_bytes(12)).decode()
        secret = ""
        while not ("+" in secret and "/" in secret):
            secret = base64.b64encode(secrets.token_bytes(32)).decode()
        key = ApiKey(
            key_id=key_id,
            addr=account.addr,
            secret_sha256=hashlib.sha256(secret.encode()).digest(),
            expires_at_s=expires_at_s,
            cidrs=cidrs,
        )
        self.keys[key_id] = key
        self._journal.save("key", key.key_id, key)
        return f"{KEY_PREFIX}{key_id}_{secret}"

    def revoke(self, key_or_id: str) -> None:
        """Refuse the key, and every token that came from it, from now on."""
        key = self.keys[key_id_of(key_or_id)]
        key.revoked = True
        self._journal.save("key", key.key_id, key)

    def rotate(self, key_or_id: str) -> str:
        """Replace a key: a new one for the same address, the old one revoked."""
        old = self.keys[key_id_of(key_or_id)]
        self.revoke(old.key_id)
        return self.create_key(old.addr, expires_at_s=old.expires_at_s, cidrs=old.cidrs)

    def expire_tokens(self, address: str | None = None) -> None:
        """Take every token issued so far, to one address or to all, as expired."""
        self._expired_until_s[_EVERYBODY if address is None else lowered(address)] = self._last_iat_s

    def _is_expired(self, claims: Claims, leeway_s: float) -> bool:
        if claims.exp + leeway_s <= self._clock():
            return True
        names = (lowered(claims.sub), _EVERYBODY)
        return any(claims.iat <= self._expired_until_s.get(name, 0.0) for name in names)

    def exchange(self, authorization: str | None, *, source_ip: str | None, life_s: float) -> tuple[str, Claims]:
        """``POST /fmsg/token``: a token and its claims. Raises `RouteRefused` in the documented words."""
        scheme, _, credential = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not credential:
            raise RouteRefused(401, "missing or malformed Authorization header")
        if self.database_down:
            raise RouteRefused(500, "failed to validate api key")
        key = self._key(credential.strip())
        if key.expires_at_s is not None and key.expires_at_s <= self._clock():
            raise RouteRefused(401, "api key expired")
        _check_source(key, source_ip)
        account = self._check_account(key.addr)
        # Later than every token before, so that `expire_tokens` knows old from new whatever the clock does.
        now_s = self._last_iat_s = max(round(self._clock(), 6), round(self._last_iat_s + 1e-6, 6))
        claims = Claims(
            sub=account.addr,
            owner=account.owner,
            api_key_id=key.key_id,
            iss=f"https://{self._domain}",
            aud=_AUDIENCE,
            iat=now_s,
            exp=round(now_s + life_s, 6),
        )
        return self._sign(claims), claims

    def authorize(self, authorization: str | None, *, source_ip: str | None, leeway_s: float) -> Claims:
        """The claims behind a protected request, its key checked again. Only a capital ``Bearer`` is taken."""
        if authorization is None or not authorization.startswith("Bearer ") or len(authorization) == 7:
            raise RouteRefused(401, "missing or malformed Authorization header")
        claims = self._verify(authorization[7:])
        if self.database_down:
            raise RouteRefused(500, "failed to validate api key")
        if self._is_expired(claims, leeway_s):
            raise RouteRefused(401, "token expired")
        key = self.keys.get(claims.api_key_id)
        if key is None or key.revoked:
            raise RouteRefused(401, "api key revoked")
        if key.expires_at_s is not None and key.expires_at_s <= self._clock():
            raise RouteRefused(401, "api key expired")
        _check_source(key, source_ip)
        self._check_account(key.addr)
        return claims

    def _key(self, credential: str) -> ApiKey:
        key_id, _, secret = credential.removeprefix(KEY_PREFIX).partition("_")
        key = self.keys.get(key_id) if credential.startswith(KEY_PREFIX) else None
        given = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        if key is None or key.revoked or not hmac.compare_digest(given, key.secret_sha256):
            raise RouteRefused(401, "invalid api key")
        return key

    def _check_account(self, address: str) -> Account:
        if self.identity_service_down:
            raise RouteRefused(503, "identity service unavailable")
        account = self.accounts.get(lowered(address))
        if account is None or not account.known:
            raise RouteRefused(400, f"User {address} not found")
        if not account.may_send:
            raise RouteRefused(403, f"User {address} not authorised to send new messages")
        return account

    def _sign(self, claims: Claims) -> str:
        head = _b64(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        body = _b64(msgspec.json.encode(claims))
        signature = hmac.digest(self._signing_key, f"{head}.{body}".encode(), "sha256")
        return f"{head}.{body}.{_b64(signature)}"

    def _verify(self, token: str) -> Claims:
        known = self._verified.get(token)
        if known is not None:
            return known
        head, _, rest = token.partition(".")
        body, _, signature = rest.partition(".")
        expected = _b64(hmac.digest(self._signing_key, f"{head}.{body}".encode("utf-8", "surrogateescape"), "sha256"))
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape")):
            raise RouteRefused(401, "invalid token")
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Claims)
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified[token] = claims
        return claims


def key_id_of(key_or_id: str) -> str:
    """The id in an API key; an id is returned as it is."""
    return key_or_id.removeprefix(KEY_PREFIX).partition("_")[0]


def _check_source(key: ApiKey, source_ip: str | None) -> None:
    if key.cidrs is None:
        return
    try:
        source = ipaddress.ip_address(source_ip or "")
    except ValueError:
        raise RouteRefused(401, "invalid source IP") from None
    if not any(source in ipaddress.ip_network(cidr) for cidr in key.cidrs):
        raise RouteRefused(403, "source IP not allowed")


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
