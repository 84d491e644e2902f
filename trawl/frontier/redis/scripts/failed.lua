-- Read failed requests, latest first.
-- KEYS 1 failed
-- ARGV 1 number of requests to skip  2 maximum number
-- Returns for each: key, reason and record; time of the failure
return redis.call('ZREVRANGE', KEYS[1], ARGV[1], tonumber(ARGV[1]) + tonumber(ARGV[2]) - 1, 'WITHSCORES')
