"""fmsg addresses: ``@local@domain``, rendered in lower case; when two in messages are the same (FMSG-003, FMSG-007)."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from fmsg.errors import BadInput
from fmsg.redact import quoted

MAX_ADDRESS_BYTES = 255
"""The whole address with both ``@``, in UTF-8 (FMSG-003)."""

MAX_LABEL_CHARS = 63
"""The longest label of a domain (RFC 1035). An internationalized one is never longer than its ASCII form."""

REMEMBERED = 4096
"""How many addresses are remembered as well-formed or not. The same few come again and again."""

_SEPARATORS = frozenset("-_.")
_WORD = frozenset("LNM")
"""General categories of letters, numbers and the marks without which many scripts cannot be written."""


def fold(address: str) -> str:
    """What two addresses that somebody may mean by one another have in common: Unicode case folding (FMSG-003), in NFC.

    For names that people and agents write: the directory, and the senders that a wait is for. NFC, since a name with an
    accent is typed in one form and stored in another. It joins addresses that are two mailboxes (``ß`` and ``ss``), so
    nothing of a caller is kept or opened under it, and no recipient is left out by it: that goes by lower case alone.
    """
    if address.isascii():
        return address.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", address).casefold())


def is_address(text: str) -> bool:
    """Whether the text is a full, well-formed address."""
    return _fault(text.lower()) is None


def parse_address(text: object, *, name: str = "address") -> str:
    """A full address that somebody wrote, in its rendered form: lower case, NFC.

    Raises `BadInput` naming the argument and the reason.
    """
    if not isinstance(text, str):
        raise BadInput(f"{name}: an address is a string like @alice@example.com.")
    rendered = unicodedata.normalize("NFC", text.lower())
    reason = _fault(rendered)
    if reason is not None:
        raise BadInput(
            f"{name}: {quoted(text)} is not an fmsg address ({reason}). Write it as @user@domain, "
            "for example @alice@example.com."
        )
    return rendered


def _fault(text: str) -> str | None:
    if not text.startswith("@") or text.count("@") != 2:
        return "it needs exactly two @, one of them first"
    if len(text.encode("utf-8", "surrogatepass")) > MAX_ADDRESS_BYTES:
        return f"it is longer than {MAX_ADDRESS_BYTES} bytes"
    return _fault_within(text)


@lru_cache(maxsize=REMEMBERED)
def _fault_within(text: str) -> str | None:
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
            if previous in _SEPARATORS:
                return "the user part has two of - _ . in a row"
        elif not _is_word(char):
            return f"the user part contains {char!r}"
        previous = char
    return None


def _domain_fault(domain: str) -> str | None:
    if not domain:
        return "the domain is empty"
    for label in domain.split("."):
        if not label:
            return "the domain has an empty label"
        if not _is_label(label):
            return f"the domain label {quoted(label, 40)} is not a host name"
    return None


def _is_label(label: str) -> bool:
    return (
        len(label) <= MAX_LABEL_CHARS
        and _is_word(label[0])
        and _is_word(label[-1])
        and all(_is_word(char) or char in "-_" for char in label)
    )


def _is_word(char: str) -> bool:
    return unicodedata.category(char)[0] in _WORD
