-- Try each command that the scripts use. Otherwise a script could fail in the middle, because the user may not run a
-- command.
-- KEYS 1 a key for this script only, deleted at the end
-- Returns {command, error of the server} for the first refused command; {} if none is refused
local tries = {
  {'DEL'}, {'EXISTS'},
  {'HSET', 'f', '1'}, {'HGET', 'f'}, {'HMGET', 'f'}, {'HGETALL'}, {'HINCRBY', 'f', '1'}, {'HDEL', 'f'}, {'DEL'},
  {'SADD', '1'}, {'SMEMBERS'}, {'SREM', '1'}, {'DEL'},
  {'RPUSH', '1'}, {'LRANGE', '0', '-1'}, {'DEL'},
  {'ZADD', '0', 'm'}, {'ZCARD'}, {'ZSCORE', 'm'}, {'ZRANGE', '[m', '+', 'BYLEX', 'LIMIT', '0', '1'},
  {'ZRANGEBYSCORE', '-inf', '0', 'LIMIT', '0', '1'}, {'ZREVRANGE', '0', '0'}, {'ZLEXCOUNT', '[m', '+'},
  {'ZREMRANGEBYLEX', '[m', '(n'}, {'ZREM', 'm'}, {'DEL'},
  {'XADD', '1-0', 'i', '1'}, {'XLEN'}, {'XRANGE', '1-0', '+', 'COUNT', '1'}, {'XTRIM', 'MINID', '1-0'}, {'DEL'},
}
local answer = redis.pcall('TIME')
if answer.err then return {'TIME', answer.err} end
for _, words in ipairs(tries) do
  answer = redis.pcall(words[1], KEYS[1], unpack(words, 2))
  if type(answer) == 'table' and answer.err then
    redis.pcall('DEL', KEYS[1])
    return {words[1], answer.err}
  end
end
return {}
