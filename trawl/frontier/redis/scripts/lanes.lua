-- Read the first requests between two keys for each of several lanes. A session must receive all arrivals first. If
-- there are many arrivals, this returns only arrivals, and the session reads again.
-- KEYS 1 queue  2 arrivals
-- ARGV 1 session; '' for none  2 the last arrival that it has received  then for each lane: the first key, an upper
--      bound of its keys, the maximum number
-- Returns {{arrivals...}, {number of requests, requests, for each lane...}}
local ARRIVALS = 1000
local found, arrived = {}, {}
if ARGV[1] ~= '' then
  local heard = string.format('%s:%016.0f:', ARGV[1], tonumber(ARGV[2]) + 1)
  arrived = redis.call('ZRANGE', KEYS[2], '[' .. heard, '(' .. ARGV[1] .. ';', 'BYLEX', 'LIMIT', 0, ARRIVALS)
  if #arrived == ARRIVALS then return {arrived, {}} end
end
for at = 3, #ARGV, 3 do
  local members = redis.call('ZRANGE', KEYS[1], '[' .. ARGV[at], '(' .. ARGV[at + 1], 'BYLEX', 'LIMIT', 0, ARGV[at + 2])
  found[#found + 1] = #members
  for _, member in ipairs(members) do found[#found + 1] = member end
end
return {arrived, found}
