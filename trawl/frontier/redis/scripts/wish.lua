-- Set what all sessions should do. They see it with their next call of share.lua.
-- KEYS 1 head
-- ARGV 1 'pause', 'stop', or '' to continue
-- Returns 1, or 0 if there is no job
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[1] == '' then redis.call('HDEL', KEYS[1], 'wish') else redis.call('HSET', KEYS[1], 'wish', ARGV[1]) end
return 1
