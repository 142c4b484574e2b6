-- A part of all records, in no order.
--
-- KEYS: any, for its slot. ARGV: the prefix of records; where to go on, `0` at first; about how many.
local prefix, from, limit = ARGV[1], ARGV[2], ARGV[3]

-- The braces of the prefix mean nothing to a pattern.
local step = redis.call('SCAN', from, 'MATCH', prefix .. '*', 'COUNT', limit)
local found = {}
for _, key in ipairs(step[2]) do
  found[#found + 1] = { string.sub(key, #prefix + 1), redis.call('HGETALL', key) }
end
local next = {}
if step[1] ~= '0' then
  next = { step[1] }
end
return { found, next }
