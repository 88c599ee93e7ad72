"""What surrounds the ledgers, in Redis."""

from __future__ import annotations

from ledger.redis_activations import WAKE, RedisActivations
from ledger.redis_chores import RedisChores
from ledger.redis_documents import RedisDocuments
from ledger.redis_fleet import RedisFleet
from ledger.redis_oversight import ORDERS, RedisOrders, RedisProcesses

__all__ = [
    "ORDERS",
    "WAKE",
    "RedisActivations",
    "RedisChores",
    "RedisDocuments",
    "RedisFleet",
    "RedisOrders",
    "RedisProcesses",
]
