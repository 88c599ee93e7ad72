"""What operators see and ask for, in Redis.

Keys, all with a TTL; orders are published on the channel ``orders`` and kept nowhere::

    {processes}:index          sorted set, process id → when it was heard last
    {processes}:process:ID     the process, with the same TTL
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from ledger.memory import MemoryOrders
from ledger.operators import Order, Process, in_order
from ledger.redis.scripts import Key, Scripts, SortedSetKey, StringKey, script
from ledger.redis.topology import Topology
from ledger.unreadable import tell_unreadable
from ledger.values import LedgerLimits

log = logging.getLogger(__name__)

ORDERS = "orders"
"""The channel on which orders are published."""

_decode_order = msgspec.json.Decoder(Order).decode
_decode_process = msgspec.json.Decoder(Process).decode


@script(
    """
    local time = redis.call('TIME')
    redis.call('SET', process, data, 'PX', ttl_ms)
    redis.call('ZADD', index, time[1] .. '.' .. string.format('%06d', time[2]), id)
    redis.call('PEXPIRE', index, ttl_ms)
    return 1
    """,
    idempotent=True,
)
def _announce(*, index: SortedSetKey, process: StringKey, id: str, data: bytes, ttl_ms: int) -> int:
    """Say that a process runs."""
    raise NotImplementedError


@script(
    """
    redis.call('DEL', process)
    return redis.call('ZREM', index, id)
    """,
    idempotent=True,
)
def _withdraw(*, index: SortedSetKey, process: StringKey, id: str) -> int:
    """Say that it has ended."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. (tonumber(time[1]) - tonumber(ttl_ms) / 1000))
    return redis.call('ZRANGE', index, 0, -1, 'WITHSCORES')
    """,
    idempotent=True,
)
def _heard(*, index: SortedSetKey, ttl_ms: int) -> list[bytes]:
    """Each process id, followed by when it was heard last."""
    raise NotImplementedError


class RedisProcesses:
    """`ledger.operators.Processes` in Redis."""

    def __init__(self, scripts: Scripts, topology: Topology, *, limits: LedgerLimits) -> None:
        self._scripts = scripts
        self._topology = topology
        self._index = topology.shared_key("processes", "index")
        self._ttl_ms = int(limits.presence_ttl_s * 1000)

    async def announce(self, process: Process) -> None:
        await _announce(
            self._scripts,
            index=self._index,
            process=self._key(process.id),
            id=process.id,
            data=msgspec.json.encode(process),
            ttl_ms=self._ttl_ms,
        )

    async def withdraw(self, process_id: str) -> None:
        await _withdraw(self._scripts, index=self._index, process=self._key(process_id), id=process_id)

    async def present(self) -> Sequence[Process]:
        words = await _heard(self._scripts, index=self._index, ttl_ms=self._ttl_ms)
        if not words:
            return ()
        keys = [self._key(id_.decode()) for id_ in words[::2]]
        found = await self._scripts.command("MGET", *keys, idempotent=True)
        read = (_read_process(data, at) for data, at in zip(found, words[1::2], strict=True))
        return in_order(process for process in read if process is not None)

    def _key(self, process_id: str) -> Key:
        return self._topology.shared_key("processes", f"process:{process_id}")


def _read_process(data: bytes | None, heard_at: bytes) -> Process | None:
    """A process whose word cannot be read is not shown; it says it again in a moment."""
    if data is None:
        return None
    try:
        return msgspec.structs.replace(_decode_process(data), heard_at_s=float(heard_at))
    except msgspec.DecodeError:
        tell_unreadable("process")
        return None


class RedisOrders:
    """`ledger.operators.Orders` in Redis. Give `heard` to the process's reader for the channel `ORDERS`."""

    def __init__(self, scripts: Scripts, topology: Topology) -> None:
        self._scripts = scripts
        self._channel = topology.channel(ORDERS)
        self._here = MemoryOrders()

    async def give(self, order: Order) -> None:
        await self._scripts.command("PUBLISH", self._channel, msgspec.json.encode(order), idempotent=True)

    def listen(self, obey: Callable[[Order], None]) -> Callable[[], None]:
        return self._here.listen(obey)

    def heard(self, text: str) -> None:
        """A message of the channel `ORDERS`; an empty one (a reconnect) orders nothing."""
        if not text:
            return
        try:
            order = _decode_order(text)
        except msgspec.DecodeError:
            # A newer version may know more orders than this one.
            log.warning("an order is not understood", extra={"action": "order_unknown"})
            return
        self._here.heard(order)


OLDEST = (6, 2)
"""XRANGE and ZADD as the scripts use them came until 6.2; Valkey counts as the Redis version it names."""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """From INFO. ``persists``: changes outlive a restart. ``max_memory_bytes`` 0 is no limit."""

    product: str
    version: str
    redis_version: str
    role: str
    eviction: str
    persists: bool
    used_memory_bytes: int
    max_memory_bytes: int
    uptime_s: float = 0.0

    def advice(self) -> tuple[str, ...]:
        """What is wrong with the server: thing, reason, next step, one sentence or two each."""
        found = []
        if tuple(int(part) for part in self.redis_version.split(".")[:2]) < OLDEST:
            found.append(f"Redis {self.redis_version}: too old, scripts need 6.2. Upgrade it, or use Valkey.")
        if self.role != "master":
            found.append("Redis: this server is a replica and refuses writes. Point FMSG_REDIS_URL at the primary.")
        if self.eviction != "noeviction":
            found.append(
                f"maxmemory-policy {self.eviction}: when memory is short Redis drops ledgers, which are then "
                "rebuilt from the host. Set it to noeviction."
            )
        if not self.persists:
            found.append(
                "persistence: off, so a restart forgets subscriptions and which messages were returned already. "
                "Set appendonly yes."
            )
        return tuple(found)


async def server_facts(scripts: Scripts) -> ServerFacts:
    """Ask the server (of a Cluster, one node). Raises `LedgerUnavailable`, also where the ACL user may not ask."""
    info = await scripts.command("INFO", idempotent=True)
    product = "Valkey" if "valkey_version" in info else "Redis"
    return ServerFacts(
        product=product,
        version=str(info.get("valkey_version") or info["redis_version"]),
        redis_version=str(info["redis_version"]),
        role=str(info["role"]),
        eviction=str(info["maxmemory_policy"]),
        persists=info["aof_enabled"] == 1,
        used_memory_bytes=int(info["used_memory"]),
        max_memory_bytes=int(info["maxmemory"]),
        uptime_s=float(info["uptime_in_seconds"]),
    )
