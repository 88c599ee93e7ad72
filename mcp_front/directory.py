"""Short names for addresses: a directory file and a default domain (FMSG-007, stdio Profile and References)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from fmsg.address import parse_address
from fmsg.errors import BadInput

MAX_FILE_BYTES = 16 * 1024 * 1024
"""A hundred thousand names; a path to something else entirely (a disk image) must not fill the memory."""


class Resolution(msgspec.Struct, frozen=True):
    """A full address in lower case, and what made it of the name."""

    address: str
    resolution: Literal["literal", "directory", "default_domain"]


class Directory:
    """Resolves names. ``names`` maps short names to full addresses; ``default_domain`` completes the others."""

    def __init__(self, names: Mapping[str, str] | None = None, *, default_domain: str | None = None) -> None:
        self._names = {
            _short(name).casefold(): parse_address(address, name=f"directory entry {name[:60]!r}")
            for name, address in (names or {}).items()
        }
        self._default_domain = default_domain.strip().removeprefix("@") if default_domain else None
        if self._default_domain:
            parse_address(f"@name@{self._default_domain}", name="FMSG_DEFAULT_DOMAIN")

    @classmethod
    def load(cls, path: Path | None, *, default_domain: str | None = None) -> Directory:
        """The directory of a JSON file, an object of short name to full address. Raises `BadInput` naming the fault."""
        if path is None:
            return cls(default_domain=default_domain)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise BadInput(f"FMSG_DIRECTORY: {path} cannot be read ({error.strerror}). Check the path.") from error
        if len(data) > MAX_FILE_BYTES:
            raise BadInput(f"FMSG_DIRECTORY: {path} is larger than {MAX_FILE_BYTES} bytes. It is a list of names.")
        try:
            names = msgspec.json.decode(data, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise BadInput(
                f'FMSG_DIRECTORY: {path} is not a JSON object like {{"bob": "@bob@example.com"}} ({error}).'
            ) from error
        return cls(names, default_domain=default_domain)

    def resolve(self, name: str, *, argument: str = "address") -> Resolution:
        """What a full address or a short name stands for. Raises `BadInput` naming the argument and what to do."""
        text = name.strip()
        if text.startswith("@") and text.count("@") > 1:
            return Resolution(parse_address(text, name=argument), "literal")
        short = _short(text)
        if "@" in short:
            raise BadInput(f"{argument}: {name[:80]!r} is not an fmsg address. They begin with an @ too: @{short[:80]}")
        known = self._names.get(short.casefold())
        if known is not None:
            return Resolution(known, "directory")
        if self._default_domain and short:
            return Resolution(parse_address(f"@{short}@{self._default_domain}", name=argument), "default_domain")
        raise BadInput(
            f"{argument}: {name[:80]!r} is neither a full address nor a known short name. Write it as @user@domain, "
            "for example @alice@example.com."
        )


def _short(name: str) -> str:
    """A short name may be written with the leading @ of an address."""
    return name.strip().removeprefix("@")
