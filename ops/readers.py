"""A command whose reader went away, as in ``fmsg-mcpd status | head``, ends without a message."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import TextIO

UNREAD = 128 + 13
"""The exit status of a program that SIGPIPE ended, as shells and `set -o pipefail` know it. The signal itself stays
ignored, since a Redis that closes a connection sends it, too."""


def unless_unread(run: Callable[[], int]) -> int:
    """The exit status of a command that prints. `UNREAD` where its output has no reader any more."""
    try:
        try:
            return run()
        finally:
            _flush()
    except BaseException as error:
        if _is_broken_pipe(error) and _forsaken():
            return UNREAD
        raise


def _flush() -> None:
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def _is_broken_pipe(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(BrokenPipeError)[1] is None
    return isinstance(error, BrokenPipeError)


def _forsaken() -> bool:
    """Whether our output broke, and no connection. If so, the rest of the output is thrown away."""
    found = False
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed and _is_unread(stream):
            found = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return found


def _is_unread(stream: TextIO) -> bool:
    """Output may wait for a later flush or be tried already, so the pipe itself is asked as well."""
    try:
        stream.flush()
    except BrokenPipeError:
        return True
    try:
        number = stream.fileno()
    except OSError:
        return False  # no file of the system's
    if sys.platform == "win32":
        return False
    asked = select.poll()
    asked.register(number, 0)  # errors are told without being asked for
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in asked.poll(0))
