"""Attachments in: strict base64, names that can travel, files that are where the operator allows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.errors import BadInput
from mcp_front.sending.uploads import PIECE_CHARS, strict_base64, take_uploads


@given(st.binary(max_size=200))
def test_what_was_encoded_comes_back(data: bytes) -> None:
    assert asyncio.run(strict_base64(base64.b64encode(data).decode(), argument="x")) == data


@given(st.text(alphabet="AQR+/=-_ \n", max_size=12) | st.text(max_size=12))
def test_everything_that_is_taken_is_what_encoding_would_give(text: str) -> None:
    data: bytes | None = None
    with contextlib.suppress(BadInput):
        data = asyncio.run(strict_base64(text, argument="x"))
    assert data is None or base64.b64encode(data).decode() == "".join(text.split())


async def test_a_refusal_names_the_argument() -> None:
    with pytest.raises(BadInput, match=r"^attachments\[3\]\.data_base64: "):
        await strict_base64("!", argument="attachments[3].data_base64")


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
async def test_pieces_give_the_same_bytes_and_the_same_refusals(cut: int) -> None:
    data = os.urandom(PIECE_CHARS + cut)
    text = base64.encodebytes(data).decode()
    assert await strict_base64(text, argument="x") == data
    for broken in (text + "QUJD" * 100_000 if text.rstrip().endswith("=") else text + "Q", text.replace("\n", "!", 1)):
        with pytest.raises(BadInput):
            await strict_base64(broken, argument="x")


def item(**more: Any) -> dict[str, Any]:
    return {"filename": "a.txt", "data_base64": "QQ==", **more}


async def test_the_type_is_what_was_said_or_what_the_name_says() -> None:
    with await take_uploads(
        [item(), item(filename="b", content_type="x/y"), item(filename="c.pdf"), item(filename="d")], within=None
    ) as uploads:
        assert [upload.content_type for upload in uploads.items] == [
            "text/plain", "x/y", "application/pdf", "application/octet-stream",
        ]  # fmt: skip


async def test_the_digest_is_that_of_the_bytes_wherever_they_are(tmp_path: Path) -> None:
    data = os.urandom(600_000)
    (tmp_path / "a").write_bytes(data)
    encoded = base64.b64encode(data).decode()
    with await take_uploads([{"path": "a"}, {"filename": "b", "data_base64": encoded}], within=tmp_path) as uploads:
        for upload in uploads.items:
            assert await upload.digest() == await upload.digest() == hashlib.sha256(data).hexdigest()


async def test_a_file_can_be_read_again_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 300_000)
    with await take_uploads([{"path": "a"}], within=tmp_path) as uploads:
        for _ in range(2):
            content = uploads.items[0].content()
            assert not isinstance(content, bytes)
            assert sum([len(chunk) async for chunk in content]) == 300_000


async def test_files_are_closed_at_the_end_and_when_a_later_item_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    if not Path("/proc/self/fd").exists():  # noqa: ASYNC240 - a test of descriptors
        pytest.skip("needs /proc")
    before = open_files()
    with await take_uploads([{"path": "a"}], within=tmp_path):
        assert open_files() == before + 1
    with pytest.raises(BadInput):
        await take_uploads([{"path": "a"}, {"path": "missing"}], within=tmp_path)
    assert open_files() == before


async def test_a_file_of_a_terabyte_is_not_read_to_be_told_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file costs nothing to make, and hashing it kept the process busy for an hour."""
    monkeypatch.setattr("mcp_front.sending.uploads.DIGEST_BYTES", 1 << 20)
    digests = []
    for name, size in (("a", 1 << 40), ("b", 1 << 40), ("c", (1 << 40) + 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        with await take_uploads([{"path": name, "filename": "x"}], within=tmp_path) as uploads:
            digests.append(await uploads.items[0].digest())
    assert digests[0] == digests[1] != digests[2]
