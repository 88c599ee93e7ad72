"""Documents in Redis: small values of a caller, changed by compare-and-set.

Keys of a caller, all with a TTL::

    {CALLER}:doc:KIND:NAME     hash: the value and its version
    {CALLER}:docs:KIND         sorted set, name → when it expires

Versions are microseconds of Redis' clock, so a document deleted and made again never has a version it had before.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.port import Versioned
from ledger.redis.scripts import DamagedKey, Key, Scripts, SortedSetKey, script
from ledger.redis.topology import Topology
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey

DAMAGED = -1
"""The version of what is no document: no store expects it."""


@script(
    """
    local held = redis.pcall('HGET', doc, 'version') or '0'
    if held ~= expected then return '0' end
    local time = redis.call('TIME')
    local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
    local version = string.format('%.0f', math.max(now, tonumber(held) + 1))
    redis.call('HSET', doc, 'version', version, 'data', data)
    redis.call('PEXPIRE', doc, ttl_ms)
    redis.call('ZREMRANGEBYSCORE', docs, '-inf', now / 1000)
    redis.call('ZADD', docs, now / 1000 + tonumber(ttl_ms), name)
    redis.call('PEXPIRE', docs, math.max(redis.call('PTTL', docs), tonumber(ttl_ms)))
    return version
    """,
    # Repeated after a lost answer it would say that somebody else was faster.
    idempotent=False,
)
def _store(*, doc: Key, docs: SortedSetKey, name: str, expected: str, ttl_ms: int, data: bytes) -> bytes:
    """Store if the version is the expected one; the new one, or 0."""
    raise NotImplementedError


@script(
    """
    redis.call('ZREM', docs, name)
    return redis.call('DEL', doc)
    """,
    idempotent=True,
)
def _delete(*, doc: Key, docs: SortedSetKey, name: str) -> int:
    """Delete; 1 if there was one."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    redis.call('ZREMRANGEBYSCORE', docs, '-inf', tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
    return redis.call('ZRANGE', docs, 0, -1)
    """,
    idempotent=True,
)
def _names(*, docs: SortedSetKey) -> list[bytes]:
    """The names of the documents that have not expired."""
    raise NotImplementedError


class RedisDocuments:
    """`ledger.port.Documents` in Redis."""

    def __init__(self, scripts: Scripts, topology: Topology) -> None:
        self._scripts = scripts
        self._topology = topology

    async def load(self, caller: CallerKey, kind: str, name: str) -> Versioned:
        try:
            data, version = await self._scripts.command(
                "HMGET", self._doc(caller, kind, name), "data", "version", idempotent=True
            )
        except DamagedKey:
            data, version = b"", None
        if version is None and data is None:
            return Versioned(data=b"", version=0)
        if data is None or version is None or not version.isdigit():
            # Taken for absent, an idempotency record would let a message be sent twice. No document is empty, so its
            # reader sees that it is damaged. It can be deleted, and not changed.
            tell_unreadable("document", caller=caller)
            return Versioned(data=b"", version=DAMAGED)
        return Versioned(data=data, version=int(version))

    async def store(self, caller: CallerKey, kind: str, name: str, data: bytes, *, expected: int, ttl_s: float) -> int:
        stored = await _store(
            self._scripts,
            doc=self._doc(caller, kind, name),
            docs=self._docs(caller, kind),
            name=name,
            expected=str(expected),
            ttl_ms=max(1, int(ttl_s * 1000)),
            data=data,
        )
        return int(stored)

    async def delete(self, caller: CallerKey, kind: str, name: str) -> bool:
        doc, docs = self._doc(caller, kind, name), self._docs(caller, kind)
        return bool(await _delete(self._scripts, doc=doc, docs=docs, name=name))

    async def names(self, caller: CallerKey, kind: str) -> Sequence[str]:
        return tuple(sorted(name.decode() for name in await _names(self._scripts, docs=self._docs(caller, kind))))

    def _doc(self, caller: CallerKey, kind: str, name: str) -> Key:
        return self._topology.key(caller, f"doc:{kind}:{name}")

    def _docs(self, caller: CallerKey, kind: str) -> Key:
        return self._topology.key(caller, f"docs:{kind}")
