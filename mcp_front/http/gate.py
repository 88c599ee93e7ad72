"""What a request has to show before anything of it is read: the right host, no foreign origin, one bearer key."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

import msgspec

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""Host names under which a loopback bind is reached; other names pointing there are a DNS rebinding."""

API_KEY_PREFIX = b"fmsgk_"
"""What FMSG-003 API keys begin with. What does not is refused without asking the host."""
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9\-._~+/]{1,1024}=*)", re.ASCII)
"""RFC 6750, b64token. Keys are standard base64 after their prefix: ``+``, ``/`` and ``=`` belong to them."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT_DIGITS = 5
"""No port has more; Python refuses to read a number of thousands of digits, and a header holds as many."""

Headers = Sequence[tuple[bytes, bytes]]


class BindRefused(ValueError):
    """The front may not listen as it is told to."""


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
NO_API_KEY = Challenge("invalid_token", "That is not an fmsg API key: those begin with fmsgk_.")


def bearer_key(headers: Headers) -> str | Challenge:
    """The API key of a request."""
    values = [value for name, value in headers if name == b"authorization"]
    if not values:
        return NO_KEY
    if len(values) > 1:
        return TWO_KEYS
    match = _BEARER.fullmatch(values[0].strip(b" \t"))
    if match is None:
        return MALFORMED
    key = match[1]
    return key.decode("ascii") if key.startswith(API_KEY_PREFIX) else NO_API_KEY


class HostGate:
    """Which Host header values are served. Raises `BindRefused` for a public bind without a list."""

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
            name, port = _split_host(entry.strip().lower())
            if not name:
                raise BindRefused(f"FMSG_MCP_ALLOWED_HOSTS: {entry!r} is no host name.")
            if port in ("", "*"):
                self._names.add(name)
            else:
                self._exact.add((name, port))

    def admits(self, headers: Headers) -> bool:
        """Whether the request's one Host header is on the list."""
        values = [value for name, value in headers if name == b"host"]
        if len(values) != 1:
            return False
        name, port = _split_host(values[0].decode("latin-1").strip().lower())
        return name in self._names or (name, port) in self._exact


class OriginGate:
    """Which browser origins are served: scheme, host and port have to be the same. Raises `BindRefused`.

    On a loopback ``bind`` a page of the server's own origin is served too, as MCP's conformance tests want it; the Host
    header it is compared with has been checked by then.
    """

    def __init__(self, allowed: Sequence[str], *, bind: str = "") -> None:
        self._loopback = is_loopback(bind)
        self._allowed = {_normal_origin(origin) for origin in allowed}
        if None in self._allowed:
            bad = next(origin for origin in allowed if _normal_origin(origin) is None)
            raise BindRefused(
                f"FMSG_MCP_ALLOWED_ORIGINS: {bad!r} is no origin. Write scheme://host or scheme://host:port."
            )

    def admits(self, origins: Sequence[bytes], *, host: bytes = b"") -> bool:
        """Whether a request with these Origin headers may pass; one without any does not come from a browser page.

        ``host`` is the value of its Host header.
        """
        if not origins:
            return True
        if len(origins) > 1:
            return False
        normal = _normal_origin(origins[0].decode("latin-1").strip())
        if normal is None:
            return False
        own = _normal_origin(f"http://{host.decode('latin-1').strip()}") if self._loopback else None
        return normal in self._allowed or normal == own


def is_loopback(bind: str) -> bool:
    """Whether an address to bind can be reached from this machine only."""
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def values_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """All values of a header, in order."""
    return [value for key, value in headers if key == name]


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
