"""Standard input and output as the protocol's own, from the first instruction of the process on.

It imports next to nothing, so that it can run before anything that might print. After `claim` everything written to
standard output (a stray ``print``, a library's banner, a child process) goes to standard error, and standard input is
at its end.
"""

from __future__ import annotations

import os
import sys

_LOWEST = 3
"""Private descriptors lie above the standard ones."""


class ClientDescriptors:
    """The descriptors of the client's pipes."""

    __slots__ = ("read_fd", "write_fd")

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        """What the client writes to us."""
        self.write_fd = write_fd
        """Where only protocol messages go (FMSG-007, stdio Profile)."""

    def close(self) -> None:
        """Give the pipes up; the client sees the end of our output."""
        for fd in (self.read_fd, self.write_fd):
            os.close(fd)


def claim() -> ClientDescriptors:
    """Take descriptors 0 and 1 away from the rest of the process. To be called once, before anything else."""
    sys.stdout.flush()
    descriptors = ClientDescriptors(_above(0), _above(1))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    os.close(nothing)
    return descriptors


def _above(fd: int) -> int:
    if sys.platform == "win32":
        return os.dup(fd)
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
