-- Add an order to the list of what all sessions should do. They see it with their next call of share.lua.
-- KEYS 1 head
-- ARGV 1 key of the order  2 its line, with the key between two tabs
-- Returns 1, or 0 if there is no job
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local kept = {}
for line in string.gmatch(redis.call('HGET', KEYS[1], 'orders') or '', '[^\n]+') do
  if string.match(line, '\t([^\t]*)\t') ~= ARGV[1] then table.insert(kept, line) end
end
if ARGV[1] == 'state' then table.insert(kept, 1, ARGV[2]) else table.insert(kept, ARGV[2]) end
-- The first line may say that the job is paused, so it stays.
while #kept > 100 do table.remove(kept, 2) end
redis.call('HSET', KEYS[1], 'orders', table.concat(kept, '\n'))
return 1
