"""A caller is exactly the address that the host says."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator

import msgspec
import pytest

from fmsg.tokens import token_of
from ledger.values import caller_key
from tests.fmsg.fakehost import jwt

URL = "https://h.test"


def joined_by_unicode() -> Iterator[tuple[str, str]]:
    """Every code point with what some folding or normalisation makes of it."""
    for number in range(sys.maxunicode + 1):
        char = chr(number)
        if unicodedata.category(char) in {"Cs", "Cn", "Co"}:
            continue
        forms = {char.casefold(), char.lower(), char.upper(), char.upper().lower()}
        forms |= {unicodedata.normalize(form, char) for form in ("NFC", "NFD", "NFKC", "NFKD")}
        forms |= {unicodedata.normalize("NFKC", char.casefold()), unicodedata.normalize("NFD", char).casefold()}
        yield from ((char, form) for form in forms - {char})


def test_two_addresses_share_a_key_only_where_the_host_s_lower_casing_joins_them() -> None:
    pairs = list(joined_by_unicode())
    assert len(pairs) > 20_000
    for one, other in pairs:
        addresses = f"@x{one}y@h.test", f"@x{other}y@h.test"
        keys = {caller_key(URL, address) for address in addresses}
        assert len(keys) == len({address.lower() for address in addresses}), addresses


@pytest.mark.parametrize(
    "pair", [("@straße@h", "@strasse@h"), ("@boſs@h", "@boss@h"), ("@νίκος@h", "@νίκοσ@h"), ("@eﬃe@h", "@effie@h")]
)
def test_from_the_token_to_the_key_nothing_joins_two_mailboxes(pair: tuple[str, str]) -> None:
    answers = [msgspec.json.encode({"access_token": jwt(sub)}) for sub in pair]
    one, other = (caller_key(URL, token_of(answer, asked_at_s=0.0).address) for answer in answers)
    assert one != other


def test_hosts_lower_case_so_capitals_name_the_same_caller() -> None:
    assert caller_key(URL, "@Alice@H.test") == caller_key(f"{URL}/", "@alice@h.test")
    assert caller_key(URL, "@alice@h.test") != caller_key("https://other.test", "@alice@h.test")
