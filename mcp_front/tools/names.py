"""Addresses among the arguments: short names resolved, results always with the full address (FMSG-007, References)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_front.sending.uploads import refuse_credential

if TYPE_CHECKING:
    from fmsg.directory import Directory, Resolved


def resolve(directory: Directory, name: str, *, argument: str) -> Resolved:
    """What a name stands for. Raises `BadInput` naming the argument."""
    return directory.resolve(name, argument=argument)


def resolve_all(directory: Directory, names: Sequence[str], *, argument: str) -> tuple[str, ...]:
    """The addresses of several names in order, each once (case-folded). Raises `BadInput` naming the item."""
    found: dict[str, str] = {}
    for index, name in enumerate(names):
        refuse_credential(name, argument=f"{argument}[{index}]")
        address = resolve(directory, name, argument=f"{argument}[{index}]").address
        found.setdefault(address.casefold(), address)
    return tuple(found.values())
