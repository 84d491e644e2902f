-- Say which marks are seen.
-- KEYS sets of marks
-- ARGV of each: the number of its set, the mark
-- Returns of each 1 or 0
local found = {}
for at = 1, #ARGV, 2 do
  found[#found + 1] = redis.call('SISMEMBER', KEYS[tonumber(ARGV[at])], ARGV[at + 1])
end
return found
