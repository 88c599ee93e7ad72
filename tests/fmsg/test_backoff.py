"""How long to wait between attempts."""

from __future__ import annotations

import random
from itertools import islice

from fmsg.backoff import full_jitter


def test_delays_stay_below_a_bound_that_doubles_up_to_the_cap() -> None:
    delays = [list(islice(full_jitter(random.Random(seed), base_s=1.0, cap_s=10.0), 8)) for seed in range(300)]
    for attempt, bound_s in enumerate((1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0)):
        seen = [delay[attempt] for delay in delays]
        assert max(seen) <= bound_s
        assert max(seen) > 0.9 * bound_s, "the whole range is used"
        assert min(seen) < 0.1 * bound_s, "the whole range is used"


def test_delays_never_end_or_overflow() -> None:
    assert next(islice(full_jitter(random.Random(1), base_s=1.0, cap_s=60.0), 5000, None)) <= 60.0
