"""A download into a new file: below the operator's directory, streamed, and gone again if it does not end well."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fmsg.errors import BadInput
from fmsg.transfer import Download
from mcp_front.files import Parent, parent_of, reason
from mcp_front.shield import shielded

DOWNLOAD_VARIABLE = "FMSG_MCP_DOWNLOAD_DIR"
"""The setting that confines saved files."""

ARGUMENT = "save_to"


class Target:
    """Where a download goes. Nothing exists there until `write`; close it in any case."""

    def __init__(self, path_text: str, *, within: Path) -> None:
        self._parent: Parent = parent_of(path_text, within=within, argument=ARGUMENT, variable=DOWNLOAD_VARIABLE)

    @property
    def path(self) -> str:
        """The absolute path."""
        return str(self._parent.path)

    async def write(self, download: Download) -> int:
        """Write the download; its size in bytes. Raises `BadInput` where the file exists or cannot be made."""
        try:
            fd = self._parent.create()
        except FileExistsError:
            raise BadInput(f"{ARGUMENT}: {self.path} exists already. Choose a path where nothing is.") from None
        except OSError as error:
            raise BadInput(f"{ARGUMENT}: {self.path} cannot be written ({reason(error)}).") from None
        try:
            return await self._fill(fd, download)
        except BaseException as error:
            self._parent.remove()
            if isinstance(error, OSError):
                raise BadInput(f"{ARGUMENT}: {self.path} cannot be written ({reason(error)}).") from None
            raise

    async def _fill(self, fd: int, download: Download) -> int:
        """Each write runs to its end before the file is closed: its number may be another file's right after."""
        size = 0
        try:
            async for chunk in download.chunks:
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
