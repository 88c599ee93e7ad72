"""Positions that lie before the ledger.

There a position is an id in the host's list, and to go on from it means: what has a higher id, and what has a lower id
but became available later (late drafts, people added). The second part needs a memory. A walk that was given such a
message must not get it again at every position that follows, so what a walk has met is kept with the positions it
handed out. Without the memory (it expires, it is bounded, the store may lose it) messages may come twice, never not at
all.
"""

from __future__ import annotations

import msgspec

from ledger.arrival import CallerKey
from ledger.port import Documents

KIND = "walk"
NAME = "positions"
MAX_BOOKMARKS = 64
"""Bookmarks kept per caller: so many agents may be behind the ledger at a time without forgetting each other's."""
MAX_MET = 200
"""Ids kept per bookmark. Only messages within `history.MARGIN` below the position can come up again."""
TTL_S = 7 * 86_400.0
"""An agent that goes on after a longer pause may meet late messages again."""
TRIES = 3
"""Attempts to store against other writers. A bookmark that is not stored costs repetitions, no message."""


class Bookmark(msgspec.Struct, frozen=True, array_like=True):
    """What stands behind a position in the host's list.

    Everything up to ``base_id`` is done, but for what became available after ``base_at_s`` and is neither in ``met``
    nor from before the walk began (``origin_id``, ``origin_at_s``). ``offset`` is where the position stood in the list;
    ``epoch`` and ``first_n`` name the ledger that goes on from there: while they are the same, nothing fell out of it.
    """

    base_id: int
    base_at_s: float
    origin_id: int
    origin_at_s: float
    met: tuple[int, ...] = ()
    offset: int | None = None
    epoch: str = ""
    first_n: int = 0

    def owes(self, message_id: int, available_at_s: float) -> bool:
        """Whether a message at or below ``base_id`` still has to be returned."""
        if available_at_s <= self.base_at_s or message_id in self.met or message_id == self.base_id:
            return False
        return message_id > self.origin_id or available_at_s > self.origin_at_s


async def load_bookmark(documents: Documents, caller: CallerKey, message_id: int) -> Bookmark | None:
    """The bookmark of a position, if it is remembered."""
    return _decode((await documents.load(caller, KIND, NAME)).data).get(message_id)


async def save_bookmark(documents: Documents, caller: CallerKey, message_id: int, bookmark: Bookmark) -> bool:
    """Remember a position; whether that worked. Two walks that meet at one position both go on from the earlier."""
    for _ in range(TRIES):
        stored = await documents.load(caller, KIND, NAME)
        shelf = _decode(stored.data)
        known = shelf.pop(message_id, None)
        shelf[message_id] = bookmark if known is None else _earlier(known, bookmark)
        for gone in list(shelf)[:-MAX_BOOKMARKS]:
            del shelf[gone]
        data = msgspec.msgpack.encode(list(shelf.items()))
        if await documents.store(caller, KIND, NAME, data, expected=stored.version, ttl_s=TTL_S):
            return True
    return False


def _earlier(one: Bookmark, other: Bookmark) -> Bookmark:
    met = frozenset(one.met)
    same_ledger = (one.epoch, one.first_n) == (other.epoch, other.first_n)
    return Bookmark(
        min(one.base_id, other.base_id),
        min(one.base_at_s, other.base_at_s),
        min(one.origin_id, other.origin_id),
        min(one.origin_at_s, other.origin_at_s),
        tuple(id_ for id_ in other.met if id_ in met),
        other.offset,
        other.epoch if same_ledger else "",
        other.first_n if same_ledger else 0,
    )


def _decode(data: bytes) -> dict[int, Bookmark]:
    if not data:
        return {}
    try:
        return dict(msgspec.msgpack.decode(data, type=list[tuple[int, Bookmark]]))
    except msgspec.DecodeError:
        return {}  # written by another version: forgotten, which is allowed
