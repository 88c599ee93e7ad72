"""Whether positions may be older than the ledger that has to find them again.

A message whose event was lost is recorded up to a minute or so late, by comparison with the host's list. If within that
time the ledger begins anew, the message stands before positions that were handed out without it. So after such a
change, what became available shortly before a position of that time is returned once more, marked as possibly returned.
That there was a change is remembered here; a ledger that merely begins, for a caller nobody knew, is none. (A ledger
that did not answer for a while and is still the same needs none of this: it knows what it recorded out of order.)
"""

from __future__ import annotations

import msgspec

from ledger.port import Documents
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey

KIND = "unrest"
NAME = "last"
LOOK_BACK_S = 120.0
"""How late a lost event is found at most while feeds work: they compare about every minute, with jitter and a retry."""
TTL_S = 7 * 86_400.0
"""Agents that stay away longer after a change are not told of it. A doubtful message of that minute is then lost to
those of them that had just been handed a later one."""


class Unrest(msgspec.Struct, frozen=True, array_like=True):
    """A change of ledgers: positions handed out from ``since_s`` to ``until_s`` (POSIX) may lack messages."""

    since_s: float
    until_s: float

    def joined(self, other: Unrest | None) -> Unrest:
        """Both as one, or the later where they lie apart."""
        if other is None:
            return self
        earlier, later = sorted((self, other), key=lambda unrest: unrest.until_s)
        if earlier.until_s < later.since_s:
            return later
        return Unrest(min(self.since_s, other.since_s), later.until_s)


async def load_unrest(documents: Documents, caller: CallerKey, *, now_s: float) -> Unrest | None:
    """The last change; None where nothing happened. ``now_s``: POSIX seconds."""
    stored = await documents.load(caller, KIND, NAME)
    if not stored.version:
        return None
    try:
        return msgspec.msgpack.decode(stored.data, type=Unrest)
    except msgspec.DecodeError:
        tell_unreadable(KIND, caller=caller)
    # There was one, nobody knows when: too much comes again, rather than too little. Put right, it is that only once.
    ever = Unrest(now_s - TTL_S, now_s)
    await documents.delete(caller, KIND, NAME)
    await save_unrest(documents, caller, ever)
    return ever


async def save_unrest(documents: Documents, caller: CallerKey, unrest: Unrest) -> None:
    """Remember a change, for the other replicas, too."""
    stored = await documents.load(caller, KIND, NAME)
    data = msgspec.msgpack.encode(unrest)
    await documents.store(caller, KIND, NAME, data, expected=stored.version, ttl_s=TTL_S)
