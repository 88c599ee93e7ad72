from __future__ import annotations

import base64

import pytest

from ledger.seal import SealBroken, SealKeyInvalid, SealKeys


def test_what_is_sealed_opens_again() -> None:
    keys = SealKeys.parse(SealKeys.generate())
    sealed = keys.seal(b"a token", bound_to=b"caller")
    assert b"a token" not in sealed
    assert keys.open(sealed, bound_to=b"caller") == b"a token"


def test_the_same_value_is_never_sealed_to_the_same_bytes() -> None:
    keys = SealKeys.parse(SealKeys.generate())
    assert keys.seal(b"x", bound_to=b"c") != keys.seal(b"x", bound_to=b"c")


def test_the_first_key_seals_and_all_open() -> None:
    old, new = SealKeys.generate(), SealKeys.generate()
    sealed_before = SealKeys.parse(old).seal(b"x", bound_to=b"c")
    both = SealKeys.parse(f"{new}, {old}")
    assert both.open(sealed_before, bound_to=b"c") == b"x"
    assert SealKeys.parse(new).open(both.seal(b"y", bound_to=b"c"), bound_to=b"c") == b"y"


def test_a_value_moved_to_another_caller_does_not_open() -> None:
    keys = SealKeys.parse(SealKeys.generate())
    with pytest.raises(SealBroken):
        keys.open(keys.seal(b"x", bound_to=b"alice"), bound_to=b"bob")


@pytest.mark.parametrize("cut", [0, 1, 5, 13, 20])
def test_a_damaged_value_does_not_open(cut: int) -> None:
    keys = SealKeys.parse(SealKeys.generate())
    with pytest.raises(SealBroken):
        keys.open(keys.seal(b"x", bound_to=b"c")[:cut], bound_to=b"c")


def test_another_layout_does_not_open() -> None:
    keys = SealKeys.parse(SealKeys.generate())
    with pytest.raises(SealBroken):
        keys.open(b"\x02" + keys.seal(b"x", bound_to=b"c")[1:], bound_to=b"c")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" , ", "empty"),
        ("no base64!", "key 1 is not base64"),
        (base64.b64encode(b"short").decode(), "key 1 has 5 bytes"),
        (f"{base64.b64encode(bytes(32)).decode()},{base64.b64encode(bytes(31)).decode()}", "key 2 has 31 bytes"),
    ],
)
def test_a_malformed_key_is_refused_with_the_fix_and_without_the_key(text: str, reason: str) -> None:
    with pytest.raises(SealKeyInvalid) as refused:
        SealKeys.parse(text)
    assert reason in str(refused.value)
    assert "FMSG_SEAL_KEY" in str(refused.value)
    assert "fmsg-mcpd keygen" in str(refused.value)
    assert "short" not in str(refused.value)


def test_no_keys_at_all_are_refused() -> None:
    with pytest.raises(SealKeyInvalid):
        SealKeys([])


def test_keys_are_not_shown() -> None:
    text = SealKeys.generate()
    assert text not in repr(SealKeys.parse(text))
    assert repr(SealKeys.parse(text)) == "SealKeys(1)"
