"""Pictures of deployments for tests: one that is well, and what to change of it."""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.operators import Process
from ledger.redis.operators import ServerFacts
from ops.status.picture import CallerCounts, Picture, QueueState, ShownDaemon

NOW_S = 1_790_000_000.0
SERVER = ServerFacts(
    product="Redis",
    version="7.2.4",
    redis_version="7.2.4",
    role="master",
    eviction="noeviction",
    persists=True,
    used_memory_bytes=5 * 2**20,
    max_memory_bytes=100 * 2**20,
    uptime_s=86_400.0,
)


def process(
    role: str, name: str = "box-1", *, silent_s: float = 2.0, age_s: float = 86_400.0, **facts: float
) -> Process:
    """A process that runs for a day and was heard two seconds ago."""
    return Process(
        id=f"{role}-{name}",
        role=role,
        name=name,
        version="1.0.0",
        since_s=NOW_S - age_s,
        metrics="box:9100",
        facts=facts,
        heard_at_s=NOW_S - silent_s,
    )


def daemon(name: str = "box-1", **changes: Any) -> ShownDaemon:
    """A daemon with half of the callers."""
    fields: dict[str, Any] = {
        "id": f"{name}-id",
        "name": name,
        "since_s": NOW_S - 86_400.0,
        "feeds": 50,
        "share": 0.5,
        "draining": False,
        "process": process("daemon", name, sockets=50.0, ingest_lag_s=0.12),
    }
    return ShownDaemon(**{**fields, **changes})


def callers(**changes: Any) -> CallerCounts:
    """A hundred callers, all of them live."""
    fields: dict[str, Any] = {
        "active": 100,
        "looked_at": 100,
        "live": 100,
        "states": {},
        "needs_credential": 0,
        "errors": (),
    }
    return CallerCounts(**{**fields, **changes})


def picture(**changes: Any) -> Picture:
    """A deployment that is well."""
    fields: dict[str, Any] = {
        "at_s": NOW_S,
        "redis": "redis://127.0.0.1:6379",
        "round_trip_s": 0.0002,
        "server": SERVER,
        "daemons": (daemon("box-1"), daemon("box-2")),
        "processes": (
            process("daemon", "box-1"),
            process("daemon", "box-2"),
            process("front", waits_held=7.0),
            process("worker", loop_lag_s=0.002),
        ),
        "callers": callers(),
        "queue": QueueState(jobs=1),
        "deferred": 2,
    }
    return Picture(**{**fields, **changes})


def server(**changes: Any) -> ServerFacts:
    """A Redis server that is well, but for the changes."""
    return msgspec.structs.replace(SERVER, **changes)
