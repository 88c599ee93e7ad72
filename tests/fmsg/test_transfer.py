"""Names of attachments and the form they are sent in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email import message_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.errors import BadInput
from fmsg.transfer import (
    CHUNK_BYTES,
    Form,
    check_filename,
    check_media_type,
    check_stored_name,
    file_form,
    meant_name,
)
from tests.fmsg.fakehost import KEY


async def _whole(form: Form) -> bytes:
    return b"".join([chunk async for chunk in form.chunks])


def _parts(form: Form, data: bytes) -> list[tuple[str, str, bytes]]:
    """Field name, file name and bytes of each part, read by another parser than a host's."""
    mail = message_from_bytes(b"Content-Type: " + form.content_type.encode() + b"\r\n\r\n" + data)
    found = []
    for part in mail.walk():
        if not part.is_multipart():
            name = part.get_param("name", header="content-disposition")
            body = part.get_payload(decode=True)
            assert isinstance(body, bytes)
            found.append((str(name), str(part.get_filename()), body))
    return found


async def test_a_form_has_one_file_and_a_known_length() -> None:
    form = file_form("report 1.pdf", b"\x00\xff--\r\n" * 10, content_type="application/pdf")
    data = await _whole(form)
    assert len(data) == form.size
    assert _parts(form, data) == [("file", "report 1.pdf", b"\x00\xff--\r\n" * 10)]
    assert b"Content-Type: application/pdf\r\n" in data


async def test_quotes_in_a_name_stay_in_the_name() -> None:
    form = file_form('a"; filename="b.txt', b"x", content_type="text/plain")
    assert _parts(form, await _whole(form)) == [("file", 'a"; filename="b.txt', b"x")]


async def test_a_large_file_comes_in_chunks() -> None:
    form = file_form("a", b"x" * (3 * CHUNK_BYTES + 1), content_type="text/plain")
    sizes = [len(chunk) async for chunk in form.chunks]
    assert sizes[1:-1] == [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, 1]


async def test_a_stream_is_passed_on_and_its_length_unknown() -> None:
    async def stream() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    form = file_form("a", stream(), content_type="text/plain")
    assert form.size is None
    assert _parts(form, await _whole(form)) == [("file", "a", b"onetwo")]


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\r\nX: y", "a\x00", "a\x7f", "\ud800", "ü" * 128, "a" * 256])
def test_a_name_no_host_can_take_or_give_back_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"^filename: .* cannot name an attachment \(.*\)\. Choose another"):
        check_filename(name)
    with pytest.raises(BadInput):
        file_form(name, b"", content_type="text/plain")


@pytest.mark.parametrize(
    "name", ["a", "a b.txt", "..a", "ü" * 127, "a" * 255, "a\\b.txt", "../../etc/passwd", "日本.txt"]
)
def test_other_names_are_the_host_s_to_judge(name: str) -> None:
    assert check_filename(name) == name


@pytest.mark.parametrize(
    "kind", ["", "text", "text/", "/plain", "text/plain\r\nX: y", "text/plain; charset=ü", "a b/c"]
)
def test_a_content_type_that_is_none_is_refused(kind: str) -> None:
    with pytest.raises(BadInput, match=r"^content_type: .* is not a media type"):
        file_form("a", b"", content_type=kind)


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown; charset=utf-8", 'application/vnd.x+json;a="b"'])
def test_content_types_with_parameters_are_taken(kind: str) -> None:
    assert file_form("a", b"", content_type=kind).content_type.startswith("multipart/form-data; boundary=")


@given(st.text(max_size=40))
def test_whatever_name_is_taken_cannot_break_out_of_its_header(name: str) -> None:
    try:
        form = file_form(name, b"", content_type="text/plain")
    except BadInput:
        return
    assert form.size is not None
    assert "\n" not in name
    assert "\r" not in name


def test_a_key_given_as_a_name_is_not_shown() -> None:
    with pytest.raises(BadInput) as caught:
        check_filename(KEY + "\n")
    assert "5dQ1kZ" not in str(caught.value)


LISTED = ["Menü.pdf", "Screenshot 9.41\u202fAM.png", "a\x07b.txt", "report.txt ", "x.txt", "X.txt"]


def shown(name: str) -> str:
    """How results show a name."""
    return name.replace("\x07", "<U+0007>")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("x.txt", "x.txt"),
        ("X.txt", "X.txt"),
        ("Menu\u0308.pdf", "Menü.pdf"),
        ("Screenshot 9.41 AM.png", "Screenshot 9.41\u202fAM.png"),
        ("Screenshot 9.41\u00a0AM.png", "Screenshot 9.41\u202fAM.png"),
        ("a<U+0007>b.txt", "a\x07b.txt"),
        ("a\x07b.txt", "a\x07b.txt"),
        (" a<U+0007>b.txt", "a\x07b.txt"),
        ("report.txt", "report.txt "),
        ("Report.txt", None),
        ("other.txt", None),
        ("", None),
    ],
)
def test_a_name_is_found_as_it_was_meant(asked: str, meant: str | None) -> None:
    assert meant_name(asked, LISTED, shown=shown) == meant


def test_a_name_that_fits_two_names_neither() -> None:
    assert meant_name("a b", ["a\u00a0b", "a\u202fb"]) is None
    assert meant_name("a\u00a0b", ["a\u00a0b", "a\u202fb"]) == "a\u00a0b"
    assert meant_name("a", ["a ", "a "]) == "a ", "the same name twice is one"


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=5))
def test_what_is_found_is_listed(asked: str, names: list[str]) -> None:
    assert meant_name(asked, names) in {None, *names}
    assert meant_name(asked, [*names, asked]) == asked


@pytest.mark.parametrize("name", ["a\x07b.txt", "x" * 300, "a/b", "a\\b", " "])
def test_what_another_host_named_can_be_asked_for(name: str) -> None:
    assert check_stored_name(name) == name


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_path_s_own_steps_are_no_names(name: str) -> None:
    with pytest.raises(BadInput, match="names that the message lists"):
        check_stored_name(name)


@pytest.mark.parametrize("text", ["text/markdown", "text/plain; charset=utf-8", "application/vnd.x+json"])
def test_a_media_type_is_one(text: str) -> None:
    assert check_media_type(text) == text


@pytest.mark.parametrize("text", ["markdown", "", "text/", "/plain", "text/plain\r\nX: y", "text plain/x"])
def test_what_is_no_media_type_is_named(text: str) -> None:
    with pytest.raises(BadInput, match=r"^type: .* is not a media type\. Write a type and a subtype"):
        check_media_type(text, name="type")
