"""fmsg addresses: ``@local@domain``, compared by Unicode case folding, rendered in lower case (FMSG-003, FMSG-007)."""

from __future__ import annotations

import re
import unicodedata

from fmsg.errors import BadInput

MAX_ADDRESS_BYTES = 255
"""The whole address with both ``@``, in UTF-8 (FMSG-003)."""

_SEPARATORS = "-_."
_LABEL = re.compile(r"[^\W_](?:[\w-]{0,61}[^\W_])?", re.UNICODE)


def same_address(one: str, other: str) -> bool:
    """Whether two addresses name the same mailbox."""
    return one.casefold() == other.casefold()


def fold(address: str) -> str:
    """The form addresses are compared and keyed by."""
    return address.casefold()


def is_address(text: str) -> bool:
    """Whether the text is a full, well-formed address."""
    try:
        parse_address(text)
    except BadInput:
        return False
    return True


def parse_address(text: object, *, name: str = "address") -> str:
    """A full address in its rendered form (lower case). Raises `BadInput` naming the argument and the reason."""
    if not isinstance(text, str):
        raise BadInput(f"{name}: an address is a string like @alice@example.com.")
    reason = _fault(text)
    if reason is not None:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise BadInput(
            f"{name}: {shown!r} is not an fmsg address ({reason}). Write it as @user@domain, "
            "for example @alice@example.com."
        )
    return text.lower()


def _fault(text: str) -> str | None:
    if not text.startswith("@") or text.count("@") != 2:
        return "it needs exactly two @, one of them first"
    if len(text.encode("utf-8", "surrogatepass")) > MAX_ADDRESS_BYTES:
        return f"it is longer than {MAX_ADDRESS_BYTES} bytes"
    local, domain = text[1:].split("@")
    return _local_fault(local) or _domain_fault(domain)


def _local_fault(local: str) -> str | None:
    if not local:
        return "the user part is empty"
    if local[0] in _SEPARATORS or local[-1] in _SEPARATORS:
        return "the user part begins or ends with - _ or ."
    previous = ""
    for char in local:
        if char in _SEPARATORS:
            if previous in _SEPARATORS and previous:
                return "the user part has two of - _ . in a row"
        elif unicodedata.category(char)[0] not in "LNM":
            return f"the user part contains {char!r}"
        previous = char
    return None


def _domain_fault(domain: str) -> str | None:
    if not domain:
        return "the domain is empty"
    for label in domain.split("."):
        if not label:
            return "the domain has an empty label"
        if not _LABEL.fullmatch(label):
            return f"the domain label {label!r} is not a host name"
    return None
