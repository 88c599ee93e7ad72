from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_front.http.jsonbody import SMALL_BYTES, Malformed, TooDeep, TooManyItems, decode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=30,
)


def read(body: bytes) -> Any:
    return decode(body, max_depth=64, max_items=1000)


@given(value=VALUES)
def test_it_reads_what_json_writes(value: object) -> None:
    assert read(json.dumps(value).encode()) == value
    assert read(json.dumps(value, ensure_ascii=False).encode()) == value


def test_integers_of_64_bits_and_more_are_exact() -> None:
    assert read(b'{"id": 9223372036854775807, "n": 123456789012345678901}') == {
        "id": 2**63 - 1,
        "n": 123456789012345678901,
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b'{"a": Infinity}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b"\xef\xbb\xbf{}",
        b'"open',
        b'"a\x00b"',
        b"9" * 5000,
    ],
)
def test_what_is_no_json_in_utf_8_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        read(body)


def test_depth_is_counted_outside_strings_only() -> None:
    assert read(b"[" * 64 + b"]" * 64)
    with pytest.raises(TooDeep):
        read(b"[" * 65 + b"]" * 65)
    with pytest.raises(TooDeep):
        read(b'{"a":' * 100_000)
    assert read(json.dumps({"text": '[{"' * 1000 + "\\" * 7}).encode()) == {"text": '[{"' * 1000 + "\\" * 7}


def test_wide_is_not_deep() -> None:
    body = b"[" + b",".join([b"[]"] * 500) + b"]"
    assert read(body) == [[]] * 500


def test_a_large_string_is_no_large_structure() -> None:
    text = 'a,"b" [c] {d}\\ ' * 20_000
    assert read(json.dumps({"body": text}).encode()) == {"body": text}


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 400_000 + b"1]",
        b"[" + b'"a",' * 400_000 + b"1]",
        b"[" + b"1," * 400_000 + b"1]",
        b"[" + b'{"a":1},' * 400_000 + b"1]",
    ],
)
def test_many_values_are_refused_before_they_are_built(body: bytes) -> None:
    with pytest.raises(TooManyItems):
        read(body)


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 4_000_000, b'"' * 4_000_000, b'"\\', b'["' + b"\\" * 4_000_001])
def test_unfinished_strings_cost_one_pass(body: bytes) -> None:
    begun = time.process_time()
    with pytest.raises((Malformed, TooManyItems)):
        decode(body.ljust(SMALL_BYTES + 1, b"a"), max_depth=64, max_items=1000)
    assert time.process_time() - begun < 1.0
