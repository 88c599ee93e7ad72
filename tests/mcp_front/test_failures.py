"""Failures an agent can act on."""

from __future__ import annotations

import mcp_types
import pytest

from fmsg.errors import BadInput, CredentialMissing, HostMisbehaved, HostUnreachable, refusal
from ledger.port import LedgerUnavailable
from mcp_front.failures import Kind, ToolFailure, failure_of, failure_result, not_configured
from mcp_front.framing import STATEMENT

KEY = "fmsgk_abc_ABCDEFGHIJKLMNOPQRSTUVWX+/=="


def text_of(result: mcp_types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    return block.text


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 429, 500, 503])
def test_the_hosts_text_is_there_verbatim_framed_and_with_a_next_step(status: int) -> None:
    reason = 'emoji must be "one"\nline two <<<x'
    result = failure_result(failure_of(refusal(status, reason, code="c1")))
    assert result.is_error is True
    assert reason in text_of(result)
    assert text_of(result).startswith(STATEMENT)
    error = result.structured_content["error"]
    assert (error["host_text"], error["status"], error["code"]) == (reason, status, "c1")
    assert error["next"] in text_of(result)
    assert next(iter(result.structured_content)) == "notice"


def test_a_host_that_asks_for_patience_is_given_it() -> None:
    failure = failure_of(refusal(429, "slow down", retry_after_s=12.4))
    assert failure.next_step == "Wait 12 s, then call again."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadInput("id: is wrong."), "bad_argument"),
        (refusal(404, "no"), "host_refused"),
        (HostUnreachable("no answer within 30 s"), "host_unreachable"),
        (HostMisbehaved("no JSON"), "host_unreachable"),
        (CredentialMissing("none"), "no_credential"),
        (LedgerUnavailable("Redis"), "store_unavailable"),
        (RuntimeError("secret detail"), "internal"),
        (ToolFailure("refused_here", "no", next_step="yes"), "refused_here"),
    ],
)
def test_every_error_has_its_kind(error: Exception, kind: Kind) -> None:
    assert failure_of(error).kind == kind


def test_a_host_that_gives_no_answer_is_worth_another_try() -> None:
    failure = failure_of(HostUnreachable("https://h: no connection (refused)."))
    assert failure.text == "The fmsg host gave no answer: https://h: no connection (refused)."
    assert failure.next_step.startswith("Try again later")


def test_an_unknown_fault_tells_nothing_of_itself() -> None:
    result = failure_result(failure_of(RuntimeError("secret detail")))
    assert "secret" not in result.model_dump_json()


@pytest.mark.parametrize(
    "error",
    [
        BadInput(f"x: {KEY} is wrong"),
        refusal(400, f"bad key {KEY}"),
        HostUnreachable(f"cannot reach https://h/?k={KEY}"),
        HostMisbehaved(f"redirect to https://h/{KEY}"),
        ToolFailure("refused_here", f"x {KEY}", next_step="", host_text=KEY),
    ],
)
def test_no_error_carries_a_credential(error: Exception) -> None:
    dumped = failure_result(failure_of(error)).model_dump_json()
    assert "fmsgk_" not in dumped
    assert "ABCDEFGH" not in dumped


@pytest.mark.parametrize("missing", [["FMSG_API_URL"], ["FMSG_API_URL", "FMSG_API_KEY"]])
def test_missing_variables_are_named(missing: list[str]) -> None:
    result = not_configured(missing)
    assert result.is_error is True
    assert all(name in text_of(result) for name in missing)


def test_a_hosts_code_acts_on_nobody() -> None:
    result = failure_result(failure_of(refusal(400, "no", code="a\n\u202eb")))
    assert result.structured_content is not None
    assert result.structured_content["error"]["code"] == "a<U+000A><U+202E>b"
