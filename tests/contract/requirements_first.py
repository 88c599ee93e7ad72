"""The two checklists of "Model Context Protocol from First Principles", and how a server answers each item."""

from __future__ import annotations

from tests.contract.requirement import Requirement as R

_CORRECT = "Implementation checklist: protocol correctness"
_SECURE = "Implementation checklist: security controls"

FIRST_PRINCIPLES: tuple[R, ...] = (
    R("first.isolated", _CORRECT, "item", "Sessions are isolated: nothing of one client's shows in another's."),
    R("first.initialization", _CORRECT, "item", "Eras with initialize need it before operation."),
    R("first.version", _CORRECT, "item", "The negotiated version holds for what follows; an unknown one is refused."),
    R("first.correlation", _CORRECT, "item", "Request ids correlate and give no authority."),
    R(
        "first.notifications",
        _CORRECT,
        "item",
        "A notification gets no response, and one with an id is no notification.",
    ),
    R("first.validation", _CORRECT, "item", "Tool arguments and resource URIs are validated."),
    R("first.errors", _CORRECT, "item", "Protocol errors and domain failures are kept apart."),
    R("first.executable", _SECURE, "item", "The local server can be pinned: exact dependencies, with hashes."),
    R("first.origin", _SECURE, "item", "Origins are validated and the default bind is loopback."),
    R(
        "first.metadata",
        _SECURE,
        "item",
        "No authorization endpoint is made up: without sign-in none is named.",
    ),
    R(
        "first.audience",
        _SECURE,
        "item",
        "A token of the upstream API does not open this server, only an API key does.",
    ),
    R("first.passthrough", _SECURE, "item", "What the client sends is not passed on; upstream sees our own token."),
    R("first.consent", _SECURE, "item", "Sensitive tools say so, with their material arguments in the open."),
    R("first.untrusted", _SECURE, "item", "Returned content is marked as untrusted."),
)
