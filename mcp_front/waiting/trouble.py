"""Which failures a wait outlasts, and how long it leaves a failing host alone."""

from __future__ import annotations

import random

from fmsg.backoff import backoff_s
from fmsg.errors import CredentialMissing, FmsgError, Transient

PASSING = (CredentialMissing, Transient)
"""The host is in trouble or wants to be left alone; a later request may succeed. Everything else is an answer."""
FIRST_DELAY_S = 1.0
"""After the first failure: a connection that was cut is back by then."""


def retry_after_s(error: FmsgError, failures: int, *, longest_s: float, rng: random.Random) -> float:
    """How long to leave the host alone after so many failures in a row, and at least as long as it asked for."""
    delay_s = backoff_s(failures, rng, base_s=FIRST_DELAY_S, cap_s=longest_s, least=0.5)
    return max(delay_s, error.retry_after_s or 0.0)
