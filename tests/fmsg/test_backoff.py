"""How long to wait, and whether waiting helps."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from fmsg.backoff import MAX_REASON_CHARS, MAX_RETRY_AFTER_S, Remedy, diagnose, full_jitter
from fmsg.errors import CredentialMissing, HostMisbehaved, HostUnreachable, refusal
from ledger.port import LedgerUnavailable


def test_delays_stay_below_a_bound_that_doubles_up_to_the_cap() -> None:
    delays = [list(islice(full_jitter(random.Random(seed), base_s=1.0, cap_s=10.0), 8)) for seed in range(300)]
    for attempt, bound_s in enumerate((1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0)):
        seen = [delay[attempt] for delay in delays]
        assert max(seen) <= bound_s
        assert max(seen) > 0.9 * bound_s, "the whole range is used"
        assert min(seen) < 0.1 * bound_s, "the whole range is used"


def test_delays_never_end_or_overflow() -> None:
    assert next(islice(full_jitter(random.Random(1), base_s=1.0, cap_s=60.0), 5000, None)) <= 60.0


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (CredentialMissing("none"), "credential"),
        (refusal(401, "api key revoked"), "credential"),
        (refusal(403, "source IP not allowed"), "stop"),
        (refusal(400, "User @a@b.test not found"), "stop"),
        (refusal(404, "not found"), "retry"),
        (refusal(409, "conflict"), "retry"),
        (refusal(429, "slow down"), "retry"),
        (refusal(500, "database away"), "retry"),
        (refusal(503, "identity service unavailable"), "retry"),
        (HostUnreachable("connection refused", sent=False), "retry"),
        (HostMisbehaved("not JSON"), "retry"),
        (LedgerUnavailable("connection refused"), "retry"),
        (TimeoutError(), "retry"),
        (RuntimeError("a fault of ours"), "retry"),
    ],
)
def test_what_helps_against_an_error(error: Exception, remedy: Remedy) -> None:
    assert diagnose(error).remedy == remedy


@pytest.mark.parametrize(("asked_s", "waits_s"), [(None, 0.0), (7.0, 7.0), (-3.0, 0.0), (10**9, MAX_RETRY_AFTER_S)])
def test_a_host_that_asks_for_patience_gets_it_within_reason(asked_s: float | None, waits_s: float) -> None:
    assert diagnose(refusal(503, "busy", retry_after_s=asked_s)).retry_after_s == waits_s


def test_the_reason_is_the_hosts_own_text_and_fits_a_line() -> None:
    assert diagnose(refusal(403, "User @a@b.test not authorised")).reason == (
        "the host answered 403: User @a@b.test not authorised"
    )
    assert len(diagnose(refusal(502, "<html>" * 1000)).reason) == MAX_REASON_CHARS


def test_a_fault_of_our_own_is_named_without_its_text() -> None:
    assert diagnose(KeyError("value that may be anything")).reason == "unexpected KeyError"
