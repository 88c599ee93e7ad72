"""Which failures are waited out, and for how long the host is left alone."""

from __future__ import annotations

import random

import pytest

from fmsg.errors import (
    CredentialMissing,
    Forbidden,
    HostFailed,
    HostMisbehaved,
    HostUnreachable,
    NotFound,
    Throttled,
    Unauthorized,
)
from mcp_front.waiting.request import TRANSIENT, retry_after_s


@pytest.mark.parametrize(
    "error",
    [
        CredentialMissing(),
        HostFailed(503, "identity service unavailable"),
        HostMisbehaved("not JSON"),
        HostUnreachable("no answer"),
        Throttled(429, "slow down"),
    ],
)
def test_trouble_passes(error: Exception) -> None:
    """The host is down, slow or confused: a later request may succeed."""
    assert isinstance(error, TRANSIENT)


@pytest.mark.parametrize("error", [Unauthorized(401, "revoked"), Forbidden(403, "no"), NotFound(404, "gone")])
def test_answers_do_not(error: Exception) -> None:
    """The host said no: asking again would not change it."""
    assert not isinstance(error, TRANSIENT)


def test_the_delay_doubles_up_to_a_limit() -> None:
    """One second, two, four … thirty, however often it failed; each somewhat shorter at random."""
    rng = random.Random(1)
    error = HostUnreachable("no answer")
    for failures, longest_s in ((1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (10_000, 30.0)):
        delays = [retry_after_s(error, failures, longest_s=30.0, rng=rng) for _ in range(50)]
        assert all(longest_s / 2 <= delay_s <= longest_s for delay_s in delays)
        assert max(delays) > min(delays)


def test_a_host_that_asks_for_patience_gets_it() -> None:
    """Retry-After counts where it is longer than our own delay."""
    rng = random.Random(1)
    assert retry_after_s(Throttled(429, "slow", retry_after_s=77.0), 1, longest_s=30.0, rng=rng) == 77.0
    assert retry_after_s(Throttled(429, "slow", retry_after_s=0.0), 1, longest_s=30.0, rng=rng) >= 0.5
