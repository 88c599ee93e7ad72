"""The fleet in Redis: heartbeats, and leases that are good while their holder's heartbeat is.

A lease is a field of its shard's hash (`ledger.redis.topology`), so one script answers for all callers of a shard, and
nothing needs renewing while nothing changes. The hashes live as long as any daemon does::

    {fleet}:members            sorted set, daemon id → when its heartbeat expires
    {fleet}:member:ID          the member, with the heartbeat's TTL
    {fleet}:connects           when the next socket may be opened, in µs; expires when nobody connects
    {lease-NN}:held            hash: caller → "epoch daemon"; the field "" counts the epochs
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ledger.connect_slots import LONGEST_AHEAD_S, ConnectSlots
from ledger.port import Lease, Member
from ledger.redis.scripts import HashKey, Key, Scripts, SortedSetKey, StringKey, script
from ledger.redis.topology import SHARDS, Topology, by_shard
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey, LedgerLimits

REFRESH_EVERY = 500
"""Heartbeats between refreshes of the leases' TTL: half an hour at one every 3 s, far within the TTL of days."""

BATCH = 500
"""Callers per script: some hundred microseconds during which Redis does nothing else."""


@script(
    """
    local time = redis.call('TIME')
    local expires = tonumber(time[1]) + tonumber(time[2]) / 1000000 + tonumber(ttl_ms) / 1000
    redis.call('SET', member, data, 'PX', ttl_ms)
    redis.call('ZADD', members, string.format('%.6f', expires), id)
    redis.call('PEXPIRE', members, ttl_ms)
    return 1
    """,
    idempotent=True,
)
def _beat(*, members: SortedSetKey, member: StringKey, id: str, data: bytes, ttl_ms: int) -> int:
    """Renew a heartbeat."""
    raise NotImplementedError


@script(
    """
    redis.call('DEL', member)
    return redis.call('ZREM', members, id)
    """,
    idempotent=True,
)
def _leave(*, members: SortedSetKey, member: StringKey, id: str) -> int:
    """Drop a heartbeat."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    redis.call('ZREMRANGEBYSCORE', members, '-inf', tonumber(time[1]) + tonumber(time[2]) / 1000000)
    return redis.call('ZRANGE', members, 0, -1)
    """,
    idempotent=True,
)
def _ids(*, members: SortedSetKey) -> list[bytes]:
    """The ids of the live daemons."""
    raise NotImplementedError


@script(
    """
    local answer = {}
    for i = 1, #pairs_, 2 do
        local caller, expected = pairs_[i], pairs_[i + 1]
        local held = redis.call('HGET', leases, caller)
        if not held or held == expected then
            local epoch = redis.pcall('HINCRBY', leases, '', 1)
            if type(epoch) == 'table' then
                -- Where the count was damaged it goes on from the time: above all that were given.
                epoch = redis.call('TIME')[1]
                redis.call('HSET', leases, '', epoch)
            end
            held = epoch .. ' ' .. daemon
            redis.call('HSET', leases, caller, held)
        end
        answer[#answer + 1] = held
    end
    redis.call('PEXPIRE', leases, ttl_ms)
    return answer
    """,
    idempotent=True,
)
def _take(*, leases: HashKey, daemon: str, ttl_ms: int, pairs_: Sequence[str]) -> list[bytes]:
    """Take leases that are free or stand as expected; how each stands then. ``pairs_``: caller, expected, caller, …"""
    raise NotImplementedError


@script(
    """
    local count = 0
    for _, caller in ipairs(callers) do
        local held = redis.call('HGET', leases, caller)
        if held and string.sub(held, (string.find(held, ' ', 1, true) or 0) + 1) == daemon then
            count = count + redis.call('HDEL', leases, caller)
        end
    end
    return count
    """,
    idempotent=True,
)
def _release(*, leases: HashKey, daemon: str, callers: Sequence[str]) -> int:
    """Give up those of the leases that the daemon holds."""
    raise NotImplementedError


@script(
    """
    local count = 0
    for i = 1, #pairs_, 2 do
        if redis.call('HGET', leases, pairs_[i]) == pairs_[i + 1] then
            count = count + redis.call('HDEL', leases, pairs_[i])
        end
    end
    return count
    """,
    idempotent=True,
)
def _drop(*, leases: HashKey, pairs_: Sequence[bytes]) -> int:
    """Drop the leases that still stand as expected."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
    local free = tonumber(redis.call('GET', connects) or '') or now
    if free < now or free > now + tonumber(ahead_us) then
        free = now
    end
    local granted = math.max(0, math.min(tonumber(count), math.floor((now + within_us - free) / every_us) + 1))
    if granted > 0 then
        redis.call('SET', connects, string.format('%.0f', free + granted * every_us), 'PX', ttl_ms)
    end
    return {free - now, granted}
    """,
    idempotent=True,
)
def _reserve(*, connects: Key, count: int, every_us: int, within_us: int, ahead_us: int, ttl_ms: int) -> list[int]:
    """Reserve moments to open a socket, as `ledger.connect_slots.reserve_slots`: in how many µs, and how many."""
    raise NotImplementedError


class RedisFleet:
    """`ledger.port.Fleet` in Redis."""

    def __init__(self, scripts: Scripts, topology: Topology, *, limits: LedgerLimits) -> None:
        self._scripts = scripts
        self._topology = topology
        self._members = topology.shared_key("fleet", "members")
        self._connects = topology.shared_key("fleet", "connects")
        self._beat_ttl_ms = int(limits.heartbeat_ttl_s * 1000)
        self._lease_ttl_ms = int(limits.lease_ttl_s * 1000)
        self._beats = 0

    async def beat(self, member: Member) -> None:
        await _beat(
            self._scripts,
            members=self._members,
            member=self._member(member.id),
            id=member.id,
            data=msgspec.json.encode(member),
            ttl_ms=self._beat_ttl_ms,
        )
        self._beats += 1
        if self._beats % REFRESH_EVERY == 0:
            for shard in range(SHARDS):
                await self._scripts.command("PEXPIRE", self._leases(shard), self._lease_ttl_ms, idempotent=True)

    async def leave(self, member_id: str) -> None:
        await _leave(self._scripts, members=self._members, member=self._member(member_id), id=member_id)

    async def members(self) -> Sequence[Member]:
        ids = sorted(id_.decode() for id_ in await _ids(self._scripts, members=self._members))
        if not ids:
            return ()
        found = await self._scripts.command("MGET", *(self._member(id_) for id_ in ids), idempotent=True)
        return tuple(member for data in found if data is not None and (member := _read_member(data)) is not None)

    async def take(
        self, callers: Sequence[CallerKey], daemon: str, *, over: Mapping[CallerKey, str]
    ) -> Mapping[CallerKey, Lease]:
        # Who is alive is read after the holders: a daemon found holding a lease and then without a heartbeat is dead,
        # one that only just started is not. What changed hands in between stays as it is.
        stands = await self._take(daemon, dict.fromkeys(callers, ""))
        others = {caller: lease for caller, lease in stands.items() if lease.daemon != daemon}
        if others:
            alive = {member.id for member in await self.members()}
            free = {
                caller: _text(lease)
                for caller, lease in others.items()
                if lease.daemon not in alive or over.get(caller) == lease.daemon
            }
            stands |= await self._take(daemon, free)
        return stands

    async def holders(self, callers: Sequence[CallerKey]) -> Mapping[CallerKey, Lease]:
        batches = _batches(callers)
        answers = await asyncio.gather(
            *(
                self._scripts.command("HMGET", self._leases(shard), *batch, idempotent=True, holds="hash")
                for shard, batch in batches
            )
        )
        return {
            caller: _lease(caller, held)
            for (_, batch), answer in zip(batches, answers, strict=True)
            for caller, held in zip(batch, answer, strict=True)
            if held is not None
        }

    async def release(self, callers: Sequence[CallerKey], daemon: str) -> None:
        await asyncio.gather(
            *(
                _release(self._scripts, leases=self._leases(shard), daemon=daemon, callers=batch)
                for shard, batch in _batches(callers)
            )
        )

    async def reserve_connects(self, count: int, *, per_s: float, within_s: float) -> ConnectSlots:
        """Reserved by the clock of Redis, so that daemons agree whatever theirs show."""
        first_us, granted = await _reserve(
            self._scripts,
            connects=self._connects,
            count=count,
            every_us=math.ceil(1e6 / per_s),
            within_us=int(within_s * 1e6),
            ahead_us=int(LONGEST_AHEAD_S * 1e6),
            ttl_ms=int(2e3 * LONGEST_AHEAD_S),
        )
        return ConnectSlots(first_in_s=first_us / 1e6, every_s=1.0 / per_s, count=granted)

    async def sweep(self) -> int:
        """Who is alive is read after the holders are, as in `take`."""
        held: list[tuple[int, bytes, bytes]] = []
        for shard in range(SHARDS):
            words = await self._scripts.command("HGETALL", self._leases(shard), idempotent=True, holds="hash")
            held.extend((shard, caller, lease) for caller, lease in _pairs(words) if caller)
        alive = {member.id.encode() for member in await self.members()}
        dead = [one for one in held if one[2].partition(b" ")[2] not in alive]
        count = 0
        for start in range(0, len(dead), BATCH):
            for shard in range(SHARDS):
                words = [word for one in dead[start : start + BATCH] if one[0] == shard for word in one[1:]]
                if words:
                    count += await _drop(self._scripts, leases=self._leases(shard), pairs_=words)
        return count

    async def _take(self, daemon: str, expected: Mapping[CallerKey, str]) -> dict[CallerKey, Lease]:
        batches = _batches(expected)
        answers = await asyncio.gather(
            *(
                _take(
                    self._scripts,
                    leases=self._leases(shard),
                    daemon=daemon,
                    ttl_ms=self._lease_ttl_ms,
                    pairs_=[word for caller in batch for word in (caller, expected[caller])],
                )
                for shard, batch in batches
            )
        )
        stands: dict[CallerKey, Lease] = {}
        for (shard, batch), answer in zip(batches, answers, strict=True):
            for caller, held in zip(batch, answer, strict=True):
                stands[caller] = _lease(caller, held)
                if not stands[caller].daemon:
                    # It could never be taken: what stands there is never as expected.
                    await _drop(self._scripts, leases=self._leases(shard), pairs_=[caller.encode(), held])
        return stands

    def _member(self, member_id: str) -> Key:
        return self._topology.shared_key("fleet", f"member:{member_id}")

    def _leases(self, shard: int) -> Key:
        return self._topology.shared_key(f"lease-{shard:02d}", "held")


def _batches(callers: Sequence[CallerKey] | Mapping[CallerKey, str]) -> list[tuple[int, list[CallerKey]]]:
    return [
        (shard, found[start : start + BATCH])
        for shard, found in by_shard(callers).items()
        for start in range(0, len(found), BATCH)
    ]


def _pairs(answer: dict[bytes, bytes] | list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """The fields of a hash, however the client gives them."""
    return answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)


def _read_member(data: bytes) -> Member | None:
    """A heartbeat that cannot be read is none: if its daemon lives, the next one replaces it."""
    try:
        return msgspec.json.decode(data, type=Member)
    except msgspec.DecodeError:
        tell_unreadable("member")
        return None


def _text(lease: Lease) -> str:
    return f"{lease.epoch} {lease.daemon}"


def _lease(caller: CallerKey, held: bytes) -> Lease:
    """A lease that cannot be read is free."""
    try:
        epoch, _, daemon = held.decode().partition(" ")
        return Lease(caller=caller, daemon=daemon, epoch=int(epoch))
    except ValueError:
        tell_unreadable("lease", caller=caller)
        return Lease(caller=caller, daemon="", epoch=0)
