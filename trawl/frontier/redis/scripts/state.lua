-- Read the state of a job, without joining it.
-- KEYS 1 head  2 deadlines  3 sessions  4 queue  5 items  6 kept  7 failed  8 spilled
-- Returns {{the head...}, requests, items, failed, {name, value...}, {session, microseconds of its lease...},
--          {'SESSION WHAT', value...}, {session and order of a request with spilled items...}}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] + (redis.call('HGET', KEYS[1], 'ahead') or 0)
local left = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for at = 2, #left, 2 do left[at] = string.format('%.0f', left[at] - now) end
return {redis.call('HGETALL', KEYS[1]), redis.call('ZCARD', KEYS[4]), redis.call('XLEN', KEYS[5]),
        redis.call('ZCARD', KEYS[7]), redis.call('HGETALL', KEYS[6]), left, redis.call('HGETALL', KEYS[3]),
        redis.call('SMEMBERS', KEYS[8])}
