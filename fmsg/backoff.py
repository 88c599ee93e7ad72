"""Delays between attempts: one formula for everything that tries again."""

from __future__ import annotations

import random
from collections.abc import Iterator


def full_jitter(rng: random.Random, *, base_s: float, cap_s: float) -> Iterator[float]:
    """Delays without end: uniform between 0 and a bound that doubles from ``base_s`` up to ``cap_s``.

    Full jitter spreads many clients that failed at the same moment better than any fixed or half-random delay.
    """
    bound_s = base_s
    while True:
        yield rng.uniform(0.0, bound_s)
        bound_s = min(cap_s, bound_s * 2)
