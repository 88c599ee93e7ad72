"""Addresses among the arguments: short names resolved, results always with the full address (FMSG-007, References)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mcp_front.framing import visible
from mcp_front.render import Fields
from mcp_front.sending.uploads import refuse_credential

if TYPE_CHECKING:
    from fmsg.directory import Directory, Resolved


def resolve(directory: Directory, name: str, *, argument: str) -> Resolved:
    """What a name stands for. Raises `BadInput` naming the argument."""
    return directory.resolve(name, argument=argument)


class Recipients(msgspec.Struct, frozen=True):
    """The addresses that names stand for, each once, and which of them were short names."""

    addresses: tuple[str, ...]
    resolved: tuple[tuple[str, str], ...]

    def fields(self) -> Fields:
        """What a result says of the short names; nothing where there were none."""
        pairs = [{"input": visible(name), "address": address} for name, address in self.resolved]
        return {"resolved": pairs} if pairs else {}


def resolve_all(directory: Directory, names: Sequence[str], *, argument: str) -> Recipients:
    """The addresses of several names in order. Raises `BadInput` naming the item."""
    addresses: dict[str, None] = {}
    resolved: dict[str, str] = {}
    for index, name in enumerate(names):
        refuse_credential(name, argument=f"{argument}[{index}]")
        found = resolve(directory, name, argument=f"{argument}[{index}]")
        addresses.setdefault(found.address)
        if found.resolution != "literal":
            resolved.setdefault(name, found.address)
    return Recipients(tuple(addresses), tuple(resolved.items()))
