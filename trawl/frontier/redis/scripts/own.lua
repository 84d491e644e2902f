-- Take a partition, or say who has it and for how long. Taking it raises its epoch: whoever had it can't write any more.
-- KEYS 1 the partition
-- ARGV 1 worker  2 length of the lease in microseconds
-- Returns {1, epoch, step, seen, last position, first position, was it given back} or {0, worker, microseconds left}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local m = redis.call('HMGET', KEYS[1], 'w', 'e', 'u', 's', 't', 'c', 'i', 'd')
local latest = tonumber(m[5] or '0')
if now < latest then now = latest end -- the time of a partition never goes back
local owner = m[1] or ''
local left = tonumber(m[3] or '0') - now
if owner ~= '' and left > 0 then return {0, owner, string.format('%.0f', left)} end
local epoch = tonumber(m[2] or '0') + 1
redis.call('HSET', KEYS[1], 'w', ARGV[1], 'e', epoch,
           'u', string.format('%.0f', now + ARGV[2]), 't', string.format('%.0f', now))
return {1, epoch, m[4] or '0', m[6] or '0', m[7] or '0', m[8] or '0', owner == '' and 1 or 0}
