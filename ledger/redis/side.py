"""What surrounds the ledgers, in Redis."""

from __future__ import annotations

from ledger.redis.activations import WAKE, RedisActivations
from ledger.redis.documents import RedisDocuments
from ledger.redis.fleet import RedisFleet
from ledger.redis.operators import ORDERS, RedisOrders, RedisProcesses
from ledger.redis.tasks import RedisDeferredTasks

__all__ = [
    "ORDERS",
    "WAKE",
    "RedisActivations",
    "RedisDeferredTasks",
    "RedisDocuments",
    "RedisFleet",
    "RedisOrders",
    "RedisProcesses",
]
