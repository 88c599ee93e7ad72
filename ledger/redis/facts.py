"""What a Redis server says of itself, and what of it an operator should change."""

from __future__ import annotations

import msgspec

from ledger.redis.scripts import Scripts

OLDEST = (6, 2)
"""LPOS, ZADD and RPOP as the scripts use them came until 6.2; Valkey counts as the Redis version it names."""


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
