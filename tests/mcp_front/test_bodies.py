"""Bodies as bounded text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.pieces import at_once
from mcp_front import bodies
from mcp_front.bodies import PIECE_BYTES, BodyText, clipped, read_text


def text_of(data: bytes, media_type: str, *, more: bool = False) -> BodyText:
    """What `read_text` gives."""
    return at_once(bodies._reading(data, media_type, more))


@given(st.text(), st.integers(0, 50))
def test_a_clipped_text_is_a_beginning_of_it_in_whole_characters(text: str, most: int) -> None:
    data = text.encode("utf-8", "replace")
    cut = clipped(text, most)
    assert cut.text is not None
    assert len(cut.text.encode()) <= most
    assert data.startswith(cut.text.encode())
    assert len(data) - len(cut.text.encode()) < 4 or len(cut.text.encode()) > most - 4
    assert cut.truncated is (len(data) > most)


@given(
    st.binary(max_size=40), st.booleans(), st.sampled_from(["", ";charset=utf-16", ";charset=big5", ";charset=zlib"])
)
def test_any_bytes_become_text(data: bytes, more: bool, charset: str) -> None:
    found = text_of(data, f"text/plain{charset}", more=more)
    assert found.text is not None
    found.text.encode()


def test_what_is_cut_in_the_middle_of_a_character_is_left_out_only_where_there_is_more() -> None:
    assert text_of("é".encode()[:1], "text/plain", more=True) == BodyText("", truncated=True)
    assert text_of("é".encode()[:1], "text/plain") == BodyText("\ufffd", unread=True)


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("iso-8859-1", "Grüße aus Köln"),
        ("windows-1251", "Привет, мир"),
        ("gb18030", "你好，世界"),
        ("utf-16", "Grüße"),
        ("UTF-16LE", "plain words"),
        ("utf-32", "plain words"),
        ("shift_jis", "こんにちは"),
        ("iso-2022-jp", "こんにちは"),
        ("koi8-r", "Привет"),
        ("latin1", "naïve"),
    ],
)
@pytest.mark.parametrize("form", ["text/plain; charset={}", 'text/plain;format=flowed;CHARSET="{}"'])
def test_a_declared_character_set_is_read(charset: str, text: str, form: str) -> None:
    assert text_of(text.encode(charset), form.format(charset)) == BodyText(text)


@pytest.mark.parametrize("charset", ["windows-1251", "iso-8859-1", "us-ascii", "utf-8", "no-such", "utf-16"])
def test_what_is_utf_8_is_read_as_that_whatever_is_declared(charset: str) -> None:
    """Many programs declare one thing and send the other."""
    assert text_of("Grüße, мир!".encode(), f"text/plain; charset={charset}").text == "Grüße, мир!"


@pytest.mark.parametrize("charset", ["utf-8", "us-ascii", "no-such", "zlib", "idna", "punycode", "unicode_escape", ""])
def test_what_cannot_be_read_says_so(charset: str) -> None:
    assert text_of(b"Gr\xfc\xdfe", f"text/plain; charset={charset}") == BodyText("Gr\ufffd\ufffde", unread=True)


async def test_long_data_is_read_in_steps_with_characters_across_their_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x" + "é" * PIECE_BYTES
    assert await read_text(text.encode(), "text/plain") == BodyText(text)
    assert await read_text(text.encode("gb18030"), "text/plain; charset=gb18030") == BodyText(text)
    assert sum(1 for _ in bodies._reading(text.encode(), "text/plain", False)) == 3
