"""Ledgers in Redis: a stream per caller. Each operation is one Lua script over a caller's keys, whole or not at all.

Keys, all with the caller's hash tag and a TTL::

    <prefix>:{caller}:entries  the stream (`ledger.redis.entry`); there is none while the ledger is empty
    <prefix>:{caller}:index    hash: message id → stream id (-0 left out), and after a blank the thread root found late
    <prefix>:{caller}:meta     hash: epoch, last id, low watermark, baseline, verified watermark (`ledger.values`), and
                               which trimmed entries were late (`ledger.port.Ledger.late`)
    <prefix>:{caller}:gone     hash: trimmed id → when it was sent, until it is proven old news (`ledger.memory`)
    <prefix>:{caller}:marks    sorted set by expiry: p<id> handed out as a position, r<id> returned above one

The scripts give the ids: the server's time in milliseconds, as ``XADD … *`` would, and its clock goes on where the
server's steps back. Each script is safe to repeat. They answer nil where there is no ledger, 0 where it is not the one
that was read before, and raise where it cannot be read.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from ledger.memory import count_append, no_ledger_text, stale_text
from ledger.port import NoLedger, StaleEpoch
from ledger.redis.entry import arrival_of, fields_of, read_id, read_time, time_text
from ledger.redis.notifications import ARRIVALS
from ledger.redis.scripts import DamagedKey, HashKey, Key, Scripts, SortedSetKey, StreamKey, script
from ledger.redis.topology import Topology
from ledger.unreadable import tell_unreadable
from ledger.values import (
    END,
    MAX_LATE,
    Appended,
    Arrival,
    Baseline,
    CallerKey,
    Compared,
    Found,
    Head,
    Image,
    Late,
    LedgerLimits,
    LedgerState,
    Seen,
    Slice,
    Source,
    StreamId,
)
from telemetry.metrics import LEDGERS_RESTORED

HEADS_AT_ONCE = 250
"""Ledgers whose heads are read by one script: half a millisecond during which Redis does nothing else."""

T = TypeVar("T")


class LedgerKeys(msgspec.Struct, frozen=True):
    """The keys of a caller's ledger."""

    meta: HashKey
    entries: StreamKey
    index: HashKey
    gone: HashKey
    marks: SortedSetKey


class Sizes(msgspec.Struct, frozen=True):
    """What a script keeps a ledger to."""

    ttl_ms: int
    max_entries: int
    max_gone: int


class Since(msgspec.Struct, frozen=True):
    """What a script tells by whether a ledger is what became of the one that ended there; nothing where it is empty."""

    epoch: str
    at: str


_VALUES = """
-- Message ids and parts of stream ids may be above 2^53, beyond Lua's numbers: they stay decimal strings.
-- Whether one is above another. Not Lua's < on strings, which follows the server's locale.
local function above(a, b)
  if #a ~= #b then return #a > #b end
  if #a < 16 then return tonumber(a) > tonumber(b) end
  local x, y = tonumber(a:sub(1, 10)), tonumber(b:sub(1, 10))
  if x ~= y then return x > y end
  return tonumber(a:sub(11)) > tonumber(b:sub(11))
end

local function parts(at)
  local ms, seq = string.match(at or '', '^(%d+)-(%d+)$')
  return ms or error('unreadable: stream id'), seq
end

-- Whether one stream id is above another.
local function later(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  if a_ms ~= b_ms then return above(a_ms, b_ms) end
  return above(a_seq, b_seq)
end

-- The id that follows another one where it is added at a time.
local function following(at, now_ms)
  local ms, seq = parts(at)
  local now = string.format('%.0f', now_ms)
  if above(now, ms) then return now .. '-0' end
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

local function server_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
"""

_OPEN = (
    _VALUES
    + """
local function is_id(text) return string.match(text or '', '^%d+$') and #text < 20 end

-- The ledger, or nil. One whose parts do not fit was damaged, or evicted or expired one by one.
local function open()
  local m = redis.call('HMGET', meta, 'epoch', 'last', 'low', 'baseline_id', 'baseline_time', 'verified', 'settled_id',
    'settled_time', 'ahead')
  local held, indexed = redis.call('XLEN', entries), redis.call('HLEN', index)
  if redis.call('EXISTS', meta) == 0 and held + indexed == 0 then return nil end
  local ledger = {
    epoch = m[1], last = m[2], low = m[3], base_id = m[4], base_time = m[5], verified = m[6], held = held,
    old_id = m[7] or m[4], old_time = m[8] or m[5], ahead = tonumber(m[9] or 0), gone = redis.call('HLEN', gone)
  }
  if not m[1] or held ~= indexed or (held == 0) ~= (m[2] == m[3]) or not is_id(m[4]) or not is_id(m[6])
    or not is_id(ledger.old_id) or not tonumber(m[5]) or not tonumber(ledger.old_time) or not ledger.ahead then
    error('unreadable: meta')
  end
  parts(m[3])
  -- The clock never goes back: where the server's does, the ledger's goes on from its last entry.
  local last_ms = tonumber((parts(m[2])))
  ledger.now = math.floor(server_us() / 1000) + ledger.ahead
  if ledger.now < last_ms then
    ledger.ahead = ledger.ahead + last_ms - ledger.now
    redis.call('HSET', meta, 'ahead', string.format('%.0f', ledger.ahead))
    ledger.now = last_ms
  end
  return ledger
end

local function answer(ledger)
  return { ledger.epoch, ledger.last, ledger.low, ledger.base_id, ledger.base_time, ledger.old_id, ledger.old_time,
    string.format('%.0f', ledger.now), ledger.verified, ledger.held }
end

-- The stream id of a message and its late root, both nil where it is not held.
local function place(id)
  local held = redis.call('HGET', index, id)
  if not held then return nil end
  local ms, seq, root = string.match(held, '^(%d+)%-?(%d*) ?(%d*)$')
  return (ms or error('unreadable: index')) .. '-' .. (seq == '' and '0' or seq), root
end

-- Whether an entry is there, or was before it was trimmed.
local function stands(ledger, at)
  return not later(at, ledger.low) or #redis.call('XRANGE', entries, at, at) > 0
end

-- Whether the ledger is what became of the one that ended there.
local function continues(ledger, epoch, at) return epoch == ledger.epoch and stands(ledger, at) end

local function knows(ledger, id)
  return redis.call('HEXISTS', index, id) == 1 or (ledger.gone > 0 and redis.call('HEXISTS', gone, id) == 1)
end

-- Whether a message that the ledger does not know has arrived, rather than been there before or been forgotten.
local function is_news(ledger, id, sent)
  return above(id, ledger.old_id) or tonumber(sent) > tonumber(ledger.old_time)
end

-- A function that tells whether a mark still counts, or until when; most callers have few marks, read at once.
local function marks_read(now)
  local held = redis.call('ZCARD', marks)
  if held == 0 then return function() return nil end end
  if held > 64 then
    return function(mark)
      local until_us = tonumber(redis.call('ZSCORE', marks, mark) or 0)
      return until_us > now and until_us or nil
    end
  end
  local found, all = {}, redis.call('ZRANGE', marks, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do found[all[i]] = tonumber(all[i + 1]) end
  return function(mark) return found[mark] and found[mark] > now and found[mark] or nil end
end

local function touch(ttl_ms)
  for _, key in ipairs({ meta, entries, index, gone }) do redis.call('PEXPIRE', key, ttl_ms) end
end
"""
)

_CHANGE = (
    _OPEN
    + """
-- Add the message whose six fields begin at an index of a list.
local function add(ledger, at, list, i, source)
  redis.call('XADD', entries, at, 'id', list[i], 'pid', list[i + 1], 'root', list[i + 2], 'from', list[i + 3],
    'flags', list[i + 4], 'sent', list[i + 5], 'source', source)
  -- Most ids end in -0: without it they are numbers, which Redis stores in half the room.
  redis.call('HSET', index, list[i], (string.gsub(at, '%-0$', '')))
  ledger.last, ledger.held = at, ledger.held + 1
end

-- Let a forgotten message be old news from now on, and with it whatever is not above its id and time.
local function cover(ledger, id, sent)
  if above(id, ledger.old_id) then ledger.old_id = id end
  if tonumber(sent) > tonumber(ledger.old_time) then ledger.old_time = sent end
end

-- Cover the gone that were sent by then, up to an id where one is given.
local function cover_gone(ledger, until_s, up_to_id)
  local all = redis.call('HGETALL', gone)
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) <= until_s and not (up_to_id and above(all[i], up_to_id)) then
      cover(ledger, all[i], all[i + 1])
      redis.call('HDEL', gone, all[i])
      ledger.gone = ledger.gone - 1
    end
  end
end

-- Forget of the gone what needs no remembering: it is verified, and it was sent before the oldest entry held arrived.
-- Where too many remain, give up on what lies below the others that are not ahead of time, then on the least ahead.
local function settle(ledger, max_gone)
  if ledger.gone == 0 then return end
  local horizon = tonumber((parts(redis.call('XRANGE', entries, '-', '+', 'COUNT', 1)[1][1]))) / 1000
  cover_gone(ledger, horizon, ledger.verified)
  if ledger.gone > tonumber(max_gone) then cover_gone(ledger, horizon) end
  while ledger.gone > tonumber(max_gone) do
    local least, mean, sents = math.huge, 0, redis.call('HVALS', gone)
    for _, sent in ipairs(sents) do
      least, mean = math.min(least, tonumber(sent)), mean + tonumber(sent) / #sents
    end
    cover_gone(ledger, math.max(least, mean))
  end
  if above(ledger.old_id, ledger.verified) then ledger.verified = ledger.old_id end
end

-- Forget what is too old. The baseline moves past it at once. What that does not prove old news is remembered by id.
local function trim(ledger, max_entries, max_gone)
  local over = ledger.held - tonumber(max_entries)
  if over > 0 then
    local known = redis.call('HMGET', meta, 'top', 'late')
    local top, late = known[1] or '0', known[2] or ''
    for _, entry in ipairs(redis.call('XRANGE', entries, '-', '+', 'COUNT', over)) do
      local at, id, sent = entry[1], entry[2][2], entry[2][12]
      if entry[2][14] ~= 'snapshot' and above(ledger.base_id, top) then top = ledger.base_id end
      if above(top, id) then late = late .. id .. ' ' .. top .. ' ' .. at .. ';' end
      if above(id, top) then top = id end
      if above(id, ledger.base_id) then ledger.base_id = id end
      if tonumber(sent) > tonumber(ledger.base_time) then ledger.base_time = sent end
      if above(id, ledger.verified) or tonumber(sent) > tonumber((parts(at))) / 1000 then
        redis.call('HSET', gone, id, sent)
        ledger.gone = ledger.gone + 1
      else
        cover(ledger, id, sent)
      end
      redis.call('HDEL', index, id)
      ledger.low = at
    end
    local _, count = string.gsub(late, ';', '')
    for _ = 1, count - MAX_LATE do late = string.gsub(late, '^[^;]*;', '', 1) end
    redis.call('HSET', meta, 'top', top, 'late', late)
    redis.call('XTRIM', entries, 'MAXLEN', max_entries)
    ledger.held = tonumber(max_entries)
  end
  if ledger.gone > tonumber(max_gone) then settle(ledger, max_gone) end
end

local function save(ledger, ttl_ms)
  redis.call('HSET', meta, 'epoch', ledger.epoch, 'last', ledger.last, 'low', ledger.low, 'baseline_id', ledger.base_id,
    'baseline_time', ledger.base_time, 'verified', ledger.verified)
  if ledger.old_id == ledger.base_id and ledger.old_time == ledger.base_time then
    redis.call('HDEL', meta, 'settled_id', 'settled_time')
  else
    redis.call('HSET', meta, 'settled_id', ledger.old_id, 'settled_time', ledger.old_time)
  end
  touch(ttl_ms)
end

-- A ledger without entries. Positions that an earlier life handed out are none of this one's.
local function new(epoch, low, base_id, base_time, verified)
  for _, mark in ipairs(redis.call('ZRANGE', marks, 0, -1)) do
    if mark:sub(1, 1) == 'p' then redis.call('ZREM', marks, mark) end
  end
  return {
    epoch = epoch, last = low, low = low, base_id = base_id, base_time = base_time, old_id = base_id,
    old_time = base_time, verified = verified, held = 0, gone = 0, ahead = 0, now = math.floor(server_us() / 1000)
  }
end
""".replace("MAX_LATE", str(MAX_LATE))
)

_ENTRIES = (
    _OPEN
    + """
-- Entries as they are answered: id, fields, the late root, whether an earlier call returned it above its position.
local function shown(found, until_us)
  local rows = {}
  for i, entry in ipairs(found) do
    local fields = entry[2]
    local late = ''
    if fields[6] == '0' then late = select(2, place(fields[2])) or '' end
    rows[i] = { entry[1], fields, late, until_us('r' .. fields[2]) and 1 or 0 }
  end
  return rows
end
"""
)


@script(
    """
local found = {}
for i, key in ipairs(keys) do
  local life = redis.pcall('HMGET', key, 'epoch', 'last')
  found[2 * i - 1], found[2 * i] = life[1] or false, life[2] or false
end
return found
""",
    idempotent=True,
)
def _heads(*, meta: Key, keys: Sequence[str]) -> list[bytes | None]:
    """Epoch and last id of several ledgers, in turn. ``keys``: the meta of each; ``meta`` of the first."""
    raise NotImplementedError


@script("return { redis.call('HGET', meta, 'late') or '' }", idempotent=True)
def _late(*, meta: HashKey) -> list[Any]:
    """The late ones among the trimmed entries: id, highest id before, stream id; and a semicolon behind each."""
    raise NotImplementedError


@script(_OPEN + "local ledger = open() return ledger and answer(ledger)", idempotent=True)
def _state(*, keys: LedgerKeys) -> list[Any] | None:
    """The state."""


@script(
    _CHANGE
    + """
local ledger = open()
if ledger then return answer(ledger) end
ledger = new(epoch, '0-0', base_id, base_time, base_id)
for i = 1, #snapshot, 7 do
  if not knows(ledger, snapshot[i]) then
    local sent_ms = math.min(tonumber(snapshot[i + 6]), ledger.now)
    add(ledger, following(ledger.last, sent_ms), snapshot, i, 'snapshot')
    if above(snapshot[i], ledger.verified) then ledger.verified = snapshot[i] end
  end
end
trim(ledger, max_entries, max_gone)
save(ledger, ttl_ms)
return answer(ledger)
""",
    idempotent=True,
)
def _begin(
    *, keys: LedgerKeys, sizes: Sizes, epoch: str, base_id: str, base_time: str, snapshot: Sequence[str]
) -> list[Any] | None:
    """Begin unless begun. ``snapshot``: six fields and the time in ms of each message. Returns the state."""


@script(
    _CHANGE
    + """
local ledger, changed = open(), false
if not ledger then ledger, changed = new(epoch, low, base_id, base_time, verified), true end
if ledger.epoch ~= epoch then return answer(ledger) end
local whole = not later(low, ledger.last)
for i = 1, #image, 8 do
  local at, id = image[i], image[i + 1]
  if later(at, ledger.low) and not knows(ledger, id) then
    if not later(at, ledger.last) then at = following(ledger.last, ledger.now) end
    add(ledger, at, image, i + 1, image[i + 7])
    changed = true
  end
end
if whole and above(verified, ledger.verified) then ledger.verified = verified end
trim(ledger, max_entries, max_gone)
save(ledger, ttl_ms)
if changed then redis.call('PUBLISH', channel, caller) end
return answer(ledger)
""",
    idempotent=True,
)
def _restore(
    *,
    keys: LedgerKeys,
    sizes: Sizes,
    channel: str,
    caller: str,
    epoch: str,
    low: str,
    base_id: str,
    base_time: str,
    verified: str,
    image: Sequence[str],
) -> list[Any] | None:
    """Add what is missing. ``image``: stream id, six fields and the source of each entry. Returns the state."""


@script(
    _CHANGE
    + """
local ledger = open()
if not ledger then return nil end
if epoch ~= '' and not continues(ledger, epoch, at) then return 0 end
local before, added = ledger.last, {}
for i = 1, #seen, 6 do
  local id = seen[i]
  if (epoch == '' or source == 'push' or is_news(ledger, id, seen[i + 5])) and not knows(ledger, id) then
    add(ledger, following(ledger.last, ledger.now), seen, i, source)
    added[#added + 1] = (i - 1) / 6
    added[#added + 1] = ledger.last
  end
end
if above(verified, ledger.verified) then
  ledger.verified = verified
  settle(ledger, max_gone)
end
trim(ledger, max_entries, max_gone)
save(ledger, ttl_ms)
if #added > 0 then redis.call('PUBLISH', channel, caller) end
return { answer(ledger), before, added }
""",
    idempotent=True,
)
def _append(
    *,
    keys: LedgerKeys,
    sizes: Sizes,
    channel: str,
    caller: str,
    verified: str,
    since: Since,
    source: str,
    seen: Sequence[str],
) -> list[Any] | int | None:
    """Append what is new. ``seen``: six fields of each. Returns state, last id before, index and id of each new one."""


@script(
    _OPEN
    + """
local ledger = open()
if not ledger then return nil end
if epoch ~= '' and not continues(ledger, epoch, at) then return 0 end
local news = {}
for i = 1, #listed, 2 do
  if is_news(ledger, listed[i], listed[i + 1]) and not knows(ledger, listed[i]) then news[#news + 1] = listed[i] end
end
return { answer(ledger), news }
""",
    idempotent=True,
)
def _compare(*, keys: LedgerKeys, since: Since, listed: Sequence[str]) -> list[Any] | int | None:
    """Which messages are news. ``listed``: id and time of each. Returns state and their ids."""


@script(
    _ENTRIES
    + """
local ledger = open()
if not ledger then return nil end
if epoch ~= '' and not continues(ledger, epoch, at) then return 0 end
if tonumber(limit) == 0 then return { answer(ledger), {} } end
local found = redis.call('XRANGE', entries, '(' .. after, '+', 'COUNT', limit)
return { answer(ledger), shown(found, marks_read(server_us())) }
""",
    idempotent=True,
)
def _read(*, keys: LedgerKeys, after: str, limit: int, since: Since) -> list[Any] | int | None:
    """Entries above an id: state, entries."""


@script(
    _ENTRIES
    + """
local ledger = open()
if not ledger then return nil end
if tonumber(limit) == 0 then return { answer(ledger), {} } end
local found, ascending = redis.call('XREVRANGE', entries, before, '-', 'COUNT', limit), {}
for i = #found, 1, -1 do ascending[#ascending + 1] = found[i] end
return { answer(ledger), shown(ascending, marks_read(server_us())) }
""",
    idempotent=True,
)
def _read_back(*, keys: LedgerKeys, before: str, limit: int) -> list[Any]:
    """Entries up to an id, as `_read`."""
    raise NotImplementedError


@script(
    _ENTRIES
    + """
local ledger = open()
if not ledger then return nil end
local until_us, held, handed_out, returned = marks_read(server_us()), {}, {}, {}
for i, id in ipairs(wanted) do
  local at = place(id)
  if at then held[#held + 1] = redis.call('XRANGE', entries, at, at)[1] or error('unreadable: index') end
  local marked = until_us('p' .. id)
  if marked and at then
    -- Made before the entry arrived, it is about one that the ledger had in its place before.
    marked = marked / 1000 - tonumber(marks_ttl_ms) + ledger.ahead >= tonumber((parts(at)))
  end
  handed_out[i] = marked and 1 or 0
  returned[i] = until_us('r' .. id) and 1 or 0
end
return { answer(ledger), shown(held, until_us), handed_out, returned }
""",
    idempotent=True,
)
def _find(*, keys: LedgerKeys, marks_ttl_ms: int, wanted: Sequence[str]) -> list[Any] | None:
    """The entries of those messages that are held, and for each whether it was handed out as a position."""


@script(
    _OPEN
    + """
if not open() then return nil end
local changed = false
for i = 1, #roots, 2 do
  local at, late = place(roots[i])
  local entry = at and late == '' and redis.call('XRANGE', entries, at, at)[1]
  if entry and entry[2][6] == '0' then
    redis.call('HSET', index, roots[i], at .. ' ' .. roots[i + 1])
    changed = true
  end
end
touch(ttl_ms)
if changed then redis.call('PUBLISH', channel, caller) end
return {}
""",
    idempotent=True,
)
def _set_roots(*, keys: LedgerKeys, ttl_ms: int, channel: str, caller: str, roots: Sequence[str]) -> list[Any] | None:
    """Fill in roots. ``roots``: id and root, again and again."""


@script(
    _OPEN
    + """
local now = server_us()
local until_us = string.format('%.0f', now + tonumber(marks_ttl_ms) * 1000)
for _, id in ipairs(above_ids) do redis.call('ZADD', marks, until_us, 'r' .. id) end
local ledger = open()
local stood = ledger and epoch == ledger.epoch
  and (place(position) == at or (at ~= '0-0' and not later(at, ledger.low)))
if stood then redis.call('ZADD', marks, until_us, 'p' .. position) end
redis.call('ZREMRANGEBYSCORE', marks, '-inf', string.format('%.0f', now))
redis.call('ZREMRANGEBYRANK', marks, 0, -1 - tonumber(max_marks))
redis.call('PEXPIRE', marks, marks_ttl_ms)
touch(ttl_ms)
return stood and 1 or 0
""",
    idempotent=True,
)
def _note_returned(
    *,
    keys: LedgerKeys,
    ttl_ms: int,
    marks_ttl_ms: int,
    max_marks: int,
    position: str,
    since: Since,
    above_ids: Sequence[str],
) -> int:
    """Remember marks, forget those that are over, and the oldest where there are too many."""
    raise NotImplementedError


@script(
    """
redis.call('DEL', meta, entries, index, gone)
if all == '1' then redis.call('DEL', marks) end
return nil
""",
    idempotent=True,
)
def _drop(*, keys: LedgerKeys, all: str) -> None:
    """Drop a ledger; its marks with it where ``all`` is 1."""


class RedisLedger:
    """`ledger.port.Ledger` in Redis. A ledger that cannot be read is dropped, counted, and the same as none."""

    def __init__(
        self,
        scripts: Scripts,
        topology: Topology,
        *,
        limits: LedgerLimits | None = None,
        new_epoch: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._scripts = scripts
        self._topology = topology
        self._limits = limits or LedgerLimits()
        self._new_epoch = new_epoch
        self._channel = topology.channel(ARRIVALS)
        self._sizes = Sizes(_millis(self._limits.ttl_s), self._limits.max_entries, self._limits.max_gone)
        self._marks_ttl_ms = _millis(self._limits.returned_ttl_s)

    async def state(self, caller: CallerKey) -> LedgerState | None:
        found = await self._healed(caller, lambda: _state(self._scripts, keys=self._keys(caller)), _read_state)
        return None if found is None else _there(found, caller)

    async def heads(self, callers: Sequence[CallerKey]) -> Sequence[Head | None]:
        at_once = HEADS_AT_ONCE if self._topology.keys_mix else 1
        parts = [callers[start : start + at_once] for start in range(0, len(callers), at_once)]
        return [head for part in await asyncio.gather(*map(self._heads, parts)) for head in part]

    async def _heads(self, callers: Sequence[CallerKey]) -> list[Head | None]:
        keys = [self._key(caller, "meta") for caller in callers]
        reply = await _heads(self._scripts, meta=keys[0], keys=keys)
        return [_read_head(epoch, last) for epoch, last in zip(reply[::2], reply[1::2], strict=True)]

    async def begin(self, caller: CallerKey, snapshot: Sequence[Seen], baseline: Baseline) -> LedgerState:
        words: list[str] = []
        for seen in snapshot:
            words += [*fields_of(seen), str(max(int(seen.sent_at_s * 1000.0), 0))]
        state = await self._healed(
            caller,
            lambda: _begin(
                self._scripts,
                keys=self._keys(caller),
                sizes=self._sizes,
                epoch=self._new_epoch(),
                base_id=str(baseline.newest_id),
                base_time=time_text(baseline.time_s),
                snapshot=words,
            ),
            _read_state,
            again=True,
        )
        return _there(state, caller)

    async def restore(self, caller: CallerKey, image: Image) -> LedgerState:
        words: list[str] = []
        for entry in image.entries:
            words += [str(entry.at), *fields_of(entry), entry.source]
        state = await self._healed(
            caller,
            lambda: _restore(
                self._scripts,
                keys=self._keys(caller),
                sizes=self._sizes,
                channel=self._channel,
                caller=caller,
                epoch=image.state.epoch,
                low=str(image.state.low),
                base_id=str(image.state.baseline.newest_id),
                base_time=time_text(image.state.baseline.time_s),
                verified=str(image.state.verified_id),
                image=words,
            ),
            _read_state,
            again=True,
        )
        LEDGERS_RESTORED.inc()
        return _there(state, caller)

    async def compare(self, caller: CallerKey, listed: Sequence[Seen], *, since: Head | None = None) -> Compared:
        words = [word for one in listed for word in (str(one.id), time_text(one.sent_at_s))]
        compared = await self._healed(
            caller,
            lambda: _compare(self._scripts, keys=self._keys(caller), since=_since(since), listed=words),
            lambda reply: Compared(news=frozenset(map(read_id, reply[1])), state=_read_state(reply[0])),
        )
        return _there(compared, caller)

    async def append(
        self,
        caller: CallerKey,
        seen: Sequence[Seen],
        source: Source,
        *,
        since: Head | None = None,
        verified_id: int = 0,
    ) -> Appended:
        """Append what is not there yet."""

        def read(reply: list[Any]) -> Appended:
            state, before, added = reply
            new = [
                Arrival.of(seen[which], StreamId.parse(at.decode()), source)
                for which, at in zip(added[::2], added[1::2], strict=True)
            ]
            return Appended(
                new=tuple(new),
                duplicates=len(seen) - len(new),
                before=StreamId.parse(before.decode()),
                state=_read_state(state),
            )

        found = await self._healed(
            caller,
            lambda: _append(
                self._scripts,
                keys=self._keys(caller),
                sizes=self._sizes,
                channel=self._channel,
                caller=caller,
                verified=str(verified_id),
                since=_since(since),
                source=source,
                seen=[word for one in seen for word in fields_of(one)],
            ),
            read,
        )
        appended = _there(found, caller)
        count_append(source, new=len(appended.new), duplicates=appended.duplicates)
        return appended

    async def read(self, caller: CallerKey, after: StreamId, limit: int, *, since: Head | None = None) -> Slice:
        found = await self._healed(
            caller,
            lambda: _read(
                self._scripts,
                keys=self._keys(caller),
                after=str(after),
                limit=max(limit, 0) if after < END else 0,
                since=_since(since),
            ),
            _read_slice,
        )
        return _there(found, caller)

    async def read_back(self, caller: CallerKey, limit: int, *, before: StreamId = END) -> Slice:
        found = await self._healed(
            caller,
            lambda: _read_back(
                self._scripts,
                keys=self._keys(caller),
                before=str(before.before()),
                limit=max(limit, 0),
            ),
            _read_slice,
        )
        return _there(found, caller)

    async def find(self, caller: CallerKey, message_ids: Sequence[int]) -> Found:
        """Entries by message id."""

        def read(reply: list[Any]) -> Found:
            slice_ = _read_slice(reply)
            return Found(
                entries={entry.id: entry for entry in slice_.entries},
                handed_out=frozenset(id_ for id_, marked in zip(message_ids, reply[2], strict=True) if marked),
                returned=frozenset(id_ for id_, marked in zip(message_ids, reply[3], strict=True) if marked),
                state=slice_.state,
            )

        found = await self._healed(
            caller,
            lambda: _find(
                self._scripts,
                keys=self._keys(caller),
                marks_ttl_ms=self._marks_ttl_ms,
                wanted=[str(id_) for id_ in message_ids],
            ),
            read,
        )
        return _there(found, caller)

    async def late(self, caller: CallerKey) -> Sequence[Late]:
        found = await self._healed(caller, lambda: _late(self._scripts, meta=self._key(caller, "meta")), _read_late)
        return () if found is None else _there(found, caller)

    async def set_roots(self, caller: CallerKey, roots: Mapping[int, int]) -> None:
        words = [str(word) for message_id, root in roots.items() if root for word in (message_id, root)]
        done = await self._healed(
            caller,
            lambda: _set_roots(
                self._scripts,
                keys=self._keys(caller),
                ttl_ms=self._sizes.ttl_ms,
                channel=self._channel,
                caller=caller,
                roots=words,
            ),
            lambda _: True,
        )
        _there(done, caller)

    async def note_returned(
        self, caller: CallerKey, *, above: Iterable[int] = (), position: int = 0, head: Head | None = None
    ) -> bool:
        words = [str(id_) for id_ in above]
        stood = await self._healed(
            caller,
            lambda: _note_returned(
                self._scripts,
                keys=self._keys(caller),
                ttl_ms=self._sizes.ttl_ms,
                marks_ttl_ms=self._marks_ttl_ms,
                max_marks=self._limits.max_marks,
                position=str(position),
                since=_since(head),
                above_ids=words,
            ),
            lambda _: False,
            again=True,
        )
        return bool(stood)

    async def forget(self, caller: CallerKey) -> None:
        await _drop(self._scripts, keys=self._keys(caller), all="1")

    async def _healed(
        self,
        caller: CallerKey,
        ask: Callable[[], Awaitable[list[Any] | int | None]],
        read: Callable[[list[Any]], T],
        *,
        again: bool = False,
    ) -> T | int | None:
        """The answer of a script, read. What cannot be read is dropped; then ``again`` asks once more, else it is None.

        A number stays one.
        """
        for _ in range(2):
            try:
                reply = await ask()
                return read(reply) if isinstance(reply, list) else reply
            except (DamagedKey, ValueError, KeyError, IndexError, TypeError, AttributeError):
                tell_unreadable("ledger", caller=caller)
                await _drop(self._scripts, keys=self._keys(caller), all="0")
            if not again:
                break
        return None

    def _keys(self, caller: CallerKey) -> LedgerKeys:
        return LedgerKeys(*(self._key(caller, part) for part in LedgerKeys.__struct_fields__))

    def _key(self, caller: CallerKey, part: str) -> Key:
        return self._topology.key(caller, part)


def _there(found: T | int | None, caller: CallerKey) -> T:
    if found is None:
        raise NoLedger(no_ledger_text(caller))
    if isinstance(found, int) and not isinstance(found, bool):
        raise StaleEpoch(stale_text(caller))
    return cast("T", found)


def _since(head: Head | None) -> Since:
    return Since("", "0-0") if head is None else Since(head.epoch, str(head.last))


def _read_head(epoch: bytes | None, last: bytes | None) -> Head | None:
    """A ledger that cannot be read has no head; its next reader drops it."""
    try:
        return None if epoch is None or last is None else Head(epoch.decode(), StreamId.parse(last.decode()))
    except ValueError:
        return None


def _read_state(reply: list[Any]) -> LedgerState:
    epoch, last, low, base_id, base_time, old_id, old_time, now_ms, verified_id, held = reply
    return LedgerState(
        epoch=epoch.decode(),
        last=StreamId.parse(last.decode()),
        low=StreamId.parse(low.decode()),
        baseline=Baseline(newest_id=read_id(base_id), time_s=read_time(base_time)),
        settled=Baseline(newest_id=read_id(old_id), time_s=read_time(old_time)),
        held=held,
        now_s=int(now_ms) / 1000.0,
        verified_id=read_id(verified_id),
    )


def _read_slice(reply: list[Any]) -> Slice:
    entries = [
        arrival_of(at, fields, late_root=late, returned=bool(returned)) for at, fields, late, returned in reply[1]
    ]
    return Slice(entries=tuple(entries), state=_read_state(reply[0]))


def _read_late(reply: list[Any]) -> tuple[Late, ...]:
    words = reply[0].decode().replace(";", " ").split()
    late = zip(map(read_id, words[::3]), map(read_id, words[1::3]), map(StreamId.parse, words[2::3]), strict=True)
    return tuple(Late(*each) for each in late)


def _millis(seconds: float) -> int:
    return max(1, round(seconds * 1000))
