"""Files on the caller's own machine (stdio only): below one directory, never through a link, never over a file.

Each part of a path is opened relative to its parent with ``O_NOFOLLOW``, so that nothing can be swapped in between a
check and its use.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

from fmsg.errors import BadInput
from mcp_front.shield import shielded

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""``O_NONBLOCK``: opening a pipe without a writer must not hang. It is refused right after."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

DOWNLOAD_VARIABLE = "FMSG_MCP_DOWNLOAD_DIR"
"""The setting that confines saved files."""

PRIVATE = 0o600
"""What a message brought is its recipient's alone."""


class Parent:
    """An open directory and the name of a file in it. Close it."""

    def __init__(self, directory_fd: int, name: str, path: Path) -> None:
        self.fd = directory_fd
        self.name = name
        self.path = path

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self.fd)

    def create(self) -> int:
        """A new file to write, refused where anything of that name exists."""
        return os.open(self.name, _CREATE, PRIVATE, dir_fd=self.fd)

    def remove(self) -> None:
        """Remove the file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.fd)


def parent_of(path_text: str, *, within: Path, argument: str, variable: str) -> Parent:
    """The directory of an absolute path, opened part by part. Raises `BadInput` naming the argument.

    ``within`` confines the path to a directory (which itself may be reached through links: the operator named it);
    ``variable`` is the setting it comes from.
    """
    path = _plain_path(path_text, argument=argument)
    start, steps = _below(path, within, argument=argument, variable=variable)
    if not steps:
        raise BadInput(f"{argument}: {path} is a directory. Name a file.")
    return Parent(_descend(start, steps[:-1], argument=argument, path=path), steps[-1], path)


def open_file(path_text: str, *, within: Path, argument: str, variable: str) -> int:
    """A regular file below ``within``, open for reading. A relative path counts from there. Raises `BadInput`."""
    absolute = path_text if os.path.isabs(path_text) else os.path.join(within, path_text)
    parent = parent_of(absolute, within=within, argument=argument, variable=variable)
    try:
        fd = os.open(parent.name, _READ, dir_fd=parent.fd)
    except OSError as error:
        raise BadInput(f"{argument}: {parent.path} cannot be read ({reason(error)}). Check the path.") from None
    finally:
        parent.close()
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BadInput(f"{argument}: {parent.path} is not a regular file. Name one.")
    return fd


def reason(error: OSError) -> str:
    """Why the system refused, in its own words. For a link it says "too many levels", which does not help."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "it, or a part of it, is a symbolic link or no directory"
    return error.strerror or type(error).__name__


def _plain_path(path_text: str, *, argument: str) -> Path:
    if "\0" in path_text:
        raise BadInput(f"{argument}: contains a NUL character, which no path does.")
    path = Path(path_text)
    if not path.is_absolute():
        raise BadInput(f"{argument}: {path_text[:200]!r} is not an absolute path. Begin it with /.")
    if ".." in path.parts:
        raise BadInput(f"{argument}: {path_text[:200]!r} contains .. parts. Write the path without them.")
    return path


def _without_links(path: Path) -> str:
    """Where a path leads. The path itself if its parts change while they are looked at."""
    try:
        return os.path.realpath(path)
    except OSError:
        return str(path)


def _below(path: Path, within: Path, *, argument: str, variable: str) -> tuple[Path, tuple[str, ...]]:
    for root in (within, within.resolve()):
        if path.is_relative_to(root):
            return within.resolve(), path.relative_to(root).parts
    raise BadInput(f"{argument}: {path} is not below {within} ({variable}). Choose a path below it.")


def _descend(start: Path, steps: Sequence[str], *, argument: str, path: Path) -> int:
    try:
        fd = os.open(start, _DIRECTORY & ~getattr(os, "O_NOFOLLOW", 0))
        for step in steps:
            try:
                inner = os.open(step, _DIRECTORY, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
    except OSError as error:
        real = _without_links(path)
        hint = f" Without links it is {real}." if real != str(path) else ""
        raise BadInput(
            f"{argument}: the directory of {path} cannot be used ({reason(error)}). "
            f"It must exist and no part of it may be a symbolic link.{hint}"
        ) from None
    return fd


class Target:
    """A new file below the operator's directory. Nothing exists there until `write`; close it in any case."""

    def __init__(self, path_text: str, *, within: Path) -> None:
        self._parent: Parent = parent_of(path_text, within=within, argument="save_to", variable=DOWNLOAD_VARIABLE)

    @property
    def path(self) -> str:
        """The absolute path."""
        return str(self._parent.path)

    async def write(self, chunks: AsyncIterator[bytes]) -> int:
        """Write the bytes as they come; their number. Raises `BadInput` where the file exists or cannot be made."""
        try:
            fd = self._parent.create()
        except FileExistsError:
            raise BadInput(f"save_to: {self.path} exists already. Choose a path where nothing is.") from None
        except OSError as error:
            raise BadInput(f"save_to: {self.path} cannot be written ({reason(error)}).") from None
        try:
            return await self._fill(fd, chunks)
        except BaseException as error:
            self._parent.remove()
            if isinstance(error, OSError):
                raise BadInput(f"save_to: {self.path} cannot be written ({reason(error)}).") from None
            raise

    async def _fill(self, fd: int, chunks: AsyncIterator[bytes]) -> int:
        """Each write runs to its end before the file is closed: its number may be another file's right after."""
        size = 0
        try:
            async for chunk in chunks:
                await shielded(asyncio.to_thread(_write_all, fd, chunk))
                size += len(chunk)
            await shielded(asyncio.to_thread(os.fsync, fd))
        finally:
            os.close(fd)
        return size

    def close(self) -> None:
        """Let go of the directory."""
        self._parent.close()


def _write_all(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]
