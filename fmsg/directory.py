"""Short names to full addresses: the directory file and the default domain (FMSG-007, stdio Profile and Tools)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, Self

import msgspec

from fmsg.address import fold, parse_address
from fmsg.errors import BadInput
from fmsg.redact import quoted

CALLERS_DOMAIN = "caller"
"""As the default domain, it stands for the domain of the caller who uses a name. A host may have many domains."""

Resolution = Literal["literal", "directory", "default_domain"]

_decode = msgspec.json.Decoder(dict[str, str]).decode


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A full address, lower case, and how it was found."""

    address: str
    resolution: Resolution


class Directory:
    """Resolves the names that people and agents use. Without entries and a domain only full addresses resolve."""

    def __init__(self, entries: Mapping[str, str] | None = None, *, default_domain: str | None = None) -> None:
        self._entries = _checked(entries or {}, origin="the directory")
        self._callers_domain = default_domain is not None and default_domain.strip().lower() == CALLERS_DOMAIN
        self._domain = None if self._callers_domain else _checked_domain(default_domain)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None, default_domain: str | None = None) -> Self:
        """Read ``FMSG_DIRECTORY`` (None or empty: no directory). Raises `BadInput` naming the file and the reason."""
        directory = cls(default_domain=default_domain or None)
        if path:
            directory._entries = _checked(_read(os.fspath(path)), origin=f"FMSG_DIRECTORY {os.fspath(path)}")
        return directory

    def for_caller(self, address: str) -> Directory:
        """The directory as a caller uses it: with the domain of its address, where `CALLERS_DOMAIN` was given."""
        if not self._callers_domain:
            return self
        own = Directory()
        own._entries = self._entries
        own._domain = address.rpartition("@")[2]
        return own

    def __len__(self) -> int:
        return len(self._entries)

    def resolve(self, name: object, *, argument: str) -> Resolved:
        """The address that a full address, ``name`` or ``@name`` stands for. Raises `BadInput` naming the argument."""
        if not isinstance(name, str):
            return Resolved(address=parse_address(name, name=argument), resolution="literal")
        text = name.strip()
        short = text.removeprefix("@")
        if "@" in short or not short:
            return Resolved(address=parse_address(text, name=argument), resolution="literal")
        known = self._entries.get(fold(short))
        if known is not None:
            return Resolved(address=known, resolution="directory")
        if self._domain is not None:
            address = parse_address(f"@{short}@{self._domain}", name=argument)
            return Resolved(address=address, resolution="default_domain")
        raise BadInput(
            f"{argument}: {quoted(text)} is a short name that nothing here resolves. Write the full address, "
            "for example @alice@example.com."
        )


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        fault = f"it cannot be read: {error.strerror}"
    else:
        try:
            return _decode(data)
        except msgspec.DecodeError as error:
            fault = str(error)
    raise BadInput(
        f"FMSG_DIRECTORY {path}: not a JSON object of short name to full address ({fault}). "
        'Write it like {"alice": "@alice@example.com"}.'
    )


def _checked(entries: Mapping[str, str], *, origin: str) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, address in entries.items():
        short = name.strip().removeprefix("@")
        if not short or "@" in short:
            raise BadInput(
                f"{origin}: {quoted(name)} is no short name. Use a name without a domain, for example alice."
            )
        parsed = parse_address(address, name=f"{origin}, {quoted(name)}")
        if checked.setdefault(fold(short), parsed) != parsed:
            raise BadInput(f"{origin}: {quoted(name)} is there twice with different addresses. Keep one.")
    return checked


def _checked_domain(domain: str | None) -> str | None:
    if domain is None:
        return None
    bare = domain.strip().removeprefix("@")
    try:
        return parse_address(f"@a@{bare}").removeprefix("@a@")
    except BadInput:
        pass
    raise BadInput(f"FMSG_DEFAULT_DOMAIN: {quoted(domain)} is not a domain. Write it like example.com.")
