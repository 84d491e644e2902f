-- Begin a session.
-- KEYS 1 head  2 deadlines  3 sessions
-- ARGV 1 name of the process  2 length of the lease in microseconds  3 whether it takes parts
-- Returns {session, microseconds since the job began}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local head = redis.call('HMGET', KEYS[1], 'begun', 'latest')
if now < tonumber(head[2] or '0') then now = tonumber(head[2]) end -- the time of a job never goes back
local session = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'sessions', 1))
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), session)
redis.call('HSET', KEYS[3], session .. ' name', ARGV[1], session .. ' works', ARGV[3])
if ARGV[3] == '0' then redis.call('HINCRBY', KEYS[1], 'guests', 1) end
redis.call('HSET', KEYS[1], 'latest', string.format('%.0f', now))
return {tonumber(session), string.format('%.0f', now - head[1])}
