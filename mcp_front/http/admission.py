"""What a request has to show before its body is read: the right host, no foreign origin, one good bearer key.

A network address may guess a limited number of keys. The key that a request brings is looked at in one place,
`Authenticator.admit`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from fmsg.errors import FmsgError, HostRefused, Throttled
from fmsg.redact import scrub
from mcp_front.callers import KeyCaller, KeyCallers
from mcp_front.framing import quoted, visible
from mcp_front.settings import Budgets, budget_name

if TYPE_CHECKING:
    from mcp_front.oauth.app import SignIn

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""Host names under which a loopback bind is reached; other names pointing there are a DNS rebinding."""

API_KEY_PREFIX = "fmsgk_"
"""What FMSG-003 API keys begin with. What does not is refused without asking the host."""
WINDOW_S = 60.0
"""What `Budgets.auth_failures` is counted over."""
MAX_SOURCES = 20_000
"""Sources remembered; a flood from more addresses than that is not told apart by address anyway."""
IPV6_PREFIX = 64
"""What one IPv6 subscriber has: a whole /64 counts as one source."""
OUTAGE_RETRY_S = 5.0
"""When to come back while the host cannot be asked about keys; hosts restart in seconds."""

_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9\-._~+/]{1,1024}=*)", re.ASCII)
"""RFC 6750, b64token. Keys are standard base64 after their prefix: ``+``, ``/`` and ``=`` belong to them."""
_API_KEY = re.compile(r"fmsgk_[A-Za-z0-9\-._~+/]{1,500}=*", re.ASCII)
"""An API key as a person pastes it: short enough for an access token that holds it to fit the header."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT_DIGITS = 5
"""No port has more; Python refuses to read a number of thousands of digits, and a header holds as many."""
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")

RawHeaders = list[tuple[bytes, bytes]]
Headers = Sequence[tuple[bytes, bytes]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BindRefused(ValueError):
    """The front may not listen as it is told to."""


class Refused(Exception):
    """An answer that is no JSON-RPC result. ``reason`` names it in the metrics."""

    def __init__(self, status: int, text: str, *, reason: str, headers: Headers = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason
        self.headers = headers


class Challenge(msgspec.Struct, frozen=True):
    """Why there is no key in a request: the RFC 6750 error code (empty where nothing was sent) and a text."""

    error: str
    text: str

    @property
    def header(self) -> bytes:
        """The value of ``WWW-Authenticate``."""
        value = 'Bearer realm="fmsg"'
        if self.error:
            value += f', error="{self.error}", error_description="{_quotable(self.text)}"'
        return value.encode("ascii", "replace")


NO_KEY = Challenge("", "Send your fmsg API key as `Authorization: Bearer fmsgk_...`.")
TWO_KEYS = Challenge("invalid_request", "There is more than one Authorization header. Send one.")
MALFORMED = Challenge("invalid_request", "The Authorization header is not `Bearer` and one key. Send it so.")
NO_TOKEN = Challenge("invalid_token", "That access token is none, has expired or was revoked. Sign in once more.")
NO_API_KEY = Challenge("invalid_token", "That is not an fmsg API key: those begin with fmsgk_.")


def bearer_token(headers: Headers) -> str | Challenge:
    """What a request brings as its one bearer token."""
    values = values_of(headers, b"authorization")
    if not values:
        return NO_KEY
    if len(values) > 1:
        return TWO_KEYS
    match = _BEARER.fullmatch(values[0].strip(b" \t"))
    return MALFORMED if match is None else match[1].decode("ascii")


class HostGate:
    """Which Host header values are served. Raises `BindRefused` for a list that cannot be meant."""

    def __init__(self, bind: str, allowed: Sequence[str]) -> None:
        local = is_loopback(bind)
        if not allowed and not local:
            raise BindRefused(
                f"FMSG_MCP_ALLOWED_HOSTS is not set, and {bind} can be reached from other machines. Set it to the "
                "names under which clients reach this server, for example mcp.example.com, or bind 127.0.0.1."
            )
        self._names: set[str] = set(LOOPBACK_NAMES) if local else set()
        self._exact: set[tuple[str, str]] = set()
        for entry in allowed:
            name, port = _listed_host(entry)
            if port in ("", "*"):
                self._names.add(name)
            else:
                self._exact.add((name, port))

    def admits(self, headers: Headers) -> bool:
        """Whether the request's one Host header is on the list."""
        values = values_of(headers, b"host")
        if len(values) != 1:
            return False
        name, port = _split_host(values[0].decode("latin-1").strip().lower())
        return name in self._names or (name, port) in self._exact


class OriginGate:
    """Which browser origins are served: scheme, host and port have to be the same. Raises `BindRefused`.

    On a loopback ``bind`` every page of this machine is served too, for example the MCP Inspector's; the Host header
    has been checked by then, so that no other name leads here.
    """

    def __init__(self, allowed: Sequence[str], *, bind: str = "") -> None:
        self._loopback = is_loopback(bind)
        self._allowed = {_listed_origin(entry) for entry in allowed}

    def admits(self, origins: Sequence[bytes]) -> bool:
        """Whether a request with these Origin headers may pass; one without any does not come from a browser page."""
        if not origins:
            return True
        if len(origins) > 1:
            return False
        normal = _normal_origin(origins[0].decode("latin-1").strip())
        if normal is None:
            return False
        return normal in self._allowed or (self._loopback and is_loopback(normal[1]))


def is_loopback(host: str) -> bool:
    """Whether an address to bind, or the host of an origin, is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def values_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """All values of a header, in order."""
    return [value for key, value in headers if key == name]


def retry_after(seconds: float) -> tuple[bytes, bytes]:
    """The header that says when to come back."""
    return b"retry-after", str(max(1, round(seconds))).encode()


def _listed_host(entry: str) -> tuple[str, str]:
    """Name and port of an entry of ``FMSG_MCP_ALLOWED_HOSTS``; port ``*`` is any."""
    text = entry.strip().lower()
    name, port = _split_host(text)
    if name and (_HOST_NAME.fullmatch(name) or ":" in name):
        return name, port
    inner, _ = _split_host(text.partition("://")[2].partition("/")[0] or text.partition("/")[0])
    likely = inner if _HOST_NAME.fullmatch(inner.removeprefix("*.")) else "mcp.example.com"
    if "*" in text:
        do = f"List each name, for example {likely.removeprefix('*.')}; name:* takes any port."
    else:
        do = f"Write the name and, where only one is served, the port: {likely.removeprefix('*.')} or name:8443."
    raise BindRefused(f"FMSG_MCP_ALLOWED_HOSTS: {entry!r} is no host name, so no request can match it. {do}")


def _listed_origin(entry: str) -> tuple[str, str, int]:
    """An entry of ``FMSG_MCP_ALLOWED_ORIGINS``."""
    text = entry.strip().lower()
    normal = _normal_origin(text)
    if normal is not None and (_HOST_NAME.fullmatch(normal[1]) or ":" in normal[1]):
        return normal
    scheme, separator, rest = text.partition("://")
    host = (rest if separator else text).partition("/")[0]
    likely = f"{scheme if separator else 'https'}://{host}"
    if _normal_origin(likely) is None or "*" in host or " " in host:
        likely = "https://app.example.com"
    raise BindRefused(
        f"FMSG_MCP_ALLOWED_ORIGINS: {entry!r} is no origin, so no page can match it. Write scheme://host or "
        f"scheme://host:port without a path or a wildcard, for example {likely}."
    )


def _split_host(text: str) -> tuple[str, str]:
    """Name and port of a Host value; the name is empty where it is none."""
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or not _is_port(rest[1:]):
            return "", ""
        return name, rest[1:]
    name, _, port = text.partition(":")
    if not _is_port(port):
        return "", ""
    return name.rstrip("."), port


def _is_port(text: str) -> bool:
    """Whether this can stand after the colon: a port, the wildcard of a setting, or nothing."""
    return text in ("", "*") or (text.isdecimal() and len(text) <= _PORT_DIGITS)


def _normal_origin(text: str) -> tuple[str, str, int] | None:
    scheme, separator, rest = text.lower().partition("://")
    if not separator or scheme not in _DEFAULT_PORTS or "/" in rest or "@" in rest:
        return None
    name, port = _split_host(rest)
    if not name or port == "*":
        return None
    return scheme, name, int(port) if port else _DEFAULT_PORTS[scheme]


def _quotable(text: str) -> str:
    """Text for a quoted string of a header (RFC 6750 allows neither quotes nor backslashes in it)."""
    return re.sub(r"[^\x20\x21\x23-\x5b\x5d-\x7e]", "'", text)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks of ``FMSG_MCP_TRUSTED_PROXIES``. Raises `ValueError` naming the one that is none."""
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise ValueError(
                f"FMSG_MCP_TRUSTED_PROXIES: {text!r} is no network. Write it as 10.0.0.0/8 or 192.0.2.7."
            ) from None
    return tuple(networks)


def is_trusted(peer: str | None, proxies: Sequence[Network]) -> bool:
    """Whether the peer of a connection is one of the proxies."""
    address = _address(peer)
    return address is not None and any(address in network for network in proxies)


def source_of(peer: str | None, forwarded: Iterable[bytes], proxies: Sequence[Network]) -> str:
    """The address a request comes from: the peer's, or behind trusted proxies the last one they did not add.

    ``forwarded`` are the values of ``X-Forwarded-For``; what an untrusted peer writes there is ignored.
    """
    source = _address(peer)
    if source is None:
        return "unknown"
    if is_trusted(peer, proxies):
        hops = [hop.strip() for value in forwarded for hop in value.decode("latin-1").split(",")]
        for hop in reversed(hops):
            address = _address(_without_port(hop))
            if address is None:
                break
            source = address
            if not any(address in network for network in proxies):
                break
    if isinstance(source, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((source, IPV6_PREFIX), strict=False))
    return str(source)


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if text is None:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address


class TooManyGuesses(Exception):
    """A source has sent too many different keys that the host refused."""

    def __init__(self, retry_after_s: float, limit: int) -> None:
        super().__init__(
            f"{limit} different keys from your network address were refused within {WINDOW_S:.0f} s, and that is the "
            f"limit ({budget_name('auth_failures')}). Try again in {retry_after_s:.0f} s with the right key."
        )
        self.retry_after_s = retry_after_s


class _Source:
    __slots__ = ("places", "refused", "until_s", "users")

    def __init__(self, places: int) -> None:
        self.refused: set[int] = set()
        self.until_s = 0.0
        self.users = 0
        self.places = asyncio.Semaphore(places)


class Guesses:
    """Counts different refused keys per source. Keys that turn out good cost their source nothing.

    A client with one wrong key that calls again and again does not lock out the good keys beside it. Of a key only
    Python's keyed hash is kept. ``now`` is monotonic.
    """

    def __init__(self, budgets: Budgets, *, now: Callable[[], float]) -> None:
        self._budgets = budgets
        self._now = now
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    @asynccontextmanager
    async def looking_up(self, source: str) -> AsyncIterator[None]:
        """One of the source's places for keys that have to be looked up. Raises `TooManyGuesses`."""
        found = self._found(source)
        self._check(found)
        found.users += 1
        try:
            async with found.places:
                self._check(found)
                yield
        finally:
            found.users -= 1
            if not found.users and (not found.refused or found.until_s <= self._now()):
                self._sources.pop(source, None)

    def failed(self, source: str, key: str) -> None:
        """A key of the source was refused."""
        found = self._found(source)
        if found.until_s <= self._now():
            found.refused.clear()
            found.until_s = self._now() + WINDOW_S
        if len(found.refused) < self._budgets.auth_failures:
            found.refused.add(hash(key))
        self._sources.move_to_end(source)

    def check(self, source: str) -> None:
        """Raises `TooManyGuesses` where the source is over its budget."""
        found = self._sources.get(source)
        if found is not None:
            self._check(found)

    def _found(self, source: str) -> _Source:
        found = self._sources.get(source)
        if found is None:
            while len(self._sources) >= MAX_SOURCES:
                self._sources.popitem(last=False)
            found = self._sources[source] = _Source(self._budgets.exchanges_per_source)
        return found

    def _check(self, found: _Source) -> None:
        left_s = found.until_s - self._now()
        if left_s > 0 and len(found.refused) >= self._budgets.auth_failures:
            raise TooManyGuesses(max(1.0, left_s), self._budgets.auth_failures)


class Admitted(msgspec.Struct, frozen=True):
    """Who a request acts as, and whether it may do more than read."""

    caller: KeyCaller
    may_write: bool


class Authenticator:
    """Finds the caller of a request: by API key (FMSG-007), or by an access token of signing in."""

    def __init__(
        self, callers: KeyCallers, guesses: Guesses, proxies: Sequence[Network], *, sign_in: SignIn | None = None
    ) -> None:
        self._callers = callers
        self._guesses = guesses
        self._proxies = proxies
        self._sign_in = sign_in

    async def admit(self, headers: Headers, *, peer: str | None) -> Admitted:
        """The caller that the bearer token of a request stands for. Raises `Refused`."""
        token = bearer_token(headers)
        if isinstance(token, Challenge):
            raise self._unauthorized(token, "malformed_key" if token.error else "no_key")
        access = None if self._sign_in is None else await self._sign_in.access(token)
        if access is not None:
            return Admitted(await self._of_api_key(access.api_key, self._source(headers, peer)), access.may_write)
        if not token.startswith(API_KEY_PREFIX):
            known = NO_API_KEY if self._sign_in is None else NO_TOKEN
            raise self._unauthorized(known, "malformed_key")
        return Admitted(await self._of_api_key(token, self._source(headers, peer)), may_write=True)

    async def address_of(self, api_key: str, headers: Headers, *, peer: str | None) -> str:
        """Whose API key it is, for a form that asks for one; within the budgets for guesses. Raises `Refused`."""
        if not _API_KEY.fullmatch(api_key):
            raise self._unauthorized(NO_API_KEY, "malformed_key")
        return (await self._of_api_key(api_key, self._source(headers, peer))).address

    def insufficient_scope(self) -> Refused:
        """The refusal of a call that only reading was granted for (MCP authorization, Scope Challenge Handling)."""
        text = "Only reading was granted here. Sign in once more and allow sending as well."
        return self._challenged(403, Challenge("insufficient_scope", text), "insufficient_scope")

    def _source(self, headers: Headers, peer: str | None) -> str:
        return source_of(peer, values_of(headers, b"x-forwarded-for"), self._proxies)

    def _unauthorized(self, challenge: Challenge, reason: str) -> Refused:
        return self._challenged(401, challenge, reason)

    def _challenged(self, status: int, challenge: Challenge, reason: str) -> Refused:
        told = challenge.header
        if self._sign_in is not None:
            told = self._sign_in.challenge(challenge.error, challenge.text)
        return Refused(status, challenge.text, reason=reason, headers=[(b"www-authenticate", told)])

    def _key_refused(self, error: HostRefused) -> Refused:
        return self._unauthorized(key_refused(error), "key_refused")

    async def _of_api_key(self, key: str, source: str) -> KeyCaller:
        caller = self._callers.known(key)
        if caller is not None:
            return caller
        try:
            refusal = self._callers.refusal(key)
            if refusal is not None:
                self._guesses.check(source)
                self._guesses.failed(source, key)
                raise self._key_refused(refusal)
            async with self._guesses.looking_up(source):
                return await self._callers.identify(key)
        except TooManyGuesses as error:
            wait = [retry_after(error.retry_after_s)]
            raise Refused(429, f"Too many attempts: {error}", reason="auth_failures", headers=wait) from None
        except HostRefused as error:
            if isinstance(error, Throttled) or error.status >= 500:
                raise _unavailable(error) from None
            self._guesses.failed(source, key)
            raise self._key_refused(error) from None
        except FmsgError as error:
            raise _unavailable(error) from None


def key_refused(error: HostRefused) -> Challenge:
    """The host's refusal of a key: 401, also where the host has another status for it (FMSG-007)."""
    return Challenge("invalid_token", f"The fmsg host does not accept this API key: {quoted(error.reason)}")


def _unavailable(error: FmsgError) -> Refused:
    """The host's trouble, which says nothing about the key."""
    reason = quoted(error.reason) if isinstance(error, HostRefused) else visible(scrub(str(error)))
    text = f"The fmsg host cannot be asked about the API key now: {reason}"
    return Refused(503, text, reason="host_unavailable", headers=[retry_after(error.retry_after_s or OUTAGE_RETRY_S)])
