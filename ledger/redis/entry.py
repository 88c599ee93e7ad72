"""How an entry of a ledger is written in its stream: named fields, readable with ``XRANGE`` by anybody.

======  ====================================================================================
field   what
======  ====================================================================================
id      the message's id
pid     its parent's id; empty where it replies to nothing
root    the root of its thread; 0 where that was unknown at arrival (then see the index)
from    the sender
flags   of ``no_reply``, ``reaction`` and ``terminal`` those that hold, separated by commas
sent    when it became available by the host's clock, in seconds since 1970
source  how it was found (`ledger.values.Source`)
======  ====================================================================================

Always all of them and in this order: Redis then stores the names once per node of the stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast, get_args

from fmsg.reference import MAX_ID
from ledger.values import Arrival, Seen, Source, StreamId

NAMES = ("id", "pid", "root", "from", "flags", "sent", "source")
_FLAGS = ("no_reply", "reaction", "terminal")
_SOURCES = frozenset(get_args(Source))


def fields_of(seen: Seen | Arrival) -> list[str]:
    """The values of an entry's fields, without its source."""
    return [
        str(seen.id),
        "" if seen.pid is None else str(seen.pid),
        str(seen.root),
        seen.from_,
        ",".join(name for name in _FLAGS if getattr(seen, name)),
        time_text(seen.sent_at_s),
    ]


def arrival_of(at: bytes, fields: Sequence[bytes], *, late_root: bytes = b"", returned: bool = False) -> Arrival:
    """The entry in a stream's answer. Raises `ValueError` where it is none."""
    found = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
    if found.keys() != set(NAMES):
        raise ValueError("an entry has other fields than a ledger's")
    flags = frozenset(filter(None, found["flags"].split(",")))
    if not flags <= set(_FLAGS) or found["source"] not in _SOURCES:
        raise ValueError("an entry has a flag or a source that is unknown")
    return Arrival(
        at=StreamId.parse(at.decode()),
        id=read_id(found["id"]),
        pid=read_id(found["pid"]) if found["pid"] else None,
        root=read_id(late_root.decode() or found["root"]),
        from_=found["from"],
        no_reply="no_reply" in flags,
        reaction="reaction" in flags,
        terminal="terminal" in flags,
        sent_at_s=read_time(found["sent"]),
        source=cast("Source", found["source"]),
        returned=returned,
    )


def read_id(text: Any) -> int:
    """A message id in its text. Raises `ValueError`."""
    value = int(text)
    if not 0 <= value <= MAX_ID:
        raise ValueError("a message id is out of range")
    return value


def time_text(time_s: float) -> str:
    """A time as it stands in an entry or a baseline: no message is older than 1970."""
    return repr(float(time_s)) if 0.0 < time_s < math.inf else "0.0"


def read_time(text: Any) -> float:
    """A time in its text. Raises `ValueError`."""
    value = float(text)
    if not 0.0 <= value < math.inf:
        raise ValueError("a time is out of range")
    return value
