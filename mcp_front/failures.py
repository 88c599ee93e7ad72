"""Failures as results an agent can act on: what failed, why (the host's own words verbatim), what to do next.

FMSG-007, Tools: failures are results with ``isError``; Safety Requirements: error text is redacted as what is sent.
"""

from __future__ import annotations

from typing import Any, Literal

import mcp_types
import msgspec

from fmsg.errors import (
    BadInput,
    Conflict,
    CredentialMissing,
    Forbidden,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    NotFound,
    Throttled,
    Unauthorized,
)
from fmsg.redact import scrub
from ledger.port import LedgerError
from mcp_front.framing import STATEMENT, Report, visible
from mcp_front.limits import OverBudget
from mcp_front.waiting.request import SubscriptionAway

Kind = Literal[
    "bad_argument",
    "refused_here",
    "host_refused",
    "host_unreachable",
    "outcome_unknown",
    "no_credential",
    "not_configured",
    "store_unavailable",
    "internal",
]
"""What sort of failure, for callers that look at the structured content."""


class ToolFailure(Exception):
    """A tool cannot do what was asked. ``text`` names the thing and the reason, ``next_step`` what to do about it."""

    def __init__(
        self, kind: Kind, text: str, *, next_step: str, host_text: str | None = None, **fields: str | float | None
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.next_step = next_step
        self.host_text = host_text
        self.fields = fields


class _Advice(msgspec.Struct, frozen=True):
    error: type[HostRefused]
    next_step: str


_ADVICE = (
    _Advice(
        Unauthorized,
        "The API key is not accepted, or no longer. Ask the person who configured this server for a valid one.",
    ),
    _Advice(Forbidden, "This address may not do that; do not repeat the call. Check the id and who takes part."),
    _Advice(NotFound, "Check the id; list_messages, list_sent and get_thread give valid ones."),
    _Advice(
        Conflict,
        "The message's state does not allow it; get_message shows the state. Leave out a domain that the host names.",
    ),
    _Advice(Throttled, "Wait before the next call."),
    _Advice(HostFailed, "The host is in trouble. Try again later; nothing was done."),
    _Advice(HostRefused, "Change what the host names and call again."),
)
"""The first that fits, from narrow to wide."""


CORRECT_IT = "Ask the user to correct that in the environment of this server and to start it again."
"""What an agent can do about a setting of a stdio server that cannot be used: it does not get at the environment."""

_LATER = "Try again later. If it stays so, tell the person who configured this server."


def failure_of(error: Exception) -> ToolFailure:
    """What a known error means to the caller of a tool; an unknown one is ``internal`` and tells nothing of itself."""
    match error:
        case ToolFailure():
            return error
        case BadInput():
            return ToolFailure("bad_argument", str(error), next_step="")
        case OverBudget():
            return ToolFailure("refused_here", str(error), next_step="", retry_after_s=error.retry_after_s)
        case HostRefused():
            return _refused(error)
        case HostUnreachable():
            reason = visible(str(error))
            return ToolFailure("host_unreachable", f"The fmsg host gave no answer: {reason}", next_step=_LATER)
        case HostMisbehaved():
            return ToolFailure(
                "host_unreachable",
                "The fmsg host's answer could not be understood.",
                next_step=_LATER,
                host_text=str(error),
            )
        case CredentialMissing():
            return ToolFailure(
                "no_credential", "There is no valid credential for the host now.", next_step="Call again in a moment."
            )
        case SubscriptionAway():
            return ToolFailure("store_unavailable", str(error), next_step="Make the same call again in a few seconds.")
        case LedgerError():
            return ToolFailure(
                "store_unavailable", "The server's store cannot be reached.", next_step="Call again in a moment."
            )
        case _:
            return ToolFailure(
                "internal",
                "The server failed; the fault is in its log.",
                next_step="Try again once; then tell the operator.",
            )


def _refused(error: HostRefused) -> ToolFailure:
    advice = next(advice.next_step for advice in _ADVICE if isinstance(error, advice.error))
    if error.retry_after_s is not None:
        advice = f"Wait {max(1, round(error.retry_after_s))} s, then call again."
    return ToolFailure(
        "host_refused",
        f"The fmsg host refused this with status {error.status}.",
        next_step=advice,
        host_text=error.reason,
        status=error.status,
        code=None if error.code is None else visible(error.code),
    )


def failure_text(failure: ToolFailure) -> str:
    """The failure in words."""
    report = Report()
    report.say(scrub(failure.text))
    if failure.host_text is not None:
        report.say("It said:")
        report.fence(failure.host_text)
    if failure.next_step:
        report.say(f"Next: {failure.next_step}")
    return report.text()


def failure_result(failure: ToolFailure) -> mcp_types.CallToolResult:
    """The result with ``isError``; text and structured content say the same."""
    error: dict[str, Any] = {"kind": failure.kind, "reason": scrub(failure.text)}
    error |= {name: value for name, value in failure.fields.items() if value is not None}
    if failure.host_text is not None:
        error["host_text"] = scrub(failure.host_text)
    if failure.next_step:
        error["next"] = failure.next_step
    structured: dict[str, Any] = {"error": error}
    if failure.host_text is not None:
        structured = {"notice": STATEMENT, **structured}
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=failure_text(failure))],
        structured_content=structured,
        is_error=True,
    )


def not_configured(missing: list[str]) -> mcp_types.CallToolResult:
    """The answer of every tool over stdio while variables are missing (FMSG-007, stdio Profile)."""
    names = " and ".join(missing)
    return failure_result(
        ToolFailure(
            "not_configured",
            f"{names} {'is' if len(missing) == 1 else 'are'} not set, so this server has no address to act as.",
            next_step=f"Ask the user to set {names} in the environment of this server and to start it again.",
        )
    )
