-- Renew a session and return changes of the job to it: end sessions whose leases have expired, assign free parts to
-- this session, and survey the lanes of these parts in the same call, so that nothing is counted twice. Also end a
-- session.
-- KEYS 1 head  2 deadlines  3 sessions  4 owners  5 queue  6 arrivals  7 kept of parts
-- ARGV 1 session  2 number of the last taking that it has received  3 lease in microseconds; '' to leave it unchanged
--      4 whether it takes parts  5 whether it wants to export  6 whether it asks if the job is finished
--      7 the last arrival that it has received  8 its own report; '' if unchanged
--      9 '' if it stays; 'clean' if it leaves, or 'unclean' if its last sends are unknown
--      10 whether the server was unreachable since the last response
--      11 whether it was idle for a while, so that it takes free parts with pending requests beyond its share
--      12 its pages, requests in flight, items and errors; '' if it does not count
--      13 the state of ownership that it knows
--      14 its replies to questions; '' if unchanged
-- Returns {'ok', takings, last arrival, {arrivals...}, is there more, sessions that work, parts too many, the session
--          that reads start(), is the job finished, last item, exporter, its name, microseconds of its lease,
--          {part, with '!' if its owner did not release it...}, {its kept values...},
--          {number of requests in a lane, its first request...}, what all sessions should do,
--          number of other sessions that were idle for a while, if no part is free,
--          counts of all sessions, including ended ones,
--          the state of ownership, which is new after each change; {owner of each part; '' for none...} and
--          {session, name of its process...} if they are new; the questions} or {'fenced'} or {'behind'}
local LANES, ARRIVALS = 500, 1000
local head, deadlines, sessions, owners, queue, arrivals, values = unpack(KEYS)
local session = ARGV[1]
if not redis.call('ZSCORE', deadlines, session) then return {'fenced'} end
local given, said = redis.call('HMGET', sessions, session .. ' takings', session .. ' parts'), tonumber(ARGV[2])
local takings, remembered = string.match(given[1] or '0', '^(%d+)(.*)$')
takings = tonumber(takings)
if takings < said then return {'behind'} end
if takings > said + 1 then return {'fenced'} end
local mine = tonumber(given[2] or '0')
local h = redis.call('HMGET', head, 'parts', 'run', 'since', 'latest', 'guests', 'owned', 'start', 'exporter', 'end',
                     'orders', 'ahead', 'starving', 'counts', 'moved', 'asks')
if not h[1] then return {'fenced'} end
local parts, owned, start, exporter = tonumber(h[1]), tonumber(h[6] or '0'), h[7] or '', h[8] or ''
local starves, starving = ARGV[11] == '1', tonumber(h[12] or '0')
local starved = redis.call('HGET', sessions, session .. ' starves') == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] + (h[11] or 0)
local function number(value) return string.format('%.0f', value) end
if now < tonumber(h[4] or '0') then -- the clock was set back: continue the time of the job from its latest value
  redis.call('HSET', head, 'ahead', number(tonumber(h[4]) - now + (h[11] or 0)))
  now = tonumber(h[4])
end
if ARGV[3] ~= '' then
  redis.call('ZADD', deadlines, number(now + ARGV[3]), session)
  redis.call('HSET', head, 'latest', number(now))
  if ARGV[8] ~= '' then redis.call('HSET', sessions, session .. ' says', ARGV[8]) end
end
if ARGV[14] ~= '' then redis.call('HSET', sessions, session .. ' replies', ARGV[14]) end
local asks, are_asked = h[15] or '', false
for till in string.gmatch('\n' .. asks, '\n(%d+)') do are_asked = are_asked or tonumber(till) > now end
if asks ~= '' and not are_asked then redis.call('HDEL', head, 'asks') end
-- Check the run id here, because a session does not notice that its client has reconnected to a restarted server.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
local since, length = tonumber(h[3] or '0'), tonumber(ARGV[3]) or 0
if h[2] ~= run or ARGV[10] == '1' or (length > 0 and now - tonumber(h[4] or now) > length) then
  -- A new or restarted server may have older renewals, and an unreachable server could not receive any. If no session
  -- has renewed for a whole lease, the machine was suspended. So in these cases no session is ended during the next
  -- lease.
  if h[2] then
    since = now
    redis.call('HSET', head, 'since', number(now))
    if h[2] ~= run then redis.call('HINCRBY', head, 'sessions', 1000) end -- it may have lost live sessions
  end
  redis.call('HSET', head, 'run', run)
end

local COUNTS = '^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)$'
local counts = h[13] or '0 0 0 0'
local function count(was, is)
  local p, f, i, e = string.match(counts, COUNTS)
  local p0, f0, i0, e0 = string.match(was, COUNTS)
  local p1, f1, i1, e1 = string.match(is, COUNTS)
  counts = string.format('%.0f %.0f %.0f %.0f', p - p0 + p1, f - f0 + f1, i - i0 + i1, e - e0 + e1)
  redis.call('HSET', head, 'counts', counts)
end
local counted = redis.call('HGET', sessions, session .. ' counts') or '0 0 0 0'
if ARGV[12] ~= '' and ARGV[12] ~= counted then
  count(counted, ARGV[12])
  redis.call('HSET', sessions, session .. ' counts', ARGV[12])
end

local moved = tonumber(h[14] or '0')
local function every_owner()
  local fields = {}
  for part = 0, parts - 1 do fields[part + 1] = part end
  return redis.call('HMGET', owners, unpack(fields))
end
local function forget(gone, is_clean)
  local found = every_owner()
  for at = 1, parts do
    if found[at] == gone then
      if is_clean then redis.call('HDEL', owners, at - 1) else redis.call('HSET', owners, at - 1, '!') end
      owned = owned - 1
    end
  end
  redis.call('HSET', head, 'owned', owned)
  moved = redis.call('HINCRBY', head, 'moved', 1)
  redis.call('ZREM', deadlines, gone)
  if redis.call('HGET', sessions, gone .. ' works') ~= '1' then redis.call('HINCRBY', head, 'guests', -1) end
  if redis.call('HGET', sessions, gone .. ' starves') == '1' then
    starving = redis.call('HINCRBY', head, 'starving', -1)
  end
  local its = redis.call('HGET', sessions, gone .. ' counts')
  if its then count(its, (string.gsub(its, ' %-?%d+', ' 0', 1))) end -- the ended session has no requests in flight
  for _, what in ipairs({'name', 'works', 'terms', 'parts', 'step', 'takings', 'arrived', 'says', 'starves', 'counts',
                          'replies'}) do
    redis.call('HDEL', sessions, gone .. ' ' .. what)
  end
  redis.call('ZREMRANGEBYLEX', arrivals, '[' .. gone .. ':', '(' .. gone .. ';')
  if start == gone then
    start = ''
    redis.call('HDEL', head, 'start')
  end
  if exporter == gone then
    exporter = ''
    redis.call('HDEL', head, 'exporter')
  end
end
if ARGV[9] ~= '' then
  forget(session, ARGV[9] == 'clean')
  return {'ok'}
end
if length > 0 and (since == 0 or now - since >= length) then
  for _, late in ipairs(redis.call('ZRANGEBYSCORE', deadlines, '-inf', '(' .. number(now), 'LIMIT', 0, 8)) do
    if late ~= session then forget(late, false) end
  end
end
if ARGV[5] == '1' and exporter == '' then
  exporter = session
  redis.call('HSET', head, 'exporter', session)
end
local exporter_name, exporter_left = '', '0'
if exporter ~= '' and exporter ~= session then
  exporter_name = redis.call('HGET', sessions, exporter .. ' name') or ''
  exporter_left = number((redis.call('ZSCORE', deadlines, exporter) or now) - now)
end

local working = redis.call('ZCARD', deadlines) - (redis.call('HGET', head, 'guests') or 0)
local fair = working > 0 and math.ceil(parts / working) or parts
local taken, kept, lanes, more = {}, {}, {}, 0
local function edge(part) -- the first ten bits of a lane are its part
  if part == parts then return '+' end
  return string.char(math.floor(part / 4), part % 4 * 64)
end
local function has_some(part)
  local stop = '(' .. edge(part + 1)
  if stop == '(+' then stop = '+' end
  return redis.call('ZRANGE', queue, '[' .. edge(part), stop, 'BYLEX', 'LIMIT', 0, 1)[1]
end
local function survey(part)
  local after, stop = '[' .. edge(part), '(' .. edge(part + 1)
  if stop == '(+' then stop = '+' end
  while true do
    local first = redis.call('ZRANGE', queue, after, stop, 'BYLEX', 'LIMIT', 0, 1)[1]
    if not first then return end
    local lane = string.sub(first, 1, 8)
    local past = '(' .. lane .. string.rep('\255', 25)
    lanes[#lanes + 1] = redis.call('ZLEXCOUNT', queue, '[' .. lane, past)
    lanes[#lanes + 1] = first
    after = past
  end
end
if takings == said + 1 then -- the response was lost: return the same parts again, in their current state
  for token in string.gmatch(remembered, '%S+') do
    taken[#taken + 1] = token
    survey(tonumber(string.match(token, '%d+')))
  end
elseif ARGV[4] == '1' then
  if start == '' then
    start = session
    redis.call('HSET', head, 'start', session)
  end
  if (mine < fair or starves) and owned < parts then
    local found = every_owner()
    for part = 0, parts - 1 do
      local owner = found[part + 1]
      if #lanes >= 2 * LANES or (mine >= fair and not starves) then
        more = mine < fair and 1 or 0
        break
      end
      if (not owner or owner == '!') and (mine < fair or has_some(part)) then
        taken[#taken + 1] = owner and part .. '!' or tostring(part)
        redis.call('HSET', owners, part, session)
        survey(part)
        mine, owned = mine + 1, owned + 1
      end
    end
    if #taken > 0 then
      takings = takings + 1
      redis.call('HSET', sessions, session .. ' parts', mine,
                 session .. ' takings', string.format('%.0f ', takings) .. table.concat(taken, ' '))
      redis.call('HSET', head, 'owned', owned)
      moved = redis.call('HINCRBY', head, 'moved', 1)
    end
  end
end
starves = starves and #lanes == 0
if starves ~= starved then
  starving = redis.call('HINCRBY', head, 'starving', starves and 1 or -1)
  if starves then
    redis.call('HSET', sessions, session .. ' starves', '1')
  else
    redis.call('HDEL', sessions, session .. ' starves')
  end
end
if #taken > 0 then
  local fields = {}
  for at, token in ipairs(taken) do fields[at] = string.match(token, '%d+') end
  kept = redis.call('HMGET', values, unpack(fields))
  for at = 1, #fields do kept[at] = kept[at] or '' end
end

local prefix = session .. ':'
local heard = string.format('%s%016.0f:', prefix, tonumber(ARGV[7]) + 1)
redis.call('ZREMRANGEBYLEX', arrivals, '[' .. prefix, '(' .. heard)
local arrived = redis.call('ZRANGE', arrivals, '[' .. heard, '(' .. session .. ';', 'BYLEX', 'LIMIT', 0, ARRIVALS)
if #arrived == ARRIVALS then more = 1 end
local its, names = {}, {}
if ARGV[13] ~= tostring(moved) and working > 1 then
  local found = every_owner()
  for at = 1, parts do its[at] = found[at] or '' end
  local live = redis.call('ZRANGE', deadlines, 0, -1, 'WITHSCORES')
  for at = 1, #live, 2 do
    names[at] = live[at]
    names[at + 1] = redis.call('HGET', sessions, live[at] .. ' name') or ''
  end
end
local over = ARGV[6] == '1' and start == 'done' and redis.call('ZCARD', queue) == 0
return {'ok', takings, redis.call('HGET', sessions, session .. ' arrived') or '0', arrived, more, working,
        math.max(0, mine - fair), start, over and 1 or 0, h[9] or '0', exporter, exporter_name, exporter_left,
        taken, kept, lanes, h[10] or '', owned == parts and starving - (starves and 1 or 0) or 0, counts, moved, its, names,
        are_asked and asks or ''}
