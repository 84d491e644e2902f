-- Read a partition without taking it.
-- KEYS 1 the partition  2 queue  3 items  4 kept  5 failed  6 orders with spilled items
-- Returns {worker, microseconds of its lease, seen, requests, items, failed, {name, value...}, {order...}}
local time = redis.call('TIME')
local m = redis.call('HMGET', KEYS[1], 'w', 'u', 'c')
local left = tonumber(m[2] or '0') - (time[1] * 1000000 + time[2])
return {m[1] or '', string.format('%.0f', left), m[3] or '0', redis.call('ZCARD', KEYS[2]), redis.call('XLEN', KEYS[3]),
        redis.call('ZCARD', KEYS[5]), redis.call('HGETALL', KEYS[4]), redis.call('SMEMBERS', KEYS[6])}
