-- Ask all sessions a question. They see it with their next call of share.lua, and reply until its time is over.
-- KEYS 1 head
-- ARGV 1 id of the question  2 the question  3 microseconds for which it is asked
-- Returns 1, or 0 if there is no job
local head = redis.call('HMGET', KEYS[1], 'asks', 'begun', 'latest', 'ahead')
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local time = redis.call('TIME')
local now = math.max(time[1] * 1000000 + time[2] + (head[4] or 0), tonumber(head[3] or '0'))
local kept = {}
for line in string.gmatch(head[1] or '', '[^\n]+') do
  local till, id = string.match(line, '^(%d+)\t([^\t]*)\t')
  if till and tonumber(till) > now and id ~= ARGV[1] then kept[#kept + 1] = line end
end
while #kept > 19 do table.remove(kept, 1) end
kept[#kept + 1] = string.format('%.0f\t', now + ARGV[3]) .. ARGV[1] .. '\t' .. ARGV[2]
redis.call('HSET', KEYS[1], 'asks', table.concat(kept, '\n'))
return 1
