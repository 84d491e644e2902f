-- List lanes, ordered by number.
-- KEYS 1 queue
-- ARGV 1 lower bound of the first  2 the maximum number of lanes
-- Returns for each: the number of its requests, and the first
local found, after = {}, ARGV[1]
for _ = 1, tonumber(ARGV[2]) do
  local first = redis.call('ZRANGE', KEYS[1], '(' .. after, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not first then break end
  local lane = string.sub(first, 1, 8)
  after = lane .. string.rep('\255', 25)
  found[#found + 1] = redis.call('ZLEXCOUNT', KEYS[1], '[' .. lane, '(' .. after)
  found[#found + 1] = first
end
return found
