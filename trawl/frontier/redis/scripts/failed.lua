-- Read failed requests, the latest first.
-- KEYS 1 failed
-- ARGV 1 how many to pass over  2 the greatest number
-- Returns of each: key, reason and record; when it failed
return redis.call('ZREVRANGE', KEYS[1], ARGV[1], tonumber(ARGV[1]) + tonumber(ARGV[2]) - 1, 'WITHSCORES')
