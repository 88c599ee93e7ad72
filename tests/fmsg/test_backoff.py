"""How long to wait between attempts."""

from __future__ import annotations

import random

from fmsg.backoff import backoff_s


def test_delays_stay_below_a_bound_that_doubles_up_to_the_cap() -> None:
    rng = random.Random(1)
    for failures, bound_s in enumerate((1.0, 2.0, 4.0, 8.0, 10.0, 10.0), start=1):
        delays = [backoff_s(failures, rng, base_s=1.0, cap_s=10.0) for _ in range(300)]
        assert max(delays) <= bound_s
        assert max(delays) > 0.9 * bound_s, "the whole range is used"
        assert min(delays) < 0.1 * bound_s, "the whole range is used"


def test_a_least_share_of_the_bound_is_kept() -> None:
    rng = random.Random(1)
    delays = [backoff_s(3, rng, base_s=1.0, cap_s=10.0, least=0.5) for _ in range(300)]
    assert 2.0 <= min(delays) < 2.2
    assert 3.8 < max(delays) <= 4.0


def test_no_number_of_failures_is_too_large_for_it() -> None:
    assert backoff_s(10**9, random.Random(1), base_s=1.0, cap_s=60.0) <= 60.0
    assert backoff_s(0, random.Random(1), base_s=1.0, cap_s=60.0) <= 1.0
