"""Delays between attempts: one formula for everything that tries again."""

from __future__ import annotations

import random

MAX_DOUBLINGS = 30
"""A bound on the arithmetic. Every cap in use is reached long before."""


def backoff_s(failures: int, rng: random.Random, *, base_s: float, cap_s: float, least: float = 0.0) -> float:
    """The delay after so many failures in a row: uniform between a share ``least`` of a bound and the bound.

    The bound is ``base_s`` after the first failure and doubles with each one up to ``cap_s``. Full jitter (``least`` 0)
    spreads many clients that failed at the same moment best; 0.5 is for one that must not try again at once.
    """
    bound_s = min(cap_s, base_s * 2.0 ** min(max(failures - 1, 0), MAX_DOUBLINGS))
    return bound_s * rng.uniform(least, 1.0)
