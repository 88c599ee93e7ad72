"""Spreading records that belong together in one script over several hash slots.

Who is active and who holds which lease are looked at for thousands of callers at once: in one slot they would be one
script, but all of them on one node of a Cluster; in a slot per caller, thousands of scripts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from ledger.values import CallerKey

SHARDS = 16
"""Slots such records are spread over. All processes of a deployment must count the same: it is no setting."""


def shard_of(caller: CallerKey) -> int:
    """The shard of a caller, 0 … ``SHARDS - 1``."""
    return zlib.crc32(caller.encode()) % SHARDS


def by_shard(callers: Iterable[CallerKey]) -> dict[int, list[CallerKey]]:
    """The callers by their shard, each once."""
    found: dict[int, list[CallerKey]] = {}
    for caller in dict.fromkeys(callers):
        found.setdefault(shard_of(caller), []).append(caller)
    return found
