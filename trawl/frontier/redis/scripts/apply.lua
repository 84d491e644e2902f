-- Apply one numbered step of a session completely and only once.
-- KEYS 1 head  2 deadlines  3 sessions  4 owners  5 queue  6 arrivals  7 items  8 kept  9 kept of parts  10 failed
--      11 orders with spilled items  12... marks and spilled items
-- ARGV 1 session  2 number of the step  3 the last arrival that it has received
--      4 position of the last item in the feeds; '' if it does not export
--      5 lanes whose first requests to return  then operations, each a letter:
--      E key: a request ends                         F key, time, reason: a request ends as failed
--      A key and record: add a request               N KEYS, mark, key and record: add a request if it is new
--      S KEYS, mark: mark a fingerprint as seen      M old key, new key: move a request
--      I item: add to the outbox                     P KEYS, order, item: spill an item
--      T KEYS, order: spilled items into the outbox  U KEYS, session and order: remove spilled items
--      K name, value and D name: kept values         Q failed, key and record: queue a failed request again
--      V part, value: kept values of a part          G part, value: kept values of a part, which is released
--      R key, key: remove requests from the first key up to the second, and the arrivals of these requests
--      B: start() was read to its end
-- Returns {'ok', last position, numbers of the N operations that were seen, from 0,
--          {key of the first request of each lane; ''...}, {arrivals...}, number of sessions} or {'fenced'} or
-- {'behind', number of the last step}. A step that was applied before is not repeated, and returns 'again' for 'ok'.
local ARRIVALS = 1000
local head, deadlines, sessions, owners, queue, arrivals, items, _, values, failed, orders = unpack(KEYS)
local session, number = ARGV[1], tonumber(ARGV[2])
if not redis.call('ZSCORE', deadlines, session) then return {'fenced'} end
local last, seen = string.match(redis.call('HGET', sessions, session .. ' step') or '0', '^(%d+) ?(.*)$')
last = tonumber(last)
if last > number then return {'fenced'} end
if last < number - 1 then return {'behind', last} end
local h = redis.call('HMGET', head, 'marks', 'end', 'exported')
local position = tonumber(h[2] or '0')
local at, count = 6, #ARGV
if last == number - 1 then
  local marks, refused, asked = 0, {}, 0
  local owner_of, coming = {}, nil
  local function find(key)
    return redis.call('ZRANGE', queue, '[' .. key, '(' .. key .. '\255', 'BYLEX', 'LIMIT', 0, 1)[1]
  end
  local function put(item)
    position = position + 1
    redis.call('XADD', items, string.format('%.0f-0', position), 'i', item)
  end
  local function add(member)
    redis.call('ZADD', queue, 0, member)
    local high, low = string.byte(member, 1, 2)
    local part = high * 4 + math.floor(low / 64)
    local owner = owner_of[part]
    if not owner then
      owner = redis.call('HGET', owners, part) or '!'
      owner_of[part] = owner
    end
    if owner ~= session and owner ~= '!' then
      local place = redis.call('HINCRBY', sessions, owner .. ' arrived', 1)
      redis.call('ZADD', arrivals, 0, string.format('%s:%016.0f:', owner, place) .. member)
    end
  end
  while at <= count do
    local operation, first, second, third = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    if operation == 'N' then
      if redis.call('SADD', KEYS[tonumber(first)], second) == 1 then
        marks = marks + 1
        add(third)
      else
        refused[#refused + 1] = asked
      end
      asked = asked + 1
      at = at + 4
    elseif operation == 'A' then
      add(first)
      at = at + 2
    elseif operation == 'S' then
      marks = marks + redis.call('SADD', KEYS[tonumber(first)], second)
      at = at + 3
    elseif operation == 'E' then
      redis.call('ZREMRANGEBYLEX', queue, '[' .. first, '(' .. first .. '\255')
      at = at + 2
    elseif operation == 'I' then
      put(first)
      at = at + 2
    elseif operation == 'K' then
      redis.call('HSET', KEYS[8], first, second)
      at = at + 3
    elseif operation == 'D' then
      redis.call('HDEL', KEYS[8], first)
      at = at + 2
    elseif operation == 'M' then
      local member = find(first)
      if member then
        redis.call('ZREM', queue, member)
        redis.call('ZADD', queue, 0, second .. string.sub(member, 33))
      end
      at = at + 3
    elseif operation == 'F' then
      local member = find(first)
      if member then
        redis.call('ZREM', queue, member)
        redis.call('ZADD', failed, second, first .. third .. string.sub(member, 33))
      end
      at = at + 4
    elseif operation == 'Q' then
      if redis.call('ZREM', failed, first) == 1 then add(second) end
      at = at + 3
    elseif operation == 'R' then
      if not coming then -- the arrivals that this session may not have received, and their requests
        coming = {}
        local from = string.format('[%s:%016.0f:', session, tonumber(ARGV[3]) + 1)
        local unheard = redis.call('ZRANGE', arrivals, from, '(' .. session .. ';', 'BYLEX', 'LIMIT', 0, -1)
        for _, arrival in ipairs(unheard) do
          local member = string.match(arrival, '^%d+:%d+:(.*)$')
          if redis.call('ZSCORE', queue, member) then coming[arrival] = member end
        end
      end
      redis.call('ZREMRANGEBYLEX', queue, '[' .. first, '(' .. second)
      for arrival, member in pairs(coming) do
        if not redis.call('ZSCORE', queue, member) then
          redis.call('ZREM', arrivals, arrival)
          coming[arrival] = nil
        end
      end
      at = at + 3
    elseif operation == 'P' then
      redis.call('SADD', orders, session .. ' ' .. second)
      redis.call('RPUSH', KEYS[tonumber(first)], third)
      at = at + 4
    elseif operation == 'T' or operation == 'U' then
      local key = KEYS[tonumber(first)]
      if operation == 'T' then
        for _, item in ipairs(redis.call('LRANGE', key, 0, -1)) do put(item) end
        second = session .. ' ' .. second
      end
      redis.call('DEL', key)
      redis.call('SREM', orders, second)
      at = at + 3
    elseif operation == 'V' or operation == 'G' then
      if second == '' then redis.call('HDEL', values, first) else redis.call('HSET', values, first, second) end
      if operation == 'G' and redis.call('HGET', owners, first) == session then
        redis.call('HDEL', owners, first)
        redis.call('HINCRBY', sessions, session .. ' parts', -1)
        redis.call('HINCRBY', head, 'owned', -1)
        redis.call('HINCRBY', head, 'moved', 1)
        owner_of[tonumber(first)] = '!'
      end
      at = at + 3
    else -- B
      redis.call('HSET', head, 'start', 'done')
      at = at + 1
    end
  end
  if ARGV[4] ~= '' and ARGV[4] ~= (h[3] or '0') then
    redis.call('XTRIM', items, 'MINID', string.format('%.0f-0', tonumber(ARGV[4]) + 1))
    redis.call('HSET', head, 'exported', ARGV[4])
  end
  seen = table.concat(refused, ' ')
  redis.call('HSET', sessions, session .. ' step', seen == '' and ARGV[2] or ARGV[2] .. ' ' .. seen)
  redis.call('HSET', head, 'marks', string.format('%.0f', tonumber(h[1] or '0') + marks),
             'end', string.format('%.0f', position))
end
local due = {}
for place = 1, #ARGV[5], 8 do
  local lane = string.sub(ARGV[5], place, place + 7)
  local first = redis.call('ZRANGE', queue, '[' .. lane, '(' .. lane .. '\255', 'BYLEX', 'LIMIT', 0, 1)[1]
  due[#due + 1] = first and string.sub(first, 1, 32) or ''
end
local prefix = session .. ':'
local heard = string.format('%s%016.0f:', prefix, tonumber(ARGV[3]) + 1)
redis.call('ZREMRANGEBYLEX', arrivals, '[' .. prefix, '(' .. heard)
local arrived = redis.call('ZRANGE', arrivals, '[' .. heard, '(' .. session .. ';', 'BYLEX', 'LIMIT', 0, ARRIVALS)
return {last == number and 'again' or 'ok', string.format('%.0f', position), seen, due, arrived,
        redis.call('ZCARD', deadlines)}
