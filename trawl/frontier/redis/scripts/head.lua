-- Read the format of a job, or create a new job.
-- KEYS 1 head
-- ARGV 1 whether to create it  then names and values
-- Returns names and values; empty if there is no job
if ARGV[1] == '1' and redis.call('EXISTS', KEYS[1]) == 0 then
  for at = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'begun', string.format('%.0f', time[1] * 1000000 + time[2]))
end
return redis.call('HGETALL', KEYS[1])
