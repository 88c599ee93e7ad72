"""Message references: the Web API's 64-bit ids as decimal strings (FMSG-007, Message References)."""

from __future__ import annotations

import re

from fmsg.errors import BadInput
from fmsg.redact import quoted

MAX_ID = 2**63 - 1
"""Ids are positive signed 64-bit integers (FMSG-003)."""

_DECIMAL = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def parse_reference(value: object, *, name: str = "id") -> int:
    """The id that a reference names, 1 … 2^63-1.

    Accepts nothing but a canonical decimal string: no sign, space, leading zero, other script's digit or number.
    Raises `BadInput` naming the argument.
    """
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number = int(value)
        if number <= MAX_ID:
            return number
    raise BadInput(
        f"{name}: {_shown(value)} is not a message reference. Pass the id as a string of decimal digits, "
        'exactly as a result gave it, for example "2502".'
    )


def _shown(value: object) -> str:
    """The value as an error shows it. A number is shown where it is exact; other kinds only by what they are."""
    if isinstance(value, str):
        return quoted(value, 40)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_ID:
        return f"the number {value}"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def parse_position(value: object, *, name: str = "after_id") -> int:
    """As `parse_reference`, but ``"0"`` (before everything) is accepted too and gives 0."""
    return 0 if value == "0" else parse_reference(value, name=name)


def format_reference(message_id: int) -> str:
    """The reference of an id (0 gives ``"0"``, the position before everything)."""
    return str(message_id)
