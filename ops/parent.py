"""A process that was started by another of ours ends with it, even when that one is killed."""

from __future__ import annotations

import os
import sys


def end_with_parent(parent_pid: int) -> None:
    """Linux: have the kernel end this process when its parent ends. Elsewhere the parent's own clean-up has to do."""
    if sys.platform == "linux":
        import ctypes
        import signal

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)
