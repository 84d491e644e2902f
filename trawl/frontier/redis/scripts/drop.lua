-- Give a partition back. Its epoch is raised, or a step that is still under way could be applied later.
-- KEYS 1 the partition
-- ARGV 1 epoch  2 '' or, where it is not known what was sent last, a name: the next one is told so
-- Returns {1} or {0}
if redis.call('HGET', KEYS[1], 'e') ~= ARGV[1] then return {0} end
redis.call('HSET', KEYS[1], 'w', ARGV[2], 'u', 0, 'e', tonumber(ARGV[1]) + 1)
return {1}
