"""What helps against an error."""

from __future__ import annotations

import pytest

from daemon.feed.diagnosis import MAX_REASON_CHARS, MAX_RETRY_AFTER_S, Remedy, diagnose
from fmsg.errors import CredentialMissing, HostMisbehaved, HostUnreachable, refusal
from ledger.port import LedgerUnavailable


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
