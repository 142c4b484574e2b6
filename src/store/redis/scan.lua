-- Records in one parked status, oldest first, from a place on. What has expired leaves the index.
--
-- KEYS: the index. ARGV: the status; the prefix of records; how many; and, if not from the start, when
-- the last record shown was written, and its id.
local index = KEYS[1]
local status, prefix, limit, from, last = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

-- What was shown last may have left the index: its place is found by value.
local start = 0
if from then
  start = redis.call('ZCOUNT', index, '-inf', '(' .. from)
  for _, pk in ipairs(redis.call('ZRANGEBYSCORE', index, from, from)) do
    if pk <= last then
      start = start + 1
    end
  end
end

local found, gone = {}, {}
-- One more than is shown says whether there are more.
local listed = redis.call('ZRANGE', index, start, start + limit, 'WITHSCORES')
for i = 1, math.min(#listed, limit * 2), 2 do
  local pk = listed[i]
  local record = redis.call('HGETALL', prefix .. pk)
  local is_listed = false
  for field = 1, #record, 2 do
    is_listed = is_listed or record[field] == 'status' and record[field + 1] == status
  end
  if is_listed then
    found[#found + 1] = { pk, record }
  else
    gone[#gone + 1] = pk
  end
end
local next = {}
if #listed > limit * 2 then
  next = { listed[limit * 2], listed[limit * 2 - 1] }
end
for _, pk in ipairs(gone) do
  redis.call('ZREM', index, pk)
end
return { found, next }
