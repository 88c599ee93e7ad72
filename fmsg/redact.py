"""Credentials out of text: what is sent, and what is said in errors and logs (FMSG-007, Secret redaction).

One regular expression finds all kinds of credentials in one pass (`fmsg.credentials`). Its time grows with the length
of the text, whatever the text. A long text is searched in pieces: each search may read beyond the end of its piece as
far as a decision needs, and the next one begins where the last credential ended, so that a border hides none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterator
from functools import cache

from ahocorasick_rs import BytesAhoCorasick

from fmsg.credentials import (
    KINDS,
    MARKERS,
    MAX_DECISION_CHARS,
    MAX_UNIT_CHARS,
    PRIVATE_KEY,
    TELEGRAM,
    Kind,
    alternation,
)
from fmsg.pieces import at_once, in_pieces

PIECE_CHARS = 64 * 1024
"""One search reads a piece and at most `MAX_DECISION_CHARS` more: some 3 ms, and 10 ms where the text is hostile."""

PIECE_CREDENTIALS = 1024
"""So many credentials end a step, too: each takes some microseconds of work in Python."""

SHORT_CHARS = 64 * 1024
"""Up to this length a text may be redacted on the event loop at once."""

_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_MATERIAL = re.compile(r"(?:(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]{16,}+)++")
"""Lines of base64, also where a line break is written as the two characters ``\\n``."""
_PEM_REACH = 64 * 1024
"""The end of a block is looked for this far: the largest keys in use are under 16 KiB."""

_BOT_ID = re.compile(r"(?<![0-9])[0-9]{8,10}\Z")

_UNSEEN = "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
"""Characters without any width: a credential with one of them in it looks whole and is copied whole."""
_UNSEEN_ONE = re.compile(f"[{_UNSEEN}]")

_OVERLAP = max(map(len, MARKERS))
"""A credential may begin with the last characters of another. The search goes back this much behind one."""


_SEARCHED_BYTES = 4096
"""Searched for markers at once. The automaton lists all it finds, and a hostile text has one in every two bytes."""

_INNER = frozenset("".join(marker[1:] for marker in MARKERS)) - {" "}
"""What stands behind the first character of a marker. The search goes back only before one of these."""

_Span = tuple[int, int, str]
"""Where a credential begins and ends, and its label. A plain tuple: a hostile text has millions."""


_any_credential = re.compile(
    alternation(
        (kind.marker, f"(?P<k{n}>{kind.rest}{f'(?:{kind.tail})*+' if kind.tail else ''})")
        for n, kind in enumerate(KINDS)
    )
)
_find = _any_credential.search
_markers = BytesAhoCorasick(marker.encode() for marker in MARKERS)
"""An Aho-Corasick automaton. Nearly all texts have no marker, and it tells so in a tenth of the expression's time."""


_by_number = {number: KINDS[int(name.removeprefix("k"))] for name, number in _any_credential.groupindex.items()}


@cache
def _tail(kind: Kind) -> re.Pattern[str]:
    """Matches at every place, as it also matches nothing."""
    return re.compile(f"(?:{kind.tail})*+")


def redact(text: str) -> tuple[str, int]:
    """The text with every credential replaced by ``[redacted …]``, and how many were replaced.

    For texts of up to `SHORT_CHARS`; where a text may be longer, an event loop is held by it: `redact_long`.
    """
    if len(text) <= PIECE_CHARS and not suspicious(text):
        return text, 0  # Nearly all texts.
    return at_once(_redacting(text))


async def redact_long(text: str) -> tuple[str, int]:
    """As `redact`, for text of any length: the event loop serves others in between."""
    return redact(text) if len(text) <= SHORT_CHARS else await in_pieces(_redacting(text))


def scrub(text: str) -> str:
    """The text without credentials, for short texts as `redact`."""
    return redact(text)[0]


async def scrub_long(text: str) -> str:
    """The text without credentials, whatever its length."""
    return (await redact_long(text))[0]


def suspicious(text: str) -> bool:
    """Whether anything in the text looks like the marker of a credential. If not, there is none in any part of it.

    It can be asked of many strings at once by asking it of the JSON that holds them: no marker is changed by being
    written as JSON. For short texts as `redact`.
    """
    return _has_marker(text) or (_has_unseen(text) and _has_marker(_UNSEEN_ONE.sub("", text)))


def _has_marker(text: str) -> bool:
    data = memoryview(text.encode("utf-8", "surrogatepass"))
    for start in range(0, len(data), _SEARCHED_BYTES):  # Plain, since a generator costs as much as the search.
        if _markers.find_matches_as_indexes(data[start : start + _SEARCHED_BYTES + _OVERLAP]):
            return True
    return False


def scrub_beginning(text: str, limit: int) -> str:
    """The first ``limit`` characters, without credentials. The time does not depend on the length of the text.

    A credential that begins in these characters goes whole, also where it ends behind them. What stands for it can make
    the result a little longer than ``limit``.
    """
    if len(text) <= limit:
        return scrub(text)
    parts: list[str] = []
    position = 0
    for span in _merged(text[: limit + MAX_DECISION_CHARS]):
        if span is None:
            continue
        start, end, label = span
        if start >= limit:
            break
        parts += (text[position:start], f"[redacted {label}]")
        position = end
    parts.append(text[position:limit])
    return "".join(parts)


def quoted(text: str, limit: int = 80) -> str:
    """A value somebody gave us as an error shows it: in quotes, without credentials, cut to ``limit`` characters."""
    shown = scrub_beginning(text, limit)
    return repr(shown if len(text) <= limit >= len(shown) else shown[: limit - 3] + "...")


def _redacting(text: str, piece_chars: int = PIECE_CHARS) -> Generator[None, None, tuple[str, int]]:
    """`redact` in steps."""
    parts: list[str] = []
    done: list[str] = []
    position = count = 0
    for span in _merged(text, piece_chars):
        if span is None:
            done.append("".join(parts))  # Of very many credentials the pieces of text between them are not kept.
            parts.clear()
            yield
        else:
            count += 1
            start, end, label = span
            parts += (text[position:start], f"[redacted {label}]")
            position = end
    if not count:
        return text, 0
    return "".join((*done, *parts, text[position:])), count


def _merged(text: str, piece_chars: int = PIECE_CHARS) -> Iterator[_Span | None]:
    """The credentials in order, overlapping ones as one under the name of the first; None after each step."""
    found = _found(text, piece_chars)
    for start in range(0, len(text), piece_chars):
        if _has_unseen(text[start : start + piece_chars]):
            found = _in_order(found, _found_unseen(text, piece_chars))
            break
        yield None
    last: _Span | None = None
    for span in found:
        if span is None:
            yield None
        elif last is None:
            last = span
        elif span[0] < last[1]:
            last = last[0], max(last[1], span[1]), last[2]
        else:
            yield last
            last = span
    if last is not None:
        yield last


def _in_order(one: Iterator[_Span | None], other: Iterator[_Span | None]) -> Iterator[_Span | None]:
    """Two such series as one, by where a credential begins; of two that begin together the longer is first."""
    sources, heads = [one, other], [next(one, _END), next(other, _END)]
    while heads != [_END, _END]:
        for n, head in enumerate(heads):
            if head is None:
                yield None
                heads[n] = next(sources[n], _END)
                break
        else:
            n = min((0, 1), key=lambda n: _place(heads[n]))
            yield heads[n]
            heads[n] = next(sources[n], _END)


_END: _Span = (-1, -1, "")
"""Stands for the end of a series."""


def _place(span: _Span | None) -> tuple[bool, int, int]:
    return (True, 0, 0) if span is None or span is _END else (False, span[0], -span[1])


def _has_unseen(text: str) -> bool:
    if not text.isascii():
        for char in _UNSEEN:  # Plain, since a generator costs three times as much as the looking.
            if char in text:
                return True
    return False


def _found_unseen(text: str, piece_chars: int) -> Iterator[_Span | None]:
    """What is found once the characters without width are left out, where it stands in the text with them."""
    parts, starts, length = [], [], 0
    for start in range(0, len(text), piece_chars):
        starts.append(length)
        parts.append(_UNSEEN_ONE.sub("", text[start : start + piece_chars]))
        length += len(parts[-1])
        yield None
    piece, left_out = -1, list[int]()

    def original(position: int) -> int:
        nonlocal piece, left_out
        at = bisect_right(starts, position) - 1
        if at != piece:
            piece = at
            matches = _UNSEEN_ONE.finditer(text, at * piece_chars, (at + 1) * piece_chars)
            # The n-th of them, counted from 0, stood before the character that is now at its place less n.
            left_out = [match.start() - at * piece_chars - n for n, match in enumerate(matches)]
        within = position - starts[at]
        return at * piece_chars + within + bisect_right(left_out, within)

    for span in _found("".join(parts), piece_chars):
        yield span and (original(span[0]), original(span[1] - 1) + 1, span[2])


def _found(text: str, piece_chars: int) -> Iterator[_Span | None]:
    """The credentials in order of their beginnings; None after each piece of the text, and of a very long one."""
    position = count = 0
    for limit in range(piece_chars, len(text) + piece_chars, piece_chars):
        border = min(limit + MAX_DECISION_CHARS, len(text))
        while (match := _find(text, position, border)) and match.start() < limit:
            number = match.lastindex or 0
            kind = _by_number[number]
            start, end = match.span()
            if kind.grouped and match.start(number + 1) >= 0:
                start, end = match.span(number + 1)
            elif kind is PRIVATE_KEY:
                end = _pem_end(text, end) or start
            elif kind is TELEGRAM:
                start = _bot_id_start(text, start) or end
            if start == end:  # It is none, only the beginning of one.
                position = match.end()
                continue
            reach = border
            while kind.tail and reach - MAX_UNIT_CHARS < end and reach < len(text):
                yield None
                reach = min(reach + piece_chars, len(text))
                further = _tail(kind).match(text, end, reach)
                end = further.end() if further else end
            yield start, end, kind.label
            straddled = text[end : end + 1] in _INNER or text.endswith("BEGIN", start, end)
            position = max(match.start() + 1, end - _OVERLAP) if straddled else end
            count += 1
            if not count % PIECE_CREDENTIALS:
                yield None
        position = max(position, limit)
        yield None


def _pem_end(text: str, position: int) -> int | None:
    """Where the block ends whose first line ends here; without a last line, where its base64 ends."""
    reach = position + _PEM_REACH
    further = text.find("-----BEGIN", position, reach)
    end = _PEM_END.search(text, position, reach if further < 0 else further)
    end = end or _PEM_MATERIAL.match(text, position, reach)
    return None if end is None else end.end()


def _bot_id_start(text: str, position: int) -> int | None:
    """Where the 8 to 10 digits begin that end here."""
    digits = _BOT_ID.search(text, max(0, position - 11), position)
    return digits and digits.start()
