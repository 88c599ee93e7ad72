"""Everything this package can raise.

FmsgError
├── BadInput                    a value given to us is not what the protocol allows
├── CredentialMissing           no token can be had now; the next request of the caller brings one
├── HostRefused                 the host answered with an error status; carries it and the host's own text
│   ├── Unauthorized            401: the key or token is not accepted
│   ├── Forbidden               403: about the identity or the participant, never retried
│   ├── NotFound                404
│   ├── Conflict                409
│   ├── Throttled         *     429, with ``retry_after_s`` where the host gave one
│   ├── HostFailed        *     5xx: the host is in trouble
│   └── (HostRefused itself)    400 and all others: the request is not one the host takes
├── HostUnreachable       *     no answer: connect, TLS, deadline or a cut connection
└── HostMisbehaved        *     an answer that cannot be understood
    └── AnswerTooLong     *     one that is longer than any answer to this request

*: also `Transient`, so that one ``except`` catches all that may be over with the next try.
"""

from __future__ import annotations


class FmsgError(Exception):
    """Base of all errors of this package."""

    retry_after_s: float | None = None
    """The delay that the host asked for, in seconds, where it did."""


class Transient(FmsgError):
    """The host is in trouble or asks for patience. The same request may succeed later."""


class BadInput(FmsgError, ValueError):
    """A value is not what the protocol allows. The text names the thing, the reason and the next step."""


class CredentialMissing(FmsgError):
    """No access token for this caller at the moment; the caller's next request brings a new one."""


class HostRefused(FmsgError):
    """The host answered with an error status.

    ``status`` is the HTTP status, ``reason`` the host's own text (redacted, at most 2 KiB), ``code`` its machine code
    where it gave one, ``retry_after_s`` the delay it asked for. ``worded`` is False where the answer had no reason in
    the Web API's form: then a proxy or another web server may have written it.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        code: str | None = None,
        retry_after_s: float | None = None,
        worded: bool = True,
    ) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason
        self.code = code
        self.retry_after_s = retry_after_s
        self.worded = worded


class Unauthorized(HostRefused):
    """401: the API key or access token is not accepted (any more)."""


class Forbidden(HostRefused):
    """403: the caller may not do this. Never retried."""


class NotFound(HostRefused):
    """404: unknown to the host, or not (yet) readable."""


class Conflict(HostRefused):
    """409: the message's state does not allow it."""


class Throttled(HostRefused, Transient):
    """429: the host asks for patience."""


class HostFailed(HostRefused, Transient):
    """5xx: the host is in trouble."""


class HostUnreachable(Transient):
    """No answer from the host.

    ``sent`` says whether the request may have reached the host: when it may have, its outcome is unknown.
    """

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class HostMisbehaved(Transient):
    """The host's answer cannot be understood."""


class AnswerTooLong(HostMisbehaved):
    """The host's answer is longer than any answer to this request may be. It was not read further."""


def refusal(
    status: int, reason: str, *, code: str | None = None, retry_after_s: float | None = None, worded: bool = True
) -> HostRefused:
    """The right subclass of `HostRefused` for an HTTP status."""
    kind: type[HostRefused]
    if status == 401:
        kind = Unauthorized
    elif status == 403:
        kind = Forbidden
    elif status == 404:
        kind = NotFound
    elif status == 409:
        kind = Conflict
    elif status == 429:
        kind = Throttled
    elif status >= 500:
        kind = HostFailed
    else:
        kind = HostRefused
    return kind(status, reason, code=code, retry_after_s=retry_after_s, worded=worded)
