"""What helps against an error."""

from __future__ import annotations

import pytest

from daemon.feed.diagnosis import (
    LOST_AFTER_S,
    MAX_REASON_CHARS,
    MAX_RETRY_AFTER_S,
    HostHealth,
    Remedy,
    Trouble,
    diagnose,
)
from fmsg.errors import CredentialMissing, HostMisbehaved, HostUnreachable, refusal
from ledger.port import LedgerUnavailable, NoLedger
from ledger.values import CallerKey


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


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (HostUnreachable("connection refused", sent=False), "host"),
        (refusal(500, "database away"), "host"),
        (HostMisbehaved("not JSON"), "host"),
        (LedgerUnavailable("connection refused"), "store"),
        (NoLedger(), "caller"),
        (refusal(429, "slow down"), "caller"),
        (refusal(401, "expired"), "caller"),
    ],
)
def test_whose_trouble_an_error_is(error: Exception, trouble: Trouble) -> None:
    assert diagnose(error).trouble == trouble


ANN, BEN, CAT = (CallerKey(letter * 32) for letter in "abc")


def test_the_host_is_lost_once_it_fails_several_callers_in_a_row_for_a_while() -> None:
    health = HostHealth()
    assert [health.failed(caller, 100.0, feeds=9) for caller in (ANN, BEN, CAT)] == [None] * 3
    assert health.failed(ANN, 100.0 + LOST_AFTER_S, feeds=9) == LOST_AFTER_S


def test_one_caller_whom_the_host_answers_with_garbage_proves_nothing() -> None:
    health = HostHealth()
    assert {health.failed(ANN, float(second), feeds=9) for second in range(60)} == {None}
    assert health.failed(ANN, 60.0, feeds=1) == 60.0, "it is the only one there is"


def test_an_answer_to_anybody_proves_that_the_host_is_there() -> None:
    health = HostHealth()
    for caller in (ANN, BEN, CAT):
        health.failed(caller, 0.0, feeds=3)
    health.answered()
    assert [health.failed(caller, 10.0, feeds=3) for caller in (ANN, BEN, CAT)] == [None] * 3
