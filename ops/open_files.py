"""How many files a process may have open at the same time: each socket is one."""

from __future__ import annotations

import sys

ENOUGH = 65_536
"""What a daemon asks for: the sockets of its own 10,000 callers, of those of daemons that died, and the rest."""


def raise_limit(wanted: int = ENOUGH) -> None:
    """Let the process have so many, or as many as it may. Service managers and shells allow 1024 until one asks."""
    limits = limits_now()
    if limits is None:
        return
    import resource

    soft, hard = limits
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def limits_now() -> tuple[int, int] | None:
    """How many it may have, and how many it may ask for; None where there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)
