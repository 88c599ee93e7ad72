"""Which failures a wait outlasts, and how long it leaves a failing host alone."""

from __future__ import annotations

import random

from fmsg.errors import (
    CredentialMissing,
    FmsgError,
    HostFailed,
    HostMisbehaved,
    HostUnreachable,
    Throttled,
)

PASSING = (CredentialMissing, HostFailed, HostMisbehaved, HostUnreachable, Throttled)
"""The host is in trouble or wants to be left alone; a later request may succeed. Everything else is an answer."""
FIRST_DELAY_S = 1.0
"""After the first failure: a connection that was cut is back by then."""

MAX_DOUBLINGS = 10
"""A bound on the arithmetic; the longest delay is reached long before."""


def retry_after_s(error: FmsgError, failures: int, *, longest_s: float, rng: random.Random) -> float:
    """How long to leave the host alone after so many failures in a row: doubling, with full jitter above half of it."""
    delay_s = min(FIRST_DELAY_S * 2.0 ** min(max(failures - 1, 0), MAX_DOUBLINGS), longest_s)
    delay_s *= rng.uniform(0.5, 1.0)
    if isinstance(error, Throttled) and error.retry_after_s is not None:
        return max(delay_s, error.retry_after_s)
    return delay_s
