"""The base URL of a Web API, and the proxy on the way to it: where a credential may go."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from fmsg.errors import BadInput

PLACEHOLDER = re.compile(r"\$\{[^}]{0,100}\}?|\$[A-Za-z_][A-Za-z0-9_]{0,100}|%[A-Za-z_][A-Za-z0-9_]{3,100}%")
"""A reference to a variable that the program which starts this one should have replaced."""


def base_url(text: str, *, allow_insecure: bool = False, name: str = "FMSG_API_URL") -> str:
    """The URL without a trailing slash. Cleartext only to this machine unless ``allow_insecure``. Raises `BadInput`.

    It is the base that ``/fmsg…`` is added to (FMSG-003, Base). ``name`` is what errors call it.
    """
    fault = _fault(text, allow_insecure=allow_insecure)
    if fault is not None:
        raise BadInput(f"{name}: {fault}. Write it like https://fmsgapi.example.com.")
    return text.strip().rstrip("/")


def _fault(text: str, *, allow_insecure: bool) -> str | None:
    unfilled = PLACEHOLDER.search(text)
    if unfilled is not None:
        return (
            f"it contains {unfilled[0]}, which was to be replaced by the value of a variable and was not: the program "
            "that starts this server does not know the variable or does not replace any"
        )
    try:
        url = urlsplit(text.strip())
        host, _ = url.hostname, url.port
    except ValueError:
        return "it is not a URL"
    if url.scheme not in ("http", "https"):
        return "it begins with neither https:// nor http://"
    if not host:
        return "it names no host"
    if url.username is not None or url.password is not None:
        return "it contains a user name; credentials do not belong into it"
    if url.query or url.fragment or any(char.isspace() or ord(char) < 32 for char in text.strip()):
        return "it has more than a host and a path"
    if url.path.rstrip("/").endswith("/fmsg"):
        return "it ends in /fmsg, which every request adds by itself; leave that out"
    if url.scheme == "http" and not allow_insecure and not is_loopback(host):
        return (
            f"{host} is reached in cleartext, and every request carries a credential; use https, or allow it with "
            "FMSG_ALLOW_INSECURE_HTTP=1"
        )
    return None


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by name or address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy for requests to ``url``, as ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` say.

    Names in lower case count first, as with other programs. Never one for this machine itself. Raises `BadInput` for a
    proxy that is not an ``http://`` or ``https://`` URL.
    """
    target = urlsplit(url)
    host = target.hostname or ""
    named = {name.lower(): value for name, value in environment.items() if value and not name.islower()}
    named |= {name: value for name, value in environment.items() if value and name.islower()}
    proxy = named.get(f"{target.scheme}_proxy") or named.get("all_proxy")
    if not proxy or is_loopback(host) or _bypassed(host, target.port, named.get("no_proxy", "")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        valid = urlsplit(proxy).scheme in ("http", "https") and bool(urlsplit(proxy).hostname)
    except ValueError:
        valid = False
    if not valid:
        variable = f"{target.scheme.upper()}_PROXY"
        raise BadInput(
            f"{variable}: it is no http:// or https:// URL of a proxy. Write it like http://proxy.corp:3128."
        )
    return proxy


def _bypassed(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether a list of names, ``.suffixes``, ``name:port``, addresses and networks covers a host; ``*`` covers all."""
    for entry in no_proxy.lower().replace(",", " ").split():
        name = entry.removeprefix("*").removeprefix(".")
        if not name or host == name or host.endswith(f".{name}") or f"{host}:{port}" == name:
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:
            continue
    return False
