"""Deferred tasks in Redis: work that outlives the request that left it.

All in one hash slot, since workers ask for the oldest of all callers; there are few of them. Both keys have a TTL::

    {deferred}:due               sorted set, "kind|caller|message id" → when it is due
    {deferred}:items             hash, the same → "attempts left-at", to drop what is left undone for too long
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.port import DeferredTask
from ledger.redis.scripts import HashKey, Scripts, SortedSetKey, script
from ledger.redis.topology import Topology
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey, LedgerLimits


@script(
    """
    local time = redis.call('TIME')
    local left = redis.call('HGET', items, item)
    local since = left and string.match(left, ' (.*)$') or time[1]
    redis.call('HSET', items, item, attempts .. ' ' .. since)
    redis.call('ZADD', due, due_s, item)
    redis.call('PEXPIRE', due, ttl_ms)
    redis.call('PEXPIRE', items, ttl_ms)
    return 1
    """,
    idempotent=True,
)
def _add(*, due: SortedSetKey, items: HashKey, item: str, due_s: str, attempts: int, ttl_ms: int) -> int:
    """Leave a task."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
    local answer = {}
    local ready = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
    for i = 1, #ready, 2 do
        local left = redis.call('HGET', items, ready[i]) or ''
        local attempts, since = string.match(left, '^(%d+) (%d+)')
        if not since or tonumber(since) < now - tonumber(ttl_ms) / 1000 then
            redis.call('ZREM', due, ready[i])
            redis.call('HDEL', items, ready[i])
        else
            answer[#answer + 1] = {ready[i], ready[i + 1], attempts}
        end
    end
    return answer
    """,
    idempotent=True,
)
def _due(*, due: SortedSetKey, items: HashKey, limit: int, ttl_ms: int) -> list[list[bytes]]:
    """The tasks whose time has come; those too old are dropped."""
    raise NotImplementedError


@script(
    """
    redis.call('HDEL', items, item)
    return redis.call('ZREM', due, item)
    """,
    idempotent=True,
)
def _done(*, due: SortedSetKey, items: HashKey, item: str) -> int:
    """Forget a task."""
    raise NotImplementedError


class RedisDeferredTasks:
    """`ledger.port.DeferredTasks` in Redis."""

    def __init__(self, scripts: Scripts, topology: Topology, *, limits: LedgerLimits) -> None:
        self._scripts = scripts
        self._due = topology.shared_key("deferred", "due")
        self._items = topology.shared_key("deferred", "items")
        self._ttl_ms = int(limits.deferred_ttl_s * 1000)

    async def add(self, task: DeferredTask) -> None:
        await _add(
            self._scripts,
            due=self._due,
            items=self._items,
            item=_item(task),
            due_s=repr(float(task.due_s)),
            attempts=task.attempts,
            ttl_ms=self._ttl_ms,
        )

    async def due(self, limit: int) -> Sequence[DeferredTask]:
        found = await _due(self._scripts, due=self._due, items=self._items, limit=limit, ttl_ms=self._ttl_ms)
        tasks = []
        for item, due_s, attempts in found:
            try:
                tasks.append(_task(item, due_s, attempts))
            except ValueError:
                # It names nothing that could be done, and would be the oldest for ever.
                tell_unreadable("deferred_task")
                await self._scripts.command("ZREM", self._due, item, idempotent=True)
                await self._scripts.command("HDEL", self._items, item, idempotent=True)
        return tuple(tasks)

    async def done(self, task: DeferredTask) -> None:
        await _done(self._scripts, due=self._due, items=self._items, item=_item(task))

    async def depth(self) -> int:
        return int(await self._scripts.command("ZCARD", self._due, idempotent=True, holds="zset"))


def _item(task: DeferredTask) -> str:
    return f"{task.kind}|{task.caller}|{task.message_id}"


def _task(item: bytes, due_s: bytes, attempts: bytes) -> DeferredTask:
    kind, caller, message_id = item.decode().split("|")
    return DeferredTask(
        kind=kind, caller=CallerKey(caller), message_id=int(message_id), due_s=float(due_s), attempts=int(attempts)
    )
