-- Read the first requests between two keys, of each of several lanes.
-- KEYS 1 queue
-- ARGV of each: the first key, what all keys are below, the greatest number
-- Returns of each: how many there are, and these
local found = {}
for at = 1, #ARGV, 3 do
  local members = redis.call('ZRANGE', KEYS[1], '[' .. ARGV[at], '(' .. ARGV[at + 1], 'BYLEX', 'LIMIT', 0, ARGV[at + 2])
  found[#found + 1] = #members
  for _, member in ipairs(members) do found[#found + 1] = member end
end
return found
