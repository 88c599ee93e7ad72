"""Addresses: what is one, how it is shown, when two are the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.address import MAX_ADDRESS_BYTES, fold, is_address, parse_address
from fmsg.errors import BadInput
from tests.fmsg.fakehost import KEY

word = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"]), min_size=1, max_size=8)
label = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,10}[a-zA-Z0-9])?", fullmatch=True)


@st.composite
def addresses(draw: st.DrawFn) -> str:
    """Well-formed addresses: words of any script with single separators between, and a domain."""
    words = draw(st.lists(word, min_size=1, max_size=3))
    separators = draw(st.lists(st.sampled_from("-_."), min_size=len(words) - 1, max_size=len(words) - 1))
    local = words[0] + "".join(map("".join, zip(separators, words[1:], strict=True)))
    return f"@{local}@{'.'.join(draw(st.lists(label, min_size=1, max_size=3)))}"


@given(addresses())
def test_a_well_formed_address_is_rendered_in_lower_case(address: str) -> None:
    assert parse_address(address) == unicodedata.normalize("NFC", address.lower())
    assert is_address(address)


@given(addresses())
def test_rendering_is_final_and_keeps_the_mailbox(address: str) -> None:
    rendered = parse_address(address)
    assert parse_address(rendered) == rendered
    assert fold(rendered) == fold(address) or "İ" in address


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_bad_input(text: str) -> None:
    for candidate in (text, f"@{text}@a.test", f"@a@{text}"):
        if is_address(candidate):
            parsed = parse_address(candidate)
            assert parsed.count("@") == 2
            assert not any(char.isspace() for char in parsed)
        else:
            with pytest.raises(BadInput, match=r"^to: "):
                parse_address(candidate, name="to")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "exactly two @"),
        ("alice", "exactly two @"),
        ("alice@a.test", "exactly two @"),
        ("@alice", "exactly two @"),
        ("@@a.test", "user part is empty"),
        ("@alice@", "domain is empty"),
        ("@a@b@c", "exactly two @"),
        ("x@alice@a.test", "exactly two @"),
        ("@.alice@a.test", "begins or ends"),
        ("@alice-@a.test", "begins or ends"),
        ("@al..ice@a.test", "in a row"),
        ("@al-_ice@a.test", "in a row"),
        ("@al ice@a.test", "contains ' '"),
        ("@al+ice@a.test", r"contains '\+'"),
        ("@ali\u200bce@a.test", "contains"),
        ("@ali\ud800ce@a.test", "contains"),
        ("@alice@a..test", "empty label"),
        ("@alice@a.test.", "empty label"),
        ("@alice@-a.test", "not a host name"),
        ("@alice@a-.test", "not a host name"),
        ("@alice@a b.test", "not a host name"),
        ("@alice@a.test:443", "not a host name"),
        ("@alice@a/b", "not a host name"),
        (f"@alice@{'a' * 64}.test", "not a host name"),
        (f"@{'a' * 250}@a.test", "longer than 255 bytes"),
        (f"@{'ä' * 125}@a.test", "longer than 255 bytes"),
    ],
)
def test_a_malformed_address_is_refused_with_the_reason_and_an_example(address: str, reason: str) -> None:
    with pytest.raises(BadInput, match=rf"(?s)^to: .*{reason}.*for example @alice@example\.com\.$"):
        parse_address(address, name="to")


@pytest.mark.parametrize(
    "address",
    [
        "@a@b",
        "@アリス@例え.test",
        "@ali.ce_1-2@sub.a.test",
        "@हिन्दी@उदाहरण.test",
        "@ALICE@A.TEST",
        f"@{'a' * 246}@a.test",
    ],
)
def test_scripts_single_labels_and_the_longest_address_are_taken(address: str) -> None:
    assert parse_address(address) == address.lower()
    assert len(address.encode()) <= MAX_ADDRESS_BYTES


@pytest.mark.parametrize("value", [None, 1, b"@a@b.test", ["@a@b.test"], {}])
def test_what_is_no_string_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match=r"^to: an address is a string like"):
        parse_address(value, name="to")


def test_addresses_are_the_same_under_case_folding() -> None:
    assert fold("@Straße@a.test") == fold("@STRASSE@A.test")
    assert fold("@alice@a.test") != fold("@alice@b.test")


def test_an_api_key_given_as_an_address_is_not_shown() -> None:
    for given_ in (KEY, f"@{KEY}@a.test", "x" * 70 + KEY):
        with pytest.raises(BadInput) as caught:
            parse_address(given_)
        assert "5dQ1kZ" not in str(caught.value)


def test_an_address_is_compared_and_written_in_one_unicode_form() -> None:
    assert fold("@Jose\u0301@a.test") == fold("@josé@a.test")
    assert parse_address("@Jose\u0301@a.test") == "@josé@a.test"
    assert fold("@STRASSE@a.test") == fold("@straße@a.test"), "the comparison of FMSG-003, which no key is made by"
