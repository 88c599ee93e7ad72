"""What errors mean: to a feed, whether time helps, a new token or nothing; to the daemon, whether the host is lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from fmsg.errors import (
    CredentialMissing,
    FmsgError,
    Forbidden,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    Throttled,
    Transient,
    Unauthorized,
)
from ledger.port import LedgerError, LedgerUnavailable
from ledger.values import CallerKey

Remedy = Literal["retry", "credential", "stop"]
"""What helps against an error: time, a fresh token from the caller's next request, or nothing we can do."""

Trouble = Literal["host", "store", "caller"]
"""Where an error comes from: the host in general, the store, or what concerns this caller alone."""

STEADY_S = 30.0
"""A socket that was live for so long had no trouble of its own: the next failure starts with a short delay again. Much
less, and a host that accepts and cuts at once would be asked about once a second for ever."""

ASK_MAX_S = 300.0
"""Looking for a new token gets this rare in the end: requests announce theirs, this is for lost hints only."""

MAX_RETRY_AFTER_S = 900.0
"""A host may ask for patience, not for ever: beyond a quarter of an hour we look again all the same, or a typing error
in a proxy's Retry-After would silence a feed for days."""

MAX_REASON_CHARS = 300
"""An error in a report is read by a person in one line of `status`; a proxy's whole HTML page would not fit."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What an error means to a feed.

    ``retry_after_s`` is the least delay that the host asked for (0 where it asked for none); ``reason`` is for people.
    """

    remedy: Remedy
    reason: str
    trouble: Trouble = "caller"
    retry_after_s: float = 0.0


def diagnose(error: BaseException) -> Diagnosis:
    """What helps against ``error``.

    401 and a missing token ask for a credential. 403 and 400 (FMSG-003, "Token exchange": an address that is not
    accepted any more) stop the feed. Everything else is the network's, the host's, the store's or our own trouble,
    and passes with time; ``Retry-After`` is honoured up to `MAX_RETRY_AFTER_S`.
    """
    reason = _reason(error)
    if isinstance(error, CredentialMissing | Unauthorized):
        return Diagnosis(remedy="credential", reason=reason)
    if isinstance(error, Forbidden) or (isinstance(error, HostRefused) and error.status == 400):
        return Diagnosis(remedy="stop", reason=reason)
    trouble: Trouble = "caller"
    if isinstance(error, Transient) and not isinstance(error, Throttled):
        trouble = "host"
    elif isinstance(error, LedgerUnavailable):
        trouble = "store"
    asked_s = (error.retry_after_s if isinstance(error, FmsgError) else None) or 0.0
    retry_after_s = min(MAX_RETRY_AFTER_S, max(0.0, asked_s))
    return Diagnosis(remedy="retry", reason=reason, trouble=trouble, retry_after_s=retry_after_s)


def _reason(error: BaseException) -> str:
    if isinstance(error, HostRefused):
        text = f"the host answered {error.status}: {error.reason}"
    elif isinstance(error, CredentialMissing):
        text = "no valid token; the caller's next request brings one"
    elif isinstance(error, HostUnreachable):
        text = f"no answer from the host: {error}"
    elif isinstance(error, HostMisbehaved):
        text = f"an answer of the host cannot be understood: {error}"
    elif isinstance(error, LedgerError):
        text = f"the ledger's store: {error or type(error).__name__}"
    else:
        text = f"unexpected {type(error).__name__}"
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


LOST_AFTER_S = 3.0
"""A host that restarts within this time is a matter of reconnecting, which every feed does by itself."""

LOST_FOR_CALLERS = 3
"""So many callers in a row, or all there are, have to meet trouble: one whom the host answers with garbage proves
nothing about the host."""


class HostHealth:
    """Whether the host answers, judged from what all feeds of a daemon meet."""

    def __init__(self) -> None:
        self._failing: set[CallerKey] = set()
        self._since_s = 0.0

    def answered(self) -> None:
        """The host answered somebody."""
        self._failing.clear()

    def failed(self, caller: CallerKey, now_s: float, *, feeds: int) -> float | None:
        """The host failed a caller. Returns for how long it has been lost, or None where it may not be."""
        if not self._failing:
            self._since_s = now_s
        if len(self._failing) < LOST_FOR_CALLERS:
            self._failing.add(caller)
        lasted_s = now_s - self._since_s
        enough = len(self._failing) >= min(LOST_FOR_CALLERS, max(1, feeds))
        return lasted_s if enough and lasted_s >= LOST_AFTER_S else None
