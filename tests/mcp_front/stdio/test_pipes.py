from __future__ import annotations

import asyncio
import os
import pty
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_front.stdio.pipes import LineTooLong, lines_from, sink_to
from tests.within import within


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_fd, write_fd = os.pipe()
    yield read_fd, write_fd
    for fd in (read_fd, write_fd):
        try:
            os.close(fd)
        except OSError:
            continue


async def test_lines_come_as_they_are_written(pipe: tuple[int, int]) -> None:
    read_fd, write_fd = pipe
    async with lines_from(read_fd) as lines:
        os.write(write_fd, b"one\ntw")
        assert await lines.next() == b"one\n"
        os.write(write_fd, b"o\nlast")
        assert await lines.next() == b"two\n"
        os.close(write_fd)
        assert await lines.next() == b"last"
        assert await lines.next() == b""
    assert os.get_blocking(read_fd)


async def test_a_read_can_be_given_up(pipe: tuple[int, int]) -> None:
    async with lines_from(pipe[0]) as lines:
        waiting = asyncio.ensure_future(lines.next())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        os.write(pipe[1], b"still there\n")
        assert await lines.next() == b"still there\n"


async def test_a_line_without_end_is_thrown_away(pipe: tuple[int, int]) -> None:
    read_fd, write_fd = pipe
    async with lines_from(read_fd, max_line_bytes=100) as lines:
        os.write(write_fd, b"x" * 500 + b"\nshort\n")
        with pytest.raises(LineTooLong):
            await lines.next()
        async with asyncio.timeout(5):
            while (line := await _next(lines)) != b"short\n":
                assert line.strip(b"x") in (b"", b"\n")


async def _next(lines: object) -> bytes:
    try:
        return await lines.next()  # type: ignore[attr-defined, no-any-return]  # whatever `lines_from` gave
    except LineTooLong:
        return b""


async def test_a_regular_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\ntwo\n" + b"x" * 50)
    fd = os.open(path, os.O_RDONLY)
    try:
        async with lines_from(fd, max_line_bytes=20) as lines:
            assert [await lines.next(), await lines.next()] == [b"one\n", b"two\n"]
            with pytest.raises(LineTooLong):
                await lines.next()
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [5, 3_000_000])
async def test_what_is_written_arrives_whole_even_if_the_reader_is_slow(pipe: tuple[int, int], size: int) -> None:
    read_fd, write_fd = pipe
    data = os.urandom(size)
    async with sink_to(write_fd) as sink:
        writing = asyncio.ensure_future(sink.write(data))
        got = b""
        while len(got) < size:
            got += await asyncio.to_thread(os.read, read_fd, 65536)
        await writing
    assert got == data
    assert os.get_blocking(write_fd)


async def test_a_reader_that_has_gone_is_an_error(pipe: tuple[int, int]) -> None:
    async with sink_to(pipe[1]) as sink:
        os.close(pipe[0])

        async def write_on() -> None:
            while True:
                await sink.write(b"x")
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await within(write_on(), 5.0)


async def test_a_regular_file_is_written(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    try:
        async with sink_to(fd) as sink:
            await sink.write(b"one\n")
            await sink.write(b"two\n")
    finally:
        os.close(fd)
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\n"


async def test_a_terminal_is_left_as_it_was() -> None:
    ours, theirs = pty.openpty()
    try:
        async with lines_from(theirs) as lines, sink_to(theirs) as sink:
            os.write(ours, b"hello\n")
            assert await lines.next() == b"hello\n"
            await sink.write(b"out\n")
        assert os.get_blocking(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


async def test_nothing_at_all_ends_at_once_and_swallows_everything() -> None:
    fd = os.open(os.devnull, os.O_RDWR)
    try:
        async with asyncio.timeout(5), lines_from(fd) as lines, sink_to(fd) as sink:
            assert await lines.next() == b""
            await sink.write(b"x" * 100_000)
    finally:
        os.close(fd)
