"""How an entry of a ledger is written in Redis: 25 bytes, the parent's id where there is one, and the sender.

A list of such entries costs half of a stream of them, and a short one next to nothing (`docs/ledger.md`). The id is not
in it: a second list, in step with this one, holds the ids as decimal strings, where LPOS finds them.

=======  =====  ==================================================================================
offset   bytes  what
=======  =====  ==================================================================================
0        8      arrived, µs since 1970 by the ledger's clock (the script writes it)
8        8      sent, s since 1970: a big-endian double, so that bytes compare as the times do
16       1      tags: flags, whether there is a parent, the source
17       8      root, 0 while unknown (a script replaces it in place)
25       0 | 8  pid
25 | 33  rest   the sender in UTF-8
=======  =====  ==================================================================================
"""

from __future__ import annotations

import struct

from ledger.values import Arrival, Seen, Source

_HEAD = struct.Struct(">QdBQ")
_REST = struct.Struct(">dBQ")
_ID = struct.Struct(">Q")
_TIME = struct.Struct(">d")

_NO_REPLY, _REACTION, _TERMINAL, _HAS_PID = 1, 2, 4, 8
_SOURCE_SHIFT = 4
_SOURCES: tuple[Source, ...] = ("seed", "push", "backfill", "reconcile", "poll")
"""In the order of their numbers in the tags: only ever add at the end."""
_NUMBERS = {source: number for number, source in enumerate(_SOURCES)}


def pack(seen: Seen, source: Source) -> bytes:
    """The entry without its time of arrival."""
    tags = (
        _NO_REPLY * seen.no_reply
        | _REACTION * seen.reaction
        | _TERMINAL * seen.terminal
        | _HAS_PID * (seen.pid is not None)
        | _NUMBERS[source] << _SOURCE_SHIFT
    )
    pid = b"" if seen.pid is None else _ID.pack(seen.pid)
    return _REST.pack(_positive(seen.sent_at_s), tags, seen.root) + pid + seen.from_.encode()


def unpack(entry: bytes, *, n: int, message_id: int) -> Arrival:
    """The entry at an offset."""
    arrived_us, sent_at_s, tags, root = _HEAD.unpack_from(entry)
    pid, start = None, _HEAD.size
    if tags & _HAS_PID:
        (pid,) = _ID.unpack_from(entry, start)
        start += _ID.size
    return Arrival(
        n=n,
        id=message_id,
        pid=pid,
        root=root,
        from_=entry[start:].decode(),
        no_reply=bool(tags & _NO_REPLY),
        reaction=bool(tags & _REACTION),
        terminal=bool(tags & _TERMINAL),
        sent_at_s=sent_at_s,
        arrived_at_s=arrived_us / 1e6,
        source=_SOURCES[tags >> _SOURCE_SHIFT],
    )


def pack_root(root: int) -> bytes:
    """A root as it stands in an entry."""
    return _ID.pack(root)


def pack_time(time_s: float) -> bytes:
    """A time as it stands in an entry."""
    return _TIME.pack(_positive(time_s))


def unpack_time(data: bytes) -> float:
    """A time out of an entry or a baseline."""
    (time_s,) = _TIME.unpack(data)
    return float(time_s)


def pack_tip(tip: int) -> bytes:
    """A time of arrival as it stands in an entry."""
    return _ID.pack(tip)


def unpack_tip(data: bytes) -> int:
    """A time of arrival out of an entry; 0 for none."""
    return _ID.unpack(data)[0] if data else 0


def micros(time_s: float) -> int:
    """Whole microseconds, rounded down: never later than the time itself."""
    return int(_positive(time_s) * 1e6)


def _positive(time_s: float) -> float:
    # The sign bit would turn the order of the bytes around; no message is older than 1970.
    return time_s if time_s > 0.0 else 0.0
