"""The base URL of a Web API: where a credential may go."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from fmsg.errors import BadInput


def base_url(text: str, *, allow_insecure: bool = False) -> str:
    """The URL without a trailing slash. Cleartext only to this machine unless ``allow_insecure``. Raises `BadInput`."""
    fault = _fault(text, allow_insecure=allow_insecure)
    if fault is not None:
        raise BadInput(f"API URL: {fault}. Write it like https://fmsgapi.example.com.")
    return text.strip().rstrip("/")


def _fault(text: str, *, allow_insecure: bool) -> str | None:
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
    if url.scheme == "http" and not allow_insecure and not is_loopback(host):
        return f"{host} is reached in cleartext, and every request carries a credential; use https"
    return None


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by name or address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
