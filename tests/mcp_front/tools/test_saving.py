"""A download into a file: bounded memory, nothing left of a part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from fmsg.errors import BadInput, HostUnreachable
from fmsg.transfer import Download
from mcp_front.tools.saving import Target
from tests.mcp_front.agents import names_below


def download(chunks: AsyncIterator[bytes]) -> Download:
    return Download(size=None, content_type="application/octet-stream", chunks=chunks)


async def test_chunks_go_to_the_file_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "out"
    sizes: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            sizes.append(path.stat().st_size)
            yield bytes([number]) * 1000

    with closing(Target(str(path), within=tmp_path)) as target:
        assert await target.write(download(chunks())) == 5000
    assert sizes == [0, 1000, 2000, 3000, 4000]
    assert path.stat().st_size == 5000


@pytest.mark.parametrize("fault", [HostUnreachable("cut"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_part_is_removed_whatever_ended_it(tmp_path: Path, fault: BaseException) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"part"
        raise fault

    with closing(Target(str(tmp_path / "out"), within=tmp_path)) as target, pytest.raises(type(fault)):
        await target.write(download(chunks()))
    assert names_below(tmp_path) == []


async def test_a_file_that_appears_meanwhile_is_not_touched(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"new"

    with closing(Target(str(tmp_path / "out"), within=tmp_path)) as target:
        (tmp_path / "out").write_text("faster")
        with pytest.raises(BadInput, match="exists already"):
            await target.write(download(chunks()))
    assert (tmp_path / "out").read_text() == "faster"


async def test_a_directory_that_is_swapped_for_a_link_meanwhile_is_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "root" / "in", tmp_path / "outside"
    inside.mkdir(parents=True)
    outside.mkdir()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"new"

    with closing(Target(str(inside / "out"), within=tmp_path / "root")) as target:
        inside.rename(tmp_path / "root" / "moved")
        inside.symlink_to(outside)
        await target.write(download(chunks()))
    assert names_below(outside) == []
    assert (tmp_path / "root" / "moved" / "out").read_bytes() == b"new"
