"""Activations in Redis: who is active, with what credential, and what their feeds report.

Address, API URL, token and report are sealed (`ledger.seal`), so Redis shows caller keys and times only. The token has
a key of its own, since it must be gone when it expires.

Keys of shard ``NN`` (`ledger.redis.topology`), all with a TTL::

    {active-NN}:index          sorted set, caller → last asked
    {active-NN}:who:CALLER     sealed address and API URL
    {active-NN}:token:CALLER   hash: the sealed token, and its expiry as a mark to tell a new one by
    {active-NN}:feed:CALLER    hash: the sealed report, and whether it says live and asks for a credential
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ledger.port import Activation, ActiveFeed, FeedReport
from ledger.redis.scripts import HashKey, Key, Scripts, SortedSetKey, StringKey, script
from ledger.redis.topology import SHARDS, Topology, by_shard, shard_of
from ledger.seal import SealBroken, SealKeys
from ledger.values import CallerKey, LedgerLimits
from telemetry.metrics import UNREADABLE

log = logging.getLogger(__name__)

WAKE = "wake"
"""The channel on which the keys of callers are published that have something for a daemon to do."""

FEEDS_AT_ONCE = 500
"""Callers whose feeds are read by one script: some hundred microseconds during which Redis does nothing else."""

T = TypeVar("T")


class _Who(msgspec.Struct, frozen=True, array_like=True):
    address: str
    api_url: str


class _Token(msgspec.Struct, frozen=True, array_like=True):
    value: str
    expires_at_s: float


@script(
    """
    local time = redis.call('TIME')
    local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
    local ttl = tonumber(ttl_ms)
    redis.call('ZREMRANGEBYSCORE', index, '-inf', now - ttl / 1000)
    local wake = redis.call('ZADD', index, string.format('%.6f', now), caller) == 1
    redis.call('PEXPIRE', index, ttl)
    redis.call('SET', who, sealed, 'PX', ttl)
    if tonumber(token_ttl_ms) > 0 then
        if redis.call('HGET', token, 'mark') ~= mark then wake = true end
        redis.call('HSET', token, 'sealed', sealed_token, 'mark', mark)
        redis.call('PEXPIRE', token, token_ttl_ms)
    end
    if redis.call('HGET', feed, 'live') ~= '1' then wake = true end
    redis.call('PEXPIRE', feed, feed_ttl_ms)
    if wake then redis.call('PUBLISH', channel, caller) end
    return wake and 1 or 0
    """,
    idempotent=True,
)
def _activate(
    *,
    index: SortedSetKey,
    who: StringKey,
    token: HashKey,
    feed: HashKey,
    caller: str,
    sealed: bytes,
    sealed_token: bytes,
    mark: str,
    token_ttl_ms: int,
    ttl_ms: int,
    feed_ttl_ms: int,
    channel: str,
) -> int:
    """Mark active, leave the token, wake daemons if there is something to do."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
    local asked = redis.call('ZSCORE', index, caller)
    if not asked or tonumber(asked) <= now - tonumber(ttl_ms) / 1000 then return false end
    return {asked, redis.call('GET', who), redis.call('HGET', token, 'sealed')}
    """,
    idempotent=True,
)
def _get(*, index: SortedSetKey, who: StringKey, token: HashKey, caller: str, ttl_ms: int) -> list[bytes | None] | None:
    """When it was asked for last, and the sealed rest."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
    redis.call('ZREMRANGEBYSCORE', index, '-inf', now - tonumber(ttl_ms) / 1000)
    return redis.call('ZRANGE', index, 0, -1)
    """,
    idempotent=True,
)
def _active(*, index: SortedSetKey, ttl_ms: int) -> list[bytes]:
    """The active callers of one shard."""
    raise NotImplementedError


@script(
    """
    local asked = redis.call('ZSCORE', index, caller)
    if asked and since ~= '' and tonumber(asked) > tonumber(since) then return 0 end
    redis.call('ZREM', index, caller)
    redis.call('DEL', who, token, feed)
    return 1
    """,
    idempotent=True,
)
def _retire(*, index: SortedSetKey, who: StringKey, token: HashKey, feed: HashKey, caller: str, since: str) -> int:
    """End the activation unless it was asked for after ``since``; 1 if it is over."""
    raise NotImplementedError


@script(
    """
    redis.call('HSET', feed, 'sealed', sealed, 'live', live, 'asks', asks)
    redis.call('PEXPIRE', feed, ttl_ms)
    return 1
    """,
    idempotent=True,
)
def _report(*, feed: HashKey, sealed: bytes, live: int, asks: int, ttl_ms: int) -> int:
    """Keep the report."""
    raise NotImplementedError


@script(
    """
    local found = {}
    for i, key in ipairs(keys) do
        local report = redis.pcall('HMGET', key, 'live', 'asks')
        found[i] = report[1] == '1' and report[2] == '0' and 1 or 0
    end
    return found
    """,
    idempotent=True,
)
def _settled(*, feed: Key, keys: Sequence[str]) -> list[int]:
    """Whether feeds are live and ask for nothing. ``feed``: the first of the keys."""
    raise NotImplementedError


@script(
    """
    local time = redis.call('TIME')
    local oldest = tonumber(time[1]) + tonumber(time[2]) / 1000000 - tonumber(ttl_ms) / 1000
    local answer = {}
    local found = redis.call('ZRANGEBYSCORE', index, '(' .. oldest, '+inf', 'WITHSCORES', 'LIMIT', start, count)
    for i = 1, #found, 2 do
        local caller = found[i]
        local report = redis.pcall('HGET', base .. 'feed:' .. caller, 'sealed')
        answer[#answer + 1] = {
            caller, found[i + 1], redis.call('EXISTS', base .. 'token:' .. caller),
            type(report) == 'string' and report or false
        }
    end
    return answer
    """,
    idempotent=True,
)
def _feeds(*, index: SortedSetKey, base: str, ttl_ms: int, start: int, count: int) -> list[list[Any]]:
    """Some callers of one shard with their reports. Their keys have the hash tag of ``index``."""
    raise NotImplementedError


class RedisActivations:
    """`ledger.port.Activations` in Redis. Give `heard` to the process's reader for the channel `WAKE`."""

    def __init__(
        self,
        scripts: Scripts,
        topology: Topology,
        *,
        limits: LedgerLimits,
        seal: SealKeys,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scripts = scripts
        self._topology = topology
        self._seal = seal
        self._clock = clock
        self._ttl_ms = int(limits.activation_ttl_s * 1000)
        self._feed_ttl_ms = int(limits.feed_ttl_s * 1000)
        self._listeners: dict[int, Callable[[CallerKey], None]] = {}
        self._again: dict[int, Callable[[], None]] = {}
        self._listener_ids = itertools.count()

    async def activate(
        self, caller: CallerKey, *, address: str, api_url: str, token: str | None, token_expires_at_s: float
    ) -> None:
        """Without a token the one left before stays."""
        token_ttl_ms = 0 if token is None else max(0, int((token_expires_at_s - self._clock()) * 1000))
        sealed_token = b""
        if token is not None and token_ttl_ms:
            sealed_token = self._sealed(caller, "token", _Token(token, token_expires_at_s))
        await _activate(
            self._scripts,
            **self._keys(caller),
            caller=caller,
            sealed=self._sealed(caller, "who", _Who(address, api_url)),
            sealed_token=sealed_token,
            mark=repr(token_expires_at_s),
            token_ttl_ms=token_ttl_ms,
            ttl_ms=self._ttl_ms,
            feed_ttl_ms=self._feed_ttl_ms,
            channel=self._topology.channel(WAKE),
        )

    async def get(self, caller: CallerKey) -> Activation | None:
        """None too where the record was sealed under a key that is gone."""
        keys = self._keys(caller)
        found = await _get(
            self._scripts, index=keys["index"], who=keys["who"], token=keys["token"], caller=caller, ttl_ms=self._ttl_ms
        )
        if found is None:
            return None
        asked, sealed_who, sealed_token = found
        who = self._opened(caller, "who", sealed_who, _Who)
        if asked is None or who is None:
            return None
        token = self._opened(caller, "token", sealed_token, _Token)
        if token is not None and token.expires_at_s <= self._clock():
            token = None
        return Activation(
            caller=caller,
            address=who.address,
            api_url=who.api_url,
            asked_at_s=float(asked),
            token=None if token is None else token.value,
            token_expires_at_s=0.0 if token is None else token.expires_at_s,
        )

    async def active(self) -> Sequence[CallerKey]:
        shards = await asyncio.gather(
            *(_active(self._scripts, index=self._key(shard, "index"), ttl_ms=self._ttl_ms) for shard in range(SHARDS))
        )
        return tuple(CallerKey(caller.decode()) for found in shards for caller in found)

    async def count(self) -> int:
        """How many callers are active."""
        seconds, _ = await self._scripts.command("TIME", idempotent=True)
        oldest = f"({int(seconds) - self._ttl_ms / 1000.0:.6f}"
        keys = [self._key(shard, "index") for shard in range(SHARDS)]
        counts = await asyncio.gather(
            *(self._scripts.command("ZCOUNT", key, oldest, "+inf", idempotent=True, holds="zset") for key in keys)
        )
        return sum(map(int, counts))

    async def retire(self, caller: CallerKey, *, unless_asked_since_s: float | None = None) -> bool:
        since = "" if unless_asked_since_s is None else repr(unless_asked_since_s)
        return bool(await _retire(self._scripts, **self._keys(caller), caller=caller, since=since))

    async def report(self, caller: CallerKey, report: FeedReport) -> None:
        await _report(
            self._scripts,
            feed=self._keys(caller)["feed"],
            sealed=self._sealed(caller, "feed", report),
            live=int(report.live),
            asks=int(report.needs_credential),
            ttl_ms=self._feed_ttl_ms,
        )

    async def feed(self, caller: CallerKey) -> FeedReport | None:
        sealed = await self._scripts.command(
            "HGET", self._keys(caller)["feed"], "sealed", idempotent=True, holds="hash"
        )
        return self._opened(caller, "feed", sealed, FeedReport)

    async def settled(self, callers: Sequence[CallerKey]) -> Sequence[bool]:
        """What an older version reported counts as not settled."""
        groups = [list(callers)] if self._topology.keys_mix else list(by_shard(callers).values())
        parts = [group[at : at + FEEDS_AT_ONCE] for group in groups for at in range(0, len(group), FEEDS_AT_ONCE)]
        answers = await asyncio.gather(*map(self._settled, parts))
        asked = [caller for part in parts for caller in part]
        found = dict(zip(asked, [bool(one) for answer in answers for one in answer], strict=True))
        return [found[caller] for caller in callers]

    async def _settled(self, callers: Sequence[CallerKey]) -> list[int]:
        keys = [self._keys(caller)["feed"] for caller in callers]
        return await _settled(self._scripts, feed=keys[0], keys=keys)

    async def feeds(self, *, limit: int) -> Sequence[ActiveFeed]:
        found: dict[CallerKey, ActiveFeed] = {}
        for shard in range(SHARDS):
            start = 0
            while len(found) < limit:
                count = min(FEEDS_AT_ONCE, limit - len(found))
                words = await _feeds(
                    self._scripts,
                    index=self._key(shard, "index"),
                    base=self._key(shard, ""),
                    ttl_ms=self._ttl_ms,
                    start=start,
                    count=count,
                )
                found.update({one.caller: one for one in map(self._feed, words)})
                start += count
                if len(words) < count:
                    break
        return tuple(found.values())

    def _feed(self, words: list[Any]) -> ActiveFeed:
        caller, asked, has_token, sealed = words
        key = CallerKey(caller.decode())
        report = self._opened(key, "feed", sealed, FeedReport)
        return ActiveFeed(caller=key, asked_at_s=float(asked), has_token=bool(has_token), report=report)

    def listen(
        self, wake: Callable[[CallerKey], None], *, again: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Wakes where a daemon has something to do: not while the feed is live."""
        key = next(self._listener_ids)
        self._listeners[key] = wake
        if again is not None:
            self._again[key] = again

        def stop() -> None:
            self._listeners.pop(key, None)
            self._again.pop(key, None)

        return stop

    def heard(self, text: str) -> None:
        """A message of the channel `WAKE`; an empty one (a reconnect) names nobody."""
        if text:
            for wake in tuple(self._listeners.values()):
                wake(CallerKey(text))
        else:
            for again in tuple(self._again.values()):
                again()

    def _key(self, shard: int, part: str) -> Key:
        return self._topology.shared_key(f"active-{shard:02d}", part)

    def _keys(self, caller: CallerKey) -> dict[str, Key]:
        shard = shard_of(caller)
        return {
            "index": self._key(shard, "index"),
            "who": self._key(shard, f"who:{caller}"),
            "token": self._key(shard, f"token:{caller}"),
            "feed": self._key(shard, f"feed:{caller}"),
        }

    def _sealed(self, caller: CallerKey, part: str, value: Any) -> bytes:
        return self._seal.seal(msgspec.msgpack.encode(value), bound_to=f"{part}:{caller}".encode())

    def _opened(self, caller: CallerKey, part: str, sealed: bytes | None, kind: type[T]) -> T | None:
        if sealed is None:
            return None
        try:
            plain = self._seal.open(sealed, bound_to=f"{part}:{caller}".encode())
            return msgspec.msgpack.decode(plain, type=kind)
        except (SealBroken, msgspec.DecodeError):
            UNREADABLE.labels(f"activation_{part}").inc()
            log.warning(
                "an activation cannot be read: do all processes have the same FMSG_SEAL_KEY?",
                extra={"action": "unseal_failed", "part": part, "caller": caller},
            )
            return None
