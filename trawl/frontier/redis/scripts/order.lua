-- Add an order to the list of what all sessions should do. They see it with their next call of share.lua.
-- KEYS 1 head
-- ARGV 1 key of the order  2 its line, with the key between two tabs  3 0 if no process works on the job, so that a
--      full list must not lose its oldest order
-- This script adds a last field to the line: microseconds since the job started.
-- Returns 1, 0 if there is no job, or -1 if the list is full and must not lose an order
local head = redis.call('HMGET', KEYS[1], 'orders', 'begun', 'latest', 'ahead')
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local time = redis.call('TIME')
local now = math.max(time[1] * 1000000 + time[2] + (head[4] or 0), tonumber(head[3] or '0'))
local line, kept = ARGV[2] .. string.format('\t%.0f', now - (head[2] or now)), {}
for other in string.gmatch(head[1] or '', '[^\n]+') do
  if string.match(other, '\t([^\t]*)\t') ~= ARGV[1] then table.insert(kept, other) end
end
if ARGV[1] == 'state' then table.insert(kept, 1, line) else table.insert(kept, line) end
if #kept > 100 and ARGV[3] == '0' then return -1 end
-- The first line may say that the job is paused, so it stays.
while #kept > 100 do table.remove(kept, 2) end
redis.call('HSET', KEYS[1], 'orders', table.concat(kept, '\n'))
return 1
