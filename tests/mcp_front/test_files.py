"""Paths on the caller's machine: confined, without links."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from fmsg.errors import BadInput, HostUnreachable
from mcp_front.files import Target, _without_links, open_file, parent_of
from tests.mcp_front.agents import names_below


def test_opens_a_file_by_relative_and_by_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"a")
    for path in ("in/a", str(tmp_path / "in" / "a")):
        fd = open_file(path, within=tmp_path, argument="path", variable="V")
        assert os.read(fd, 10) == b"a"
        os.close(fd)


def test_the_directory_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    fd = open_file(str(tmp_path / "link" / "a"), within=tmp_path / "link", argument="path", variable="V")
    os.close(fd)
    fd = open_file(str(tmp_path / "real" / "a"), within=tmp_path / "link", argument="path", variable="V")
    os.close(fd)


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "missing"])
def test_refuses_what_is_no_regular_file_without_hanging(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            (tmp_path / "y").write_text("y")
            path.symlink_to(tmp_path / "y")
    with pytest.raises(BadInput, match=r"^path: "):
        open_file("x", within=tmp_path, argument="path", variable="V")


def test_a_part_of_the_path_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="cannot be used"):
        parent_of(str(tmp_path / "file" / "a"), within=tmp_path, argument="path", variable="V")


def test_what_lies_outside_is_told_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="THE_SETTING"):
        parent_of("/etc/passwd", within=tmp_path, argument="path", variable="THE_SETTING")


def test_creating_is_exclusive_and_private(tmp_path: Path) -> None:
    with closing(parent_of(str(tmp_path / "a"), within=tmp_path, argument="path", variable="V")) as parent:
        fd = parent.create()
        assert os.fstat(fd).st_mode & 0o777 == 0o600
        os.close(fd)
        with pytest.raises(FileExistsError):
            parent.create()
        parent.remove()
        parent.remove()
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_is_left_open_by_refusals(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    (tmp_path / "file").write_text("x")
    for path in ("file/a/b", "missing/a", "../x"):
        with pytest.raises(BadInput):
            open_file(path, within=tmp_path, argument="path", variable="V")
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before


def test_a_directory_that_is_swapped_while_it_is_looked_at_is_refused_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr("mcp_front.files.os.path.realpath", gone)
    assert _without_links(tmp_path / "swapped") == str(tmp_path / "swapped")


async def test_chunks_go_to_the_file_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "out"
    sizes: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            sizes.append(path.stat().st_size)
            yield bytes([number]) * 1000

    with closing(Target(str(path), within=tmp_path)) as target:
        assert await target.write(chunks()) == 5000
    assert sizes == [0, 1000, 2000, 3000, 4000]
    assert path.stat().st_size == 5000


@pytest.mark.parametrize("fault", [HostUnreachable("cut"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_part_is_removed_whatever_ended_it(tmp_path: Path, fault: BaseException) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"part"
        raise fault

    with closing(Target(str(tmp_path / "out"), within=tmp_path)) as target, pytest.raises(type(fault)):
        await target.write(chunks())
    assert names_below(tmp_path) == []


async def test_a_file_that_appears_meanwhile_is_not_touched(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"new"

    with closing(Target(str(tmp_path / "out"), within=tmp_path)) as target:
        (tmp_path / "out").write_text("faster")
        with pytest.raises(BadInput, match="exists already"):
            await target.write(chunks())
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
        await target.write(chunks())
    assert names_below(outside) == []
    assert (tmp_path / "root" / "moved" / "out").read_bytes() == b"new"
