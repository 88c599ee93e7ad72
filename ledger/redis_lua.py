"""The scripts behind `ledger.redis`. Ids and clocks above 2^53 are beyond Lua's numbers: ids stay strings throughout.

Every script is safe to repeat. All but those about marks answer nil where there is no ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger.scripts import Key, script

OPEN = """
-- Whether decimal string or big-endian time a is above b. Not Lua's <, which follows the server's locale.
local function above(a, b)
  if #a ~= #b then return #a > #b end
  for i = 1, #a do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x > y end
  end
  return false
end

-- A number as eight bytes, the highest first.
local function bytes(number)
  local text = ''
  for _ = 1, 8 do
    text = string.char(number % 256) .. text
    number = math.floor(number / 256)
  end
  return text
end

local function server_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The ledger, or nil. Lists that do not fit the rest were evicted or expired one by one: what is left is no ledger.
local function open()
  local m = redis.call('HMGET', meta, 'epoch', 'last', 'seeds', 'base_id', 'base_time', 'clock', 'ahead', 'top')
  local held = redis.call('LLEN', log)
  if not m[1] or held ~= redis.call('LLEN', ids) or (held == 0 and m[2] ~= '0') then
    redis.call('DEL', meta, log, ids)
    return nil
  end
  local book = {
    epoch = m[1], last = tonumber(m[2]), seeds = tonumber(m[3]), base_id = m[4], base_time = m[5], held = held,
    top = m[8] or m[4], late = ''
  }
  -- The clock never goes back: where the server's does, the ledger's goes on from where it was.
  local clock, ahead = tonumber(m[6]), tonumber(m[7])
  book.now = server_us() + ahead
  if book.now < clock then
    redis.call('HSET', meta, 'ahead', string.format('%.0f', ahead + clock - book.now))
    book.now = clock
  end
  return book
end

local function first(book) return book.last - book.held + 1 end

local function answer(book)
  local now = string.format('%.0f', book.now)
  return { book.epoch, first(book), book.last, book.seeds, book.base_id, book.base_time, now }
end

-- The offset of an id, or nil. From the end, where what is asked for mostly is.
local function offset(book, id)
  local index = redis.call('LPOS', ids, id, 'RANK', -1)
  return index and first(book) + index
end

-- A function that says whether an id is new; whoever asks adds it then. A search costs 20 µs where 1000 ids are held, a
-- table of all of them as much as eight searches.
local function newness(book, count)
  if count < 8 then return function(id) return not offset(book, id) end end
  local there = {}
  for _, id in ipairs(redis.call('LRANGE', ids, 0, -1)) do there[id] = true end
  return function(id)
    if there[id] then return false end
    there[id] = true
    return true
  end
end

local function add(book, id, arrived, rest)
  redis.call('RPUSH', ids, id)
  redis.call('RPUSH', log, bytes(arrived) .. rest)
  book.last, book.held = book.last + 1, book.held + 1
  if above(book.top, id) then
    book.late = book.late .. book.last .. ':' .. id .. ':' .. book.top .. ' '
  else
    book.top = id
  end
end

-- Remember what was added out of order: the newest of it, each some thirty bytes.
local function save_late(book)
  if book.late == '' then return end
  local late = (redis.call('HGET', meta, 'late') or '') .. book.late
  local _, count = late:gsub(' ', '')
  while count > tonumber(max_late) do
    late, count = late:sub(late:find(' ', 1, true) + 1), count - 1
  end
  redis.call('HSET', meta, 'late', late)
end

-- Forget what is too old; the baseline moves past it, so that it is never taken for new again.
local function trim(book, max_entries)
  while book.held > tonumber(max_entries) do
    local id, sent = redis.call('LPOP', ids), redis.call('LPOP', log):sub(9, 16)
    if above(id, book.base_id) then book.base_id = id end
    if above(sent, book.base_time) then book.base_time = sent end
    book.held = book.held - 1
  end
end

local function touch(ttl_ms)
  for _, key in ipairs({ meta, log, ids }) do redis.call('PEXPIRE', key, ttl_ms) end
end

local function save(book, ttl_ms)
  redis.call('HSET', meta, 'last', book.last, 'base_id', book.base_id, 'base_time', book.base_time,
    'clock', string.format('%.0f', book.now), 'top', book.top)
  touch(ttl_ms)
end
"""
"""What every script on a ledger begins with: its keys are named ``meta``, ``log`` and ``ids``."""


@script(OPEN + "local book = open() return book and answer(book)", idempotent=True)
def state(*, meta: Key, log: Key, ids: Key) -> list[Any] | None:
    """The state."""


@script(
    OPEN
    + """
local book = open()
if book then return answer(book) end
redis.call('HSET', meta, 'epoch', epoch, 'last', 0, 'seeds', 0, 'base_id', base_id, 'base_time', base_time,
  'clock', 0, 'ahead', 0, 'top', 0, 'began_id', base_id, 'began_time', base_time)
book = open()
local is_new = newness(book, #seeds / 3)
for i = 1, #seeds, 3 do
  if is_new(seeds[i]) then
    add(book, seeds[i], math.min(tonumber(seeds[i + 1]), book.now), seeds[i + 2])
  end
end
book.seeds = book.last
redis.call('HSET', meta, 'seeds', book.seeds)
if above(base_id, book.top) then book.top = base_id end
trim(book, max_entries)
save(book, ttl_ms)
save_late(book)
-- Positions handed out before mean offsets of an earlier life.
for _, mark in ipairs(redis.call('ZRANGE', marks, 0, -1)) do
  if mark:sub(1, 1) == 'p' then redis.call('ZREM', marks, mark) end
end
return answer(book)
""",
    idempotent=True,
)
def begin(
    *,
    meta: Key,
    log: Key,
    ids: Key,
    marks: Key,
    ttl_ms: int,
    max_entries: int,
    max_late: int,
    epoch: str,
    base_id: str,
    base_time: bytes,
    seeds: Sequence[str | bytes],
) -> list[Any] | None:
    """Begin unless begun. ``seeds``: id, sent in µs, entry without arrival; again and again. Returns the state."""


@script(
    OPEN
    + """
local book = open()
if not book then return nil end
local new, is_new = {}, newness(book, #entries / 2)
for i = 1, #entries, 2 do
  if is_new(entries[i]) then
    add(book, entries[i], book.now, entries[i + 1])
    new[#new + 1] = entries[i]
  end
end
trim(book, max_entries)
save(book, ttl_ms)
save_late(book)
if #new > 0 then redis.call('PUBLISH', channel, caller) end
return { answer(book), new }
""",
    idempotent=True,
)
def append(
    *,
    meta: Key,
    log: Key,
    ids: Key,
    ttl_ms: int,
    max_entries: int,
    max_late: int,
    channel: str,
    caller: str,
    entries: Sequence[str | bytes],
) -> list[Any] | None:
    """Append what is new. ``entries``: id, entry without arrival; again and again. Returns state and new ids."""


_RANGE = """
local function range(book, start, stop)
  local found, entries = {}, {}
  if start <= stop then
    found, entries = redis.call('LRANGE', ids, start, stop), redis.call('LRANGE', log, start, stop)
  end
  return { answer(book), first(book) + start, found, entries }
end
"""


@script(
    OPEN
    + _RANGE
    + """
local book = open()
if not book then return nil end
local start = math.max(tonumber(after_n) + 1 - first(book), 0)
return range(book, start, start + tonumber(limit) - 1)
""",
    idempotent=True,
)
def read(*, meta: Key, log: Key, ids: Key, after_n: int, limit: int) -> list[Any] | None:
    """Entries above an offset: state, first offset, ids, entries."""


@script(
    OPEN
    + _RANGE
    + """
local book = open()
if not book then return nil end
local stop = math.min(tonumber(before_n) - first(book), book.held) - 1
return range(book, math.max(stop + 1 - tonumber(limit), 0), stop)
""",
    idempotent=True,
)
def read_back(*, meta: Key, log: Key, ids: Key, before_n: int, limit: int) -> list[Any] | None:
    """Entries below an offset, as `read`."""


@script(
    OPEN
    + """
local book = open()
if not book then return nil end
local now, found = server_us(), {}
for i, id in ipairs(wanted) do
  local until_us = redis.call('ZSCORE', marks, 'p' .. id)
  found[2 * i - 1] = offset(book, id) or 0
  found[2 * i] = until_us and tonumber(until_us) > now and 1 or 0
end
return found
""",
    idempotent=True,
)
def locate(*, meta: Key, log: Key, ids: Key, marks: Key, wanted: Sequence[str]) -> list[Any] | None:
    """For each id its offset (0: not there) and whether it was handed out as a position."""


@script(
    OPEN
    + """
local book = open()
if not book then return nil end
local changed = false
for i = 1, #roots, 2 do
  local n = offset(book, roots[i])
  if n then
    local index = n - first(book)
    local old = redis.call('LINDEX', log, index)
    if old:sub(18, 25) ~= roots[i + 1] then
      redis.call('LSET', log, index, old:sub(1, 17) .. roots[i + 1] .. old:sub(26))
      changed = true
    end
  end
end
touch(ttl_ms)
if changed then redis.call('PUBLISH', channel, caller) end
return {}
""",
    idempotent=True,
)
def set_roots(
    *, meta: Key, log: Key, ids: Key, ttl_ms: int, channel: str, caller: str, roots: Sequence[str | bytes]
) -> list[Any] | None:
    """Replace roots. ``roots``: id, root as eight bytes; again and again."""


@script(
    OPEN
    + """
local now = server_us()
local until_us = string.format('%.0f', now + tonumber(marks_ttl_ms) * 1000)
for _, member in ipairs(members) do redis.call('ZADD', marks, until_us, member) end
redis.call('ZREMRANGEBYSCORE', marks, '-inf', string.format('%.0f', now))
redis.call('ZREMRANGEBYRANK', marks, 0, -1 - tonumber(max_marks))
redis.call('PEXPIRE', marks, marks_ttl_ms)
touch(ttl_ms)
return nil
""",
    idempotent=True,
)
def note_returned(
    *,
    meta: Key,
    log: Key,
    ids: Key,
    marks: Key,
    ttl_ms: int,
    marks_ttl_ms: int,
    max_marks: int,
    members: Sequence[str],
) -> None:
    """Remember marks, forget those that are over, and the oldest where there are too many."""


@script(
    """
local time = redis.call('TIME')
local now, found = tonumber(time[1]) * 1000000 + tonumber(time[2]), {}
for i, member in ipairs(members) do
  local until_us = redis.call('ZSCORE', marks, member)
  found[i] = until_us and tonumber(until_us) > now and 1 or 0
end
return found
""",
    idempotent=True,
)
def returned(*, marks: Key, members: Sequence[str]) -> list[Any] | None:
    """Which marks are there."""


@script(
    OPEN + "return open() and redis.call('HMGET', meta, 'began_id', 'began_time', 'late') or nil",
    idempotent=True,
)
def out_of_order(*, meta: Key, log: Key, ids: Key) -> list[Any] | None:
    """The baseline the ledger began with, and what was recorded out of order: ``n:id:top`` and a blank, repeated."""


@script("redis.call('DEL', meta, log, ids, marks) return nil", idempotent=True)
def forget(*, meta: Key, log: Key, ids: Key, marks: Key) -> None:
    """Drop everything about a caller."""
