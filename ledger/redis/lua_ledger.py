"""The scripts behind `ledger.redis.ledger`, on top of `ledger.redis.lua_book`.

Every script is safe to repeat. All but those about marks answer nil where there is no ledger, and 0 where it is not the
one that was looked at before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger.redis.lua_book import OPEN
from ledger.redis.scripts import Key, script


@script(OPEN + "local book = open() return book and answer(book)", idempotent=True)
def state(*, meta: Key, log: Key, ids: Key, gone: Key) -> list[Any] | None:
    """The state."""


@script(
    """
local found = {}
for i = 1, #keys, 2 do
  local life, newest = redis.call('HMGET', keys[i], 'epoch', 'last'), redis.call('LINDEX', keys[i + 1], -1)
  found[#found + 1] = life[1]
  found[#found + 1] = life[2]
  found[#found + 1] = newest and newest:sub(1, 8)
end
return found
""",
    idempotent=True,
)
def heads(*, meta: Key, keys: Sequence[str]) -> list[bytes | None]:
    """Epoch, last offset and tip of several ledgers, in turn. ``keys``: meta and log of each; ``meta`` of the first."""
    raise NotImplementedError


@script(
    OPEN
    + """
local book = open()
if book then return answer(book) end
redis.call('HSET', meta, 'epoch', epoch, 'last', 0, 'seeds', 0, 'base_id', base_id, 'base_time', base_time,
  'clock', 0, 'ahead', 0, 'top', 0, 'began_id', base_id, 'began_time', base_time, 'old_id', base_id,
  'old_time', base_time, 'complete', base_id)
book = open()
local is_new = newness(book)
for i = 1, #seeds, 3 do
  if is_new(seeds[i]) then
    add(book, seeds[i], math.min(tonumber(seeds[i + 1]), book.now), seeds[i + 2])
  end
end
book.seeds = book.last
redis.call('HSET', meta, 'seeds', book.seeds)
if above(base_id, book.top) then book.top = base_id end
book.complete = book.top
trim(book, max_entries, max_gone)
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
    gone: Key,
    marks: Key,
    ttl_ms: int,
    max_entries: int,
    max_late: int,
    max_gone: int,
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
local new, is_new = {}, newness(book)
if epoch ~= '' and not continues(book, epoch, n, tip) then return 0 end
for i = 1, #entries, 2 do
  local id, rest = entries[i], entries[i + 1]
  if (epoch == '' or is_news(book, id, rest:sub(1, 8))) and is_new(id) then
    add(book, id, book.now, rest)
    new[#new + 1] = id
  end
end
if above(complete_id, book.complete) then
  book.complete = complete_id
  settle(book, max_gone)
end
trim(book, max_entries, max_gone)
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
    gone: Key,
    ttl_ms: int,
    max_entries: int,
    max_late: int,
    max_gone: int,
    channel: str,
    caller: str,
    complete_id: str,
    epoch: str,
    n: int,
    tip: bytes,
    entries: Sequence[str | bytes],
) -> list[Any] | int | None:
    """Append what is new. ``entries``: id, entry without arrival; again and again. Returns state and new ids."""


@script(
    OPEN
    + """
local book = open()
if not book then return nil end
if epoch ~= '' and not continues(book, epoch, n, tip) then return 0 end
local news, is_new = {}, newness(book)
for i = 1, #listed, 2 do
  if is_news(book, listed[i], listed[i + 1]) and is_new(listed[i]) then news[#news + 1] = listed[i] end
end
return { answer(book), news }
""",
    idempotent=True,
)
def compare(
    *,
    meta: Key,
    log: Key,
    ids: Key,
    gone: Key,
    epoch: str,
    n: int,
    tip: bytes,
    listed: Sequence[str | bytes],
) -> list[Any] | int | None:
    """Which messages are news. ``listed``: id, sent as in an entry; again and again. Returns state and their ids."""


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
if epoch ~= '' and not continues(book, epoch, n, tip) then return 0 end
local start = math.max(tonumber(after_n) + 1 - first(book), 0)
return range(book, start, start + tonumber(limit) - 1)
""",
    idempotent=True,
)
def read(
    *, meta: Key, log: Key, ids: Key, gone: Key, after_n: int, limit: int, epoch: str, n: int, tip: bytes
) -> list[Any] | int | None:
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
def read_back(*, meta: Key, log: Key, ids: Key, gone: Key, before_n: int, limit: int) -> list[Any] | None:
    """Entries below an offset, as `read`."""


@script(
    OPEN
    + """
local book = open()
if not book then return nil end
local now, find, found = server_us(), finder(book), {}
for i, id in ipairs(wanted) do
  local at, until_us = find(id), redis.call('ZSCORE', marks, 'p' .. id)
  local marked = at and until_us and tonumber(until_us) > now
  if marked then
    -- Made before the entry arrived, it is about one that the ledger had in its place before.
    local made_us = tonumber(until_us) - tonumber(marks_ttl_ms) * 1000 + book.ahead
    marked = made_us >= number(stamp(book, at), 1, 8)
  end
  found[2 * i - 1], found[2 * i] = at or 0, marked and 1 or 0
end
return found
""",
    idempotent=True,
)
def locate(
    *, meta: Key, log: Key, ids: Key, gone: Key, marks: Key, marks_ttl_ms: int, wanted: Sequence[str]
) -> list[Any] | None:
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
    *, meta: Key, log: Key, ids: Key, gone: Key, ttl_ms: int, channel: str, caller: str, roots: Sequence[str | bytes]
) -> list[Any] | None:
    """Replace roots. ``roots``: id, root as eight bytes; again and again."""


@script(
    OPEN
    + """
local now = server_us()
local until_us = string.format('%.0f', now + tonumber(marks_ttl_ms) * 1000)
for _, id in ipairs(above_ids) do redis.call('ZADD', marks, until_us, 'r' .. id) end
local book, at = n ~= '0' and open(), tonumber(n)
-- What was trimmed had its offset.
local stands = book and (epoch == '' or epoch == book.epoch) and (at < first(book) or offset(book, position) == at)
if n == '0' or stands then
  redis.call('ZADD', marks, until_us, 'p' .. position)
end
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
    gone: Key,
    marks: Key,
    ttl_ms: int,
    marks_ttl_ms: int,
    max_marks: int,
    position: str,
    epoch: str,
    n: int,
    above_ids: Sequence[str],
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
    OPEN
    + """
if not open() then return nil end
local now, found = server_us(), {}
for i, member in ipairs(members) do
  local until_us = redis.call('ZSCORE', marks, member)
  found[i] = until_us and tonumber(until_us) > now and 1 or 0
end
local began = redis.call('HMGET', meta, 'began_id', 'began_time', 'late')
return { began[1], began[2], began[3], found }
""",
    idempotent=True,
)
def out_of_order(*, meta: Key, log: Key, ids: Key, gone: Key, marks: Key, members: Sequence[str]) -> list[Any] | None:
    """The baseline the ledger began with, what was recorded out of order (``n:id:top `` again and again), and which of
    the marks are there."""


@script("redis.call('DEL', meta, log, ids, gone, marks) return nil", idempotent=True)
def forget(*, meta: Key, log: Key, ids: Key, gone: Key, marks: Key) -> None:
    """Drop everything about a caller."""
