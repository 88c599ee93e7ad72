"""What a command does whose reader went away, as in ``fmsg-mcpd status | head``: it ends, and nobody is told of it."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import TextIO

UNREAD = 128 + 13
"""The exit status of a program that SIGPIPE ended, which shells and `set -o pipefail` know. The signal itself stays
ignored, since a Redis that closes a connection sends it, too."""


def unless_unread(run: Callable[[], int]) -> int:
    """The exit status of a command that prints, `UNREAD` where nobody reads what it prints."""
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
    """Whether it was ours and no connection's; if so, what is still to be printed goes nowhere."""
    found = False
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed and _is_unread(stream):
            found = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return found


def _is_unread(stream: TextIO) -> bool:
    """What was printed may be kept for a later flush or tried already, so the pipe itself is asked as well."""
    try:
        stream.flush()
    except BrokenPipeError:
        return True
    try:
        number = stream.fileno()
    except OSError:
        return False  # nothing of the system's
    if sys.platform == "win32":
        return False
    asked = select.poll()
    asked.register(number, 0)  # what is wrong with it is told unasked
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in asked.poll(0))
