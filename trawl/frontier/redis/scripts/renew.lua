-- Prolong the lease of a partition for whoever has its epoch, even one that is over: nobody has taken it.
-- KEYS 1 the partition
-- ARGV 1 epoch  2 length of the lease in microseconds
-- Returns {1} or {0, worker}
local m = redis.call('HMGET', KEYS[1], 'e', 't', 'w')
if m[1] ~= ARGV[1] then return {0, m[3] or ''} end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local latest = tonumber(m[2] or '0')
if now < latest then now = latest end
redis.call('HSET', KEYS[1], 'u', string.format('%.0f', now + ARGV[2]), 't', string.format('%.0f', now))
return {1}
