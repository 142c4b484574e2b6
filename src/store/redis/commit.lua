-- One write of a record and all that is staged with it, or nothing. Everything is looked at before
-- anything is written: Redis takes nothing back.
--
-- KEYS: the record, the index of each parked status, then the key of each staged write.
-- ARGV: `absent`, `at` or `never`; claim id, revision; the latest layout that is known; the record's
-- id; the prefix of records; the names of the parked statuses; how long a record outlives its lease
-- (ms); then lists, each after its length: fields and values to set, fields to remove, staged writes.
local arg = 0
local function take()
  arg = arg + 1
  return ARGV[arg]
end
local function take_list()
  local list = {}
  for i = 1, tonumber(take()) do
    list[i] = take()
  end
  return list
end

local record = KEYS[1]
local expect, claim_id, rev, latest, pk, prefix = take(), take(), take(), take(), take(), take()
local statuses, margin = take_list(), take()
local set, remove = take_list(), take_list()

local current = redis.call('HGETALL', record)
local holds = false
if expect == 'absent' then
  holds = #current == 0
elseif expect == 'at' then
  local seen = redis.call('HMGET', record, 'claim_id', 'rev', 'v')
  -- A record of a later layout is left alone even by its own claim: reading it then says why.
  local v = tonumber(seen[3])
  holds = seen[1] == claim_id and seen[2] == rev and v ~= nil and v <= tonumber(latest)
end
if not holds then
  return { 'conflict', current }
end

-- Each staged write: what would come of it, where it comes after others of the same key.
local LARGEST = 9007199254740991
local seen = {}
local function look(key)
  if not seen[key] then
    seen[key] = { kind = redis.call('TYPE', key).ok }
  end
  return seen[key]
end
-- As strict as INCRBY itself, and only as far as a script counts exactly.
local function whole(text)
  local number = string.match(text, '^-?%d+$') and tonumber(text)
  if number and math.abs(number) <= LARGEST and text ~= '-0' and string.format('%.0f', number) == text then
    return number
  end
end
local function number_of(before, key)
  if before.kind == 'none' then
    return 0
  end
  return before.kind == 'string' and whole(before.value or redis.call('GET', key)) or nil
end

local writes = {}
for i = #statuses + 2, #KEYS do
  local key, form, args = KEYS[i], take(), take_list()
  local before = look(key)
  local function is(kind)
    return before.kind == 'none' or before.kind == kind
  end
  local after
  if form == 'set' then
    after = { kind = 'string', value = args[1] }
    writes[#writes + 1] = { 'SET', key, args[1] }
  elseif form == 'set-if-absent' then
    after = before.kind == 'none' and { kind = 'string', value = args[1] }
    writes[#writes + 1] = { 'SET', key, args[1] }
  elseif form == 'add' then
    local was, by, floor = number_of(before, key), tonumber(args[1]), tonumber(args[2])
    local sum = was and was + by
    if sum and math.abs(sum) <= LARGEST and (not floor or sum >= floor) then
      after = { kind = 'string', value = string.format('%.0f', sum) }
    end
    writes[#writes + 1] = { 'INCRBY', key, args[1] }
  elseif form == 'hash-set' then
    after = is('hash') and { kind = 'hash' }
    writes[#writes + 1] = { 'HSET', key, unpack(args) }
  elseif form == 'stream-add' then
    after = is('stream') and { kind = 'stream' }
    writes[#writes + 1] = { 'XADD', key, '*', unpack(args) }
  elseif form == 'delete' then
    after = before.kind ~= 'none' and { kind = 'none' }
    writes[#writes + 1] = { 'DEL', key }
  end
  if not after then
    return { 'refused', i - #statuses - 2 }
  end
  seen[key] = after
end

-- An index that is not one says so here, and not after the record is written.
local listed = {}
for i = 1, #statuses do
  listed[i] = redis.call('ZSCORE', KEYS[i + 1], pk)
end

-- Nor may a command be forbidden half-way (Redis 7; before that a script cannot ask).
if redis.acl_check_cmd then
  local own = {
    { 'HSET', record, 'v', latest }, { 'HDEL', record, 'v' }, { 'PERSIST', record },
    { 'PEXPIREAT', record, '0' }, { 'EXISTS', record },
  }
  for i = 1, #statuses do
    own[#own + 1] = { 'ZADD', KEYS[i + 1], '0', pk }
    own[#own + 1] = { 'ZREM', KEYS[i + 1], pk }
    own[#own + 1] = { 'ZCARD', KEYS[i + 1] }
    own[#own + 1] = { 'ZRANGE', KEYS[i + 1], '0', '0' }
  end
  for _, list in ipairs({ own, { { 'TIME' } }, writes }) do
    for _, command in ipairs(list) do
      if not redis.acl_check_cmd(unpack(command)) then
        return redis.error_reply('NOPERM ' .. command[1])
      end
    end
  end
end

-- First what a full server refuses: once a script has written, it refuses it nothing more.
if #set > 0 then
  redis.call('HSET', record, unpack(set))
end
if #remove > 0 then
  redis.call('HDEL', record, unpack(remove))
end

local now = redis.call('HMGET', record, 'status', 'updated_at', 'expires_at', 'lease_until')
for i, status in ipairs(statuses) do
  local index = KEYS[i + 1]
  if now[1] == status then
    redis.call('ZADD', index, tonumber(now[2]) or 0, pk)
    -- Those whose record has expired go by and by, wherever they stand: more of them than come.
    local from = tonumber(redis.call('TIME')[2]) % redis.call('ZCARD', index)
    for _, other in ipairs(redis.call('ZRANGE', index, from, from + 2)) do
      if redis.call('EXISTS', prefix .. other) == 0 then
        redis.call('ZREM', index, other)
      end
    end
  elseif listed[i] then
    redis.call('ZREM', index, pk)
  end
end

local expires_at = now[3] and tonumber(now[3])
if expires_at then
  local at = math.max(expires_at * 1000, (tonumber(now[4]) or 0) + tonumber(margin))
  -- Past what Redis can count to is as good as for ever.
  if at <= LARGEST then
    redis.call('PEXPIREAT', record, string.format('%.0f', at))
  else
    redis.call('PERSIST', record)
  end
else
  redis.call('PERSIST', record)
end

for _, write in ipairs(writes) do
  redis.call(unpack(write))
end
return { 'applied' }
