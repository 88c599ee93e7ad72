"""Positions before what the ledger holds, as far as they were handed out.

Such a position is an id on the host's list. That we handed it out ourselves, in this life of the ledger, makes it
exact; else what may have arrived after it has to be looked for below it, too. The offset it had in the list makes it
quick to find again. Without this memory (it expires, it is bounded, the store may lose it) messages may come twice,
never not at all.
"""

from __future__ import annotations

import msgspec

from ledger.port import Documents
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey

KIND = "walk"
NAME = "positions"
MAX_STEPS = 64
"""Positions kept per caller: so many agents may be behind the ledger at a time without forgetting each other's."""
TTL_S = 7 * 86_400.0
"""An agent that goes on after a longer pause may meet messages again that came out of order."""
TRIES = 3
"""Attempts to store against other writers. A position that is not stored costs repetitions, no message."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A position that was handed out: in which life of the ledger, and where it stood in the list."""

    epoch: str
    offset: int | None = None


async def load_step(documents: Documents, caller: CallerKey, message_id: int) -> Step | None:
    """What is remembered of a position."""
    return _decode((await documents.load(caller, KIND, NAME)).data).get(message_id)


async def save_step(documents: Documents, caller: CallerKey, message_id: int, step: Step) -> bool:
    """Remember a position; whether that worked."""
    for _ in range(TRIES):
        stored = await documents.load(caller, KIND, NAME)
        steps = _decode(stored.data)
        steps.pop(message_id, None)
        steps[message_id] = step
        for gone in list(steps)[:-MAX_STEPS]:
            del steps[gone]
        data = msgspec.msgpack.encode(list(steps.items()))
        if await documents.store(caller, KIND, NAME, data, expected=stored.version, ttl_s=TTL_S):
            return True
    return False


def _decode(data: bytes) -> dict[int, Step]:
    if not data:
        return {}
    try:
        return dict(msgspec.msgpack.decode(data, type=list[tuple[int, Step]]))
    except msgspec.DecodeError:
        tell_unreadable(KIND)
        return {}  # forgotten, which is allowed
