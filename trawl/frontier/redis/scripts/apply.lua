-- Apply one numbered step of a partition's owner: all of it, once.
-- KEYS 1 the partition  2 queue  3 items  4 kept  5 failed  6 orders with spilled items  7... marks and spilled items
-- ARGV 1 epoch  2 number of the step  3 position up to which the feeds have the items  then operations, each a letter:
--      E key: a request ends                         F key, time, reason: it ends as failed
--      A key and record: add a request               M old key, new key: move one
--      S KEYS, mark: a fingerprint is seen           I item: for the outbox
--      P KEYS, order, item: spill an item            T KEYS, order: spilled items into the outbox
--      U KEYS, order: remove spilled items           K name, value and D name: what is kept
--      Q failed, key and record: queue one that failed again
-- Returns {'ok', last position, first held} or {'fenced', worker} or {'behind', number of the last step}. A step that
-- was applied before is not applied again: nothing was written since, so its answer is read anew, with 'again' for 'ok'.
local m = redis.call('HMGET', KEYS[1], 'e', 's', 'c', 'i', 'd', 'w')
if m[1] ~= ARGV[1] then return {'fenced', m[6] or ''} end
local last, number = tonumber(m[2] or '0'), tonumber(ARGV[2])
if last > number then return {'fenced', m[6] or ''} end
if last < number - 1 then return {'behind', last} end
local position = tonumber(m[4] or '0')
if last == number - 1 then
  local at, count, seen = 4, #ARGV, tonumber(m[3] or '0')
  local function find(key)
    return redis.call('ZRANGE', KEYS[2], '[' .. key, '(' .. key .. '\255', 'BYLEX', 'LIMIT', 0, 1)[1]
  end
  local function put(item)
    position = position + 1
    redis.call('XADD', KEYS[3], string.format('%.0f-0', position), 'i', item)
  end
  while at <= count do
    local operation, first, second, third = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    if operation == 'A' then
      redis.call('ZADD', KEYS[2], 0, first)
      at = at + 2
    elseif operation == 'S' then
      seen = seen + redis.call('SADD', KEYS[tonumber(first)], second)
      at = at + 3
    elseif operation == 'E' then
      redis.call('ZREMRANGEBYLEX', KEYS[2], '[' .. first, '(' .. first .. '\255')
      at = at + 2
    elseif operation == 'I' then
      put(first)
      at = at + 2
    elseif operation == 'K' then
      redis.call('HSET', KEYS[4], first, second)
      at = at + 3
    elseif operation == 'D' then
      redis.call('HDEL', KEYS[4], first)
      at = at + 2
    elseif operation == 'M' then
      local member = find(first)
      if member then
        redis.call('ZREM', KEYS[2], member)
        redis.call('ZADD', KEYS[2], 0, second .. string.sub(member, 33))
      end
      at = at + 3
    elseif operation == 'F' then
      local member = find(first)
      if member then
        redis.call('ZREM', KEYS[2], member)
        redis.call('ZADD', KEYS[5], second, first .. third .. string.sub(member, 33))
      end
      at = at + 4
    elseif operation == 'Q' then
      redis.call('ZREM', KEYS[5], first)
      redis.call('ZADD', KEYS[2], 0, second)
      at = at + 3
    elseif operation == 'P' then
      redis.call('SADD', KEYS[6], second)
      redis.call('RPUSH', KEYS[tonumber(first)], third)
      at = at + 4
    else -- T or U
      local key = KEYS[tonumber(first)]
      if operation == 'T' then
        for _, item in ipairs(redis.call('LRANGE', key, 0, -1)) do put(item) end
      end
      redis.call('DEL', key)
      redis.call('SREM', KEYS[6], second)
      at = at + 3
    end
  end
  if ARGV[3] ~= (m[5] or '0') then
    redis.call('XTRIM', KEYS[3], 'MINID', string.format('%.0f-0', tonumber(ARGV[3]) + 1))
  end
  redis.call('HSET', KEYS[1], 's', number, 'c', string.format('%.0f', seen),
             'i', string.format('%.0f', position), 'd', ARGV[3])
end
local held = '\128\0\0\0held'
local first = redis.call('ZRANGE', KEYS[2], '[' .. held, '(' .. held .. '\255', 'BYLEX', 'LIMIT', 0, 1)[1]
return {last == number and 'again' or 'ok', string.format('%.0f', position), first and string.sub(first, 1, 32) or ''}
