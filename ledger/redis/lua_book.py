"""What the scripts behind `ledger.redis.ledger` begin with: the ledger of one caller as Lua sees it.

The keys of a script are named ``meta``, ``log``, ``ids`` and ``gone``. Ids and clocks above 2^53 are beyond Lua's
numbers: ids stay strings throughout. `ledger.book` says the same in Python.
"""

from __future__ import annotations

VALUES = """
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

-- The number in some bytes, the highest first.
local function number(text, from, to)
  local value = 0
  for i = from, to do value = value * 256 + text:byte(i) end
  return value
end

-- The seconds in a big-endian double, which is not negative.
local function seconds(text)
  local exponent = math.floor(number(text, 1, 2) / 16)
  if exponent == 0 then return 0 end
  return (1 + (text:byte(2) % 16 * 2 ^ 48 + number(text, 3, 8)) / 2 ^ 52) * 2 ^ (exponent - 1023)
end

local function server_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
"""

BOOK = """
-- The ledger, or nil. Lists that do not fit the rest were evicted or expired one by one: what is left is no ledger, and
-- neither is one that lacks fields, written by an older version.
local function open()
  local m = redis.call('HMGET', meta, 'epoch', 'last', 'seeds', 'base_id', 'base_time', 'clock', 'ahead', 'top',
    'old_id', 'old_time', 'complete')
  local held = redis.call('LLEN', log)
  if not m[1] or not m[11] or held ~= redis.call('LLEN', ids) or (held == 0 and m[2] ~= '0') then
    redis.call('DEL', meta, log, ids, gone)
    return nil
  end
  local book = {
    epoch = m[1], last = tonumber(m[2]), seeds = tonumber(m[3]), base_id = m[4], base_time = m[5], held = held,
    top = m[8], late = '', old_id = m[9], old_time = m[10], complete = m[11], gone = redis.call('HLEN', gone)
  }
  -- The clock never goes back: where the server's does, the ledger's goes on from where it was.
  local clock = tonumber(m[6])
  book.ahead = tonumber(m[7])
  book.now = server_us() + book.ahead
  if book.now < clock then
    book.ahead = book.ahead + clock - book.now
    redis.call('HSET', meta, 'ahead', string.format('%.0f', book.ahead))
    book.now = clock
  end
  return book
end

local function first(book) return book.last - book.held + 1 end

-- When the entry at an offset was added, as it stands there: no two histories of a ledger have the same at one offset.
local function stamp(book, n) return redis.call('LINDEX', log, n - first(book)):sub(1, 8) end

local function answer(book)
  local tip = book.held > 0 and stamp(book, book.last) or ''
  return { book.epoch, first(book), book.last, book.seeds, book.base_id, book.base_time,
    string.format('%.0f', book.now), book.complete, tip }
end

-- Whether the ledger is what became of the one that stood at an offset. What was trimmed since cannot tell any more.
local function continues(book, epoch, n, tip)
  n = tonumber(n)
  if epoch ~= book.epoch or n > book.last then return false end
  return n < first(book) or stamp(book, n) == tip
end

-- The offset of an id, or nil. From the end, where what is asked for mostly is.
local function offset(book, id)
  local index = redis.call('LPOS', ids, id, 'RANK', -1)
  return index and first(book) + index
end

-- Whether a message that the ledger does not know has arrived, rather than been there before or been forgotten.
local function is_news(book, id, sent) return above(id, book.old_id) or above(sent, book.old_time) end

-- A function that gives the offset of an id, for many ids. A search that finds nothing costs 20 µs where 1000 ids are
-- held, a table of all of them as much as eight searches.
local function finder(book)
  local misses, at = 0, nil
  return function(id)
    if at then return at[id] end
    local n = offset(book, id)
    if n then return n end
    misses = misses + 1
    if misses == 8 then
      at = {}
      for index, held in ipairs(redis.call('LRANGE', ids, 0, -1)) do at[held] = first(book) + index - 1 end
    end
    return nil
  end
end

-- A function that says whether an id is new; whoever asks adds it then.
local function newness(book)
  local find, added = finder(book), {}
  return function(id)
    if added[id] or find(id) or (book.gone > 0 and redis.call('HEXISTS', gone, id) == 1) then return false end
    added[id] = true
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
"""

TRIM = """
-- Let a forgotten message be old news from now on, and with it whatever is not above its id and time.
local function cover(book, id, sent)
  if above(id, book.old_id) then book.old_id = id end
  if above(sent, book.old_time) then book.old_time = sent end
end

-- Cover the gone that were sent by then, up to an id where one is given.
local function cover_gone(book, until_s, up_to_id)
  local all = redis.call('HGETALL', gone)
  for i = 1, #all, 2 do
    if seconds(all[i + 1]) <= until_s and not (up_to_id and above(all[i], up_to_id)) then
      cover(book, all[i], all[i + 1])
      redis.call('HDEL', gone, all[i])
      book.gone = book.gone - 1
    end
  end
end

-- Forget of the gone what needs no remembering: the mark has passed it, and it was sent before the oldest entry held
-- arrived. Where too many remain, give up on what lies below the others that are not ahead of time, then on the least
-- ahead.
local function settle(book, max_gone)
  if book.gone == 0 then return end
  local horizon = number(redis.call('LINDEX', log, 0), 1, 8) / 1000000
  cover_gone(book, horizon, book.complete)
  if book.gone > tonumber(max_gone) then cover_gone(book, horizon) end
  while book.gone > tonumber(max_gone) do
    local least, mean, sents = math.huge, 0, redis.call('HVALS', gone)
    for _, sent in ipairs(sents) do
      least, mean = math.min(least, seconds(sent)), mean + seconds(sent) / #sents
    end
    cover_gone(book, math.max(least, mean))
  end
  if above(book.old_id, book.complete) then book.complete = book.old_id end
end

-- Forget what is too old. The baseline moves past it at once. What that does not prove old news is remembered by id.
local function trim(book, max_entries, max_gone)
  while book.held > tonumber(max_entries) do
    local id, entry = redis.call('LPOP', ids), redis.call('LPOP', log)
    local sent = entry:sub(9, 16)
    if above(id, book.base_id) then book.base_id = id end
    if above(sent, book.base_time) then book.base_time = sent end
    if above(id, book.complete) or seconds(sent) > number(entry, 1, 8) / 1000000 then
      redis.call('HSET', gone, id, sent)
      book.gone = book.gone + 1
    else
      cover(book, id, sent)
    end
    book.held = book.held - 1
  end
  if book.gone > tonumber(max_gone) then settle(book, max_gone) end
end
"""

SAVE = """
local function touch(ttl_ms)
  for _, key in ipairs({ meta, log, ids, gone }) do redis.call('PEXPIRE', key, ttl_ms) end
end

local function save(book, ttl_ms)
  redis.call('HSET', meta, 'last', book.last, 'base_id', book.base_id, 'base_time', book.base_time,
    'clock', string.format('%.0f', book.now), 'top', book.top, 'old_id', book.old_id, 'old_time', book.old_time,
    'complete', book.complete)
  touch(ttl_ms)
end
"""

OPEN = VALUES + BOOK + TRIM + SAVE
"""All of it."""
