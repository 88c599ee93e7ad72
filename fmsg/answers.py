"""What an HTTP answer of a host says: the outcome, the host's reason, its clock, the delay it asks for."""

from __future__ import annotations

import asyncio
import email.utils
import re
from collections.abc import Mapping

import aiohttp
import msgspec

from fmsg.decode import UNREADABLE
from fmsg.errors import AnswerTooLong, FmsgError, HostMisbehaved, refusal
from fmsg.redact import scrub_beginning

SMALL_BYTES = 64 * 1024
"""The longest answer that holds an id, a time and the like."""

MAX_REASON_BYTES = 2048
"""How much of a host's (or a proxy's) text goes into an error (FMSG-003 as met: "a bounded preview")."""

MAX_ERROR_BYTES = 64 * 1024
"""How much of an error answer is read. JSON around the reason is understood only if it is whole."""

ERROR_WITHIN_S = 5.0
"""How long a refusal's text is waited for. Its status says enough."""

MAX_RETRY_AFTER_S = 3600.0
"""The longest delay that a host is granted."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer with a 2xx status. ``host_time_s`` is the host's ``Date`` in POSIX seconds, if given."""

    status: int
    data: bytes
    host_time_s: float | None = None


class _ErrorBody(msgspec.Struct, frozen=True):
    error: str
    code: str | int | None = None


_NOT_SHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_decode_error = msgspec.json.Decoder(_ErrorBody).decode


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """At most ``limit`` bytes of the body, and whether there was more. The caller closes the answer."""
    data = bytearray()  # Not a list of chunks: a host that sends single bytes would make each of them an object.
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > limit:
            return bytes(data[:limit]), True
    return bytes(data), False


async def read_answer(response: aiohttp.ClientResponse, *, max_bytes: int = SMALL_BYTES) -> Answer:
    """The whole of an answer with a 2xx status; closes it. Raises `AnswerTooLong`, where it can before reading."""
    more = (response.content_length or 0) > max_bytes
    try:
        data, more = (b"", True) if more else await read_up_to(response, max_bytes)
    finally:
        response.close()
    if more:
        raise AnswerTooLong(f"the host's answer is longer than {max_bytes} bytes, the most for this request.")
    return Answer(status=response.status, data=data, host_time_s=host_time_s(response.headers))


async def check(response: aiohttp.ClientResponse) -> None:
    """Raise the refusal where the status is not 2xx, `HostMisbehaved` where it is a redirect or compressed."""
    if not 200 <= response.status < 300:
        raise await failure(response)
    if _encoded(response):
        encoding = response.headers["Content-Encoding"]
        response.close()
        raise HostMisbehaved(
            f"the host sent an answer in the encoding {_shown(encoding, 40)}, which was not asked for. "
            "Check for a proxy in between that compresses."
        )


def _encoded(response: aiohttp.ClientResponse) -> bool:
    """Whether the body would have to be decompressed first: a small answer could become a gigabyte."""
    return response.headers.get("Content-Encoding", "identity").strip().lower() != "identity"


async def failure(response: aiohttp.ClientResponse) -> FmsgError:
    """The error that an answer with another status than expected is. Reads and closes it."""
    status = response.status
    try:
        async with asyncio.timeout(ERROR_WITHIN_S):
            data = b"" if _encoded(response) else (await read_up_to(response, MAX_ERROR_BYTES))[0]
    except (aiohttp.ClientError, TimeoutError):
        data = b""
    finally:
        response.close()
    if status < 400:
        return HostMisbehaved(_unexpected(status, response.headers))
    reason, code = reason_of(data, fallback=_shown(response.reason or "", 200) or "no reason given")
    return refusal(
        status, reason, code=code, retry_after_s=retry_after_s(response.headers), worded=_read_error(data) is not None
    )


def _unexpected(status: int, headers: Mapping[str, str]) -> str:
    location = headers.get("Location")
    if location is None:
        return f"the host answered with status {status}, which the Web API does not use."
    return (
        f"the host answered with a redirect ({status}) to {_shown(location, 200)}. Redirects are not followed "
        "with a credential: set the API URL to the final address."
    )


def reason_of(data: bytes, *, fallback: str) -> tuple[str, str | None]:
    """The host's reason, verbatim but without credentials and at most 2 KiB, and its machine code.

    ``data`` is ``{"error": …}``, or what a proxy in between wrote. Of that a preview is shown, and nothing is read out.
    """
    body = _read_error(data)
    if body is None:
        reason, code = data[: 4 * MAX_REASON_BYTES].decode("utf-8", "replace"), None
    else:
        reason, code = (
            body.error,
            None if body.code is None else _shown(str(body.code), 100),
        )
    return _shown(reason, MAX_REASON_BYTES) or fallback, code


def _read_error(data: bytes) -> _ErrorBody | None:
    """The Web API's form of an error, None where it is not that."""
    try:
        return _decode_error(data)
    except UNREADABLE:
        return None


def _shown(text: str, limit_bytes: int) -> str:
    """The beginning of a host's text without credentials, without control characters, which would drive a terminal
    that shows the log, and without half characters."""
    shown = scrub_beginning(_NOT_SHOWN.sub(" ", text[: 2 * MAX_ERROR_BYTES]), limit_bytes).strip()
    data = shown.encode()
    return shown if len(data) <= limit_bytes >= len(text) else data[: limit_bytes - 3].decode("utf-8", "ignore") + "…"


def host_time_s(headers: Mapping[str, str]) -> float | None:
    """The ``Date`` header as POSIX seconds."""
    return _http_date_s(headers.get("Date", ""))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """``Retry-After`` in seconds (RFC 9110, 10.2.3), counted from the answer's own ``Date`` where it is a date."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:10]), MAX_RETRY_AFTER_S)
    until, now = _http_date_s(value), host_time_s(headers)
    if until is None or now is None:
        return None
    return min(max(until - now, 0.0), MAX_RETRY_AFTER_S)


def _http_date_s(value: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
