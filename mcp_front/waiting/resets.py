"""When a caller's ledger was last reset: it began anew after a flush, or lost its end in a failover.

A message whose event was lost is recorded up to a minute or so late, by comparison with the host's list. If the ledger
is reset within that time, the new one holds the message before positions that were handed out without it. So a position
from before the last reset whose place is an estimate is moved back by `LOOK_BACK_S`: what lies between comes again,
marked. A ledger that merely begins, for a caller without one, is no reset. A store that was away and still holds the
same ledger causes none.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ledger.port import Documents
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey

KIND = "reset"
NAME = "last"
LOOK_BACK_S = 120.0
"""How late a lost event is found at most while feeds work: they compare about every minute, with jitter and a retry."""
TTL_S = 7 * 86_400.0
"""An agent that goes on later than this after a reset may miss a message whose event was lost just before it."""


async def load_reset(documents: Documents, caller: CallerKey, *, now_s: float) -> float | None:
    """When the last reset was (POSIX seconds); None where there was none. Raises what the store raises.

    A record that cannot be read counts as a reset now: too much comes again rather than too little. It is replaced.
    """
    stored = await documents.load(caller, KIND, NAME)
    if not stored.version:
        return None
    try:
        return msgspec.msgpack.decode(stored.data, type=float)
    except msgspec.DecodeError:
        tell_unreadable(KIND, caller=caller)
    await documents.delete(caller, KIND, NAME)
    await save_reset(documents, caller, now_s)
    return now_s


async def save_reset(documents: Documents, caller: CallerKey, reset_at_s: float) -> None:
    """Remember a reset for every replica, unless a later one is stored. Raises what the store raises."""
    stored = await documents.load(caller, KIND, NAME)
    with suppress(msgspec.DecodeError):
        if stored.version and msgspec.msgpack.decode(stored.data, type=float) >= reset_at_s:
            return
    data = msgspec.msgpack.encode(reset_at_s)
    await documents.store(caller, KIND, NAME, data, expected=stored.version, ttl_s=TTL_S)
