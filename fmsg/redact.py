"""Credentials out of text: what is sent, and what is said in errors and logs (FMSG-007, Secret redaction).

A credential is found by a literal that it begins with (its marker), then read to its end. Every marker is looked for
with `str.find`, and what follows it is read by a pattern that cannot fail after reading far, so that time grows with
the length of the text and not with its square, whatever the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

import msgspec

from fmsg.credentials import PREFIXED, Prefixed

_JWT_SEGMENT = re.compile(r"[A-Za-z0-9_-]++")
_JWT_MIN_SEGMENT = 10
"""The shortest header, ``{"alg":""}``, is 14 characters; shorter things after ``eyJ`` are not a token."""

_FMSG_KEY = re.compile(
    r"fmsgk(?:\\?_|%5[Ff]|\\u005[Ff]|&#95;|&#[Xx]5[Ff];)"
    r"(?:[A-Za-z0-9+/=_.~-]++|%[0-9A-Fa-f]{2}|\\[+/=_.~-]|\\u00[0-9A-Fa-f]{2}|&#[Xx]?[0-9A-Fa-f]{1,6};)++"
)
"""The whole of a key in any spelling a host, a proxy or a model may give it back in: plain (standard base64 with
``+ / =``), percent-encoded, JSON-escaped, HTML-escaped or with Markdown's backslashes. Stopping at ``+`` would leave
half a secret."""

_UNSEEN = "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
"""Characters without any width: a credential with one of them in it looks whole and is copied whole."""
_UNSEEN_ONE = re.compile(f"[{_UNSEEN}]")

_PEM_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_MATERIAL = re.compile(r"(?:(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]{16,}+)++")
"""Lines of base64, also where a line break is written as the two characters ``\\n``."""
_PEM_REACH = 64 * 1024
"""The end of a block is looked for this far: the largest keys in use are under 16 KiB."""

_TELEGRAM = re.compile(r":AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])")
_DIGITS = frozenset("0123456789")


_MARKERS = ("fmsgk", "eyJ", "-----BEGIN ", ":AA", *dict.fromkeys(kind.marker for kind in PREFIXED))
"""Every literal that a credential has in it."""

_HINGES = ("_", "-")
"""Characters that most markers have and little text has: found quickly, and then what stands before one is read."""

_HINGED = tuple(
    (hinge, tuple({marker[: marker.index(hinge) + 1] for marker in _MARKERS if marker.find(hinge) > 0}))
    for hinge in _HINGES
)
"""For each hinge the beginnings, up to and with it, of the markers that have it."""

_UNHINGED = tuple(marker for marker in _MARKERS if max(marker.find(hinge) for hinge in _HINGES) <= 0)
"""The other markers."""

_DENSE = 16
"""Text with more than one hinge in so many characters is asked for each marker: reading at every hinge takes longer."""


class _Span(msgspec.Struct, frozen=True):
    start: int
    end: int
    label: str


def redact(text: str) -> tuple[str, int]:
    """The text with every credential replaced by ``[redacted …]``, and how many were replaced."""
    if not suspicious(text):
        return text, 0
    found = [*_found(text), *_found_unseen(text)]
    spans = _merged(sorted(found, key=lambda span: (span.start, -span.end)))
    if not spans:
        return text, 0
    parts: list[str] = []
    position = 0
    for span in spans:
        parts += (text[position : span.start], f"[redacted {span.label}]")
        position = span.end
    parts.append(text[position:])
    return "".join(parts), len(spans)


def suspicious(text: str) -> bool:
    """Whether anything in the text looks like the marker of a credential. If not, there is none in any part of it.

    Nearly all text is not, and this is 20 times as fast as looking for the credentials themselves. It can be asked of
    many strings at once by asking it of the JSON that holds them: no marker is changed by being written as JSON.
    """
    for marker in _UNHINGED:
        if marker in text:
            return True
    for hinge, beginnings in _HINGED:
        if text.count(hinge) * _DENSE > len(text):
            if any(beginning in text for beginning in beginnings):
                return True
            continue
        position = text.find(hinge)
        while position >= 0:
            if text.endswith(beginnings, 0, position + 1):
                return True
            position = text.find(hinge, position + 1)
    return _has_unseen(text) and suspicious(_UNSEEN_ONE.sub("", text))


def _has_unseen(text: str) -> bool:
    if not text.isascii():
        for char in _UNSEEN:  # Plain, since a generator costs three times as much as the looking.
            if char in text:
                return True
    return False


def scrub(text: str) -> str:
    """The text without credentials."""
    return redact(text)[0]


def quoted(text: str, limit: int = 80) -> str:
    """A value somebody gave us as an error shows it: in quotes, without credentials, cut to ``limit`` characters."""
    shown = scrub(text)
    return repr(shown if len(shown) <= limit else shown[: limit - 3] + "...")


def _merged(spans: list[_Span]) -> list[_Span]:
    """Overlapping spans as one, under the name of the first."""
    merged: list[_Span] = []
    for span in spans:
        if merged and span.start < merged[-1].end:
            last = merged.pop()
            merged.append(_Span(last.start, max(last.end, span.end), last.label))
        else:
            merged.append(span)
    return merged


def _found_unseen(text: str) -> Iterator[_Span]:
    """What is found once the characters without width are left out, where it stands in the text with them."""
    if not _has_unseen(text):
        return
    # The n-th of them, counted from 0, stood before the character that is now at its place less n.
    left_out = [match.start() - n for n, match in enumerate(_UNSEEN_ONE.finditer(text))]
    for span in _found(_UNSEEN_ONE.sub("", text)):
        last = span.end - 1
        start, end = span.start + bisect_right(left_out, span.start), last + bisect_right(left_out, last) + 1
        yield _Span(start, end, span.label)


def _found(text: str) -> Iterator[_Span]:
    yield from _fmsg_keys(text)
    yield from _private_keys(text)
    yield from _jwts(text)
    yield from _telegram_tokens(text)
    for kind in PREFIXED:
        yield from _prefixed(text, kind)


def _occurrences(text: str, marker: str, read: Callable[[int], tuple[int, _Span | None]]) -> Iterator[_Span]:
    """The spans that ``read`` finds at the occurrences of a marker; it returns also where to look on."""
    position = text.find(marker)
    while position >= 0:
        after, span = read(position)
        if span is not None:
            yield span
        position = text.find(marker, max(after, position + 1))


def _fmsg_keys(text: str) -> Iterator[_Span]:
    def read(position: int) -> tuple[int, _Span | None]:
        match = _FMSG_KEY.match(text, position)
        return (match.end(), _Span(position, match.end(), "fmsg key")) if match else (position, None)

    return _occurrences(text, "fmsgk", read)


def _prefixed(text: str, kind: Prefixed) -> Iterator[_Span]:
    def read(position: int) -> tuple[int, _Span | None]:
        match = kind.pattern.match(text, position)
        if match is None:
            return position, None
        start = match.start("secret") if "secret" in kind.pattern.groupindex else position
        return match.end(), _Span(start, match.end(), kind.label)

    return _occurrences(text, kind.marker, read)


def _telegram_tokens(text: str) -> Iterator[_Span]:
    """``<bot id>:AA…``: the only kind whose marker stands in its middle."""

    def read(position: int) -> tuple[int, _Span | None]:
        match = _TELEGRAM.match(text, position)
        start = position
        while match and start > 0 and position - start < 11 and text[start - 1] in _DIGITS:
            start -= 1
        if match is None or not 8 <= position - start <= 10:
            return position, None
        return match.end(), _Span(start, match.end(), "Telegram token")

    return _occurrences(text, ":AA", read)


def _jwts(text: str) -> Iterator[_Span]:
    """``header.payload.signature``, or the five parts of an encrypted token. A header is JSON: it begins ``eyJ``."""

    def read(position: int) -> tuple[int, _Span | None]:
        ends = [_segment_end(text, position)]
        while len(ends) < 5 and text.startswith(".", ends[-1]):
            ends.append(_segment_end(text, ends[-1] + 1))
        end = _jwt_end(text, position, ends)
        return (ends[0], None) if end is None else (end, _Span(position, end, "JWT"))

    return _occurrences(text, "eyJ", read)


def _jwt_end(text: str, start: int, ends: list[int]) -> int | None:
    if ends[0] - start < _JWT_MIN_SEGMENT or len(ends) < 2:
        return None
    if text.startswith("eyJ", ends[0] + 1) and ends[1] - ends[0] > _JWT_MIN_SEGMENT:
        return ends[min(2, len(ends) - 1)]
    encrypted = len(ends) == 5 and ends[3] - ends[2] > _JWT_MIN_SEGMENT and ends[4] - ends[3] > _JWT_MIN_SEGMENT
    return ends[4] if encrypted else None


def _segment_end(text: str, position: int) -> int:
    match = _JWT_SEGMENT.match(text, position)
    return match.end() if match else position


def _private_keys(text: str) -> Iterator[_Span]:
    def read(position: int) -> tuple[int, _Span | None]:
        begin = _PEM_BEGIN.match(text, position)
        if begin is None:
            return position, None
        limit = text.find("-----BEGIN", begin.end(), begin.end() + _PEM_REACH)
        end = _PEM_END.search(text, begin.end(), limit if limit >= 0 else begin.end() + _PEM_REACH)
        if end is None:
            end = _PEM_MATERIAL.match(text, begin.end())
        if end is None:
            return begin.end(), None
        return end.end(), _Span(position, end.end(), "private key")

    return _occurrences(text, "-----BEGIN ", read)
