-- The line of the shared scopes. An ask gets a token when all of its scopes are open. Until then it waits in line.
-- KEYS 1 scopes  2 line  3 asks  4 asks by session  5 sessions  6 deadlines of tokens  7 openings  8 numbers
--      9 the prefix of the key of each session's news
-- ARGV 1 session  2 the last news that it has received  3 life of a session, 4 of a token, in microseconds
--      then operations; ids have no spaces, times are microseconds:
--      A number, priority, lead, n, n times scope and amount: ask, for a request with this lead time
--      S number, age, n, n intervals: the request was sent, and the age is the time since then
--      F number: the request has ended, release its place        U number: the ask or its unused token is not needed
--      L scope, version, concurrency, delay, least interval, hold, quota, window, state: limits, if the version matches
--      C scope, amount, number: add to the spent amount; each number counts only once
--      M scope, amount: remaining amount of the quota
--      W number: report why the ask waits                        X: the session ends
-- Returns {now, is the session new or was it silent, microseconds until something opens, for each waiting ask:
--          number, number of asks before it, scope, limit, microseconds or -1}
-- News: t number, w microseconds to wait, d deadline: a token;  l scope, v version, a age, s state: limits of another
--
-- An ask waits in the line of the one scope that blocks it. The call that opens a scope gives a token to the first ask
-- in its line. If the opening time is known, it gives the token in advance, because a token contains the time to wait.
-- While a token of a scope with a delay is not sent, the scope is closed for asks of other sessions. It stays open for
-- asks of the same session, because a session keeps the delay between its own sends. Such an ask may pass other asks,
-- but each ask is passed at most PASSES times. The maximum number of unsent tokens covers the round trip and the lead
-- time. If an ask of several scopes was passed that often, it reserves them: no later ask gets a token of these scopes.
local AHEAD, IDLE, PASSES, MOST, SILENT, CLAIM = 5000000, 50000, 8, 64, 5000000, 30000000
local time = redis.call('TIME')
local clock = redis.call('HMGET', KEYS[8], 'latest', 'ahead')
local now = time[1] * 1000000 + time[2] + (clock[2] or 0)
if now < tonumber(clock[1] or '0') then -- the clock was set back: continue from the latest time
  redis.call('HSET', KEYS[8], 'ahead', string.format('%.0f', tonumber(clock[1]) - now + (clock[2] or 0)))
  now = tonumber(clock[1])
end
redis.call('HSET', KEYS[8], 'latest', string.format('%.0f', now))
local me, life, ttl = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local inf, todo, scopes, asks = math.huge, {}, {}, {}
local FIELDS = {'k', 'v', 'c', 'd', 'l', 'h', 'q', 'w', 'f', 'x', 'n', 'p', 'r', 'e', 't'}

local function text(number) return string.format('%.17g', number) end

-- k number  v version  c concurrency  d delay  l least interval  h hold until  q quota  w window  f in flight
-- x not sent yet  n next send  p spent  r reserved  e end of the window  t time of the limits  u session
local function scope(id)
  local s = scopes[id]
  if s then return s end
  local packed, at = redis.call('HGET', KEYS[1], 's' .. id), 0
  s = {id = id, u = ''}
  if packed then
    for word in string.gmatch(packed, '[^ ]+') do
      at = at + 1
      if at > #FIELDS then s.u = word else s[FIELDS[at]] = tonumber(word) end
    end
  else
    for _, field in ipairs(FIELDS) do s[field] = 0 end
    s.k = redis.call('HINCRBY', KEYS[8], 'scopes', 1)
    s.dirty = true
  end
  scopes[id] = s
  return s
end

local function save(s)
  local words = {}
  for at, field in ipairs(FIELDS) do words[at] = text(s[field]) end
  words[#words + 1] = s.u
  redis.call('HSET', KEYS[1], 's' .. s.id, table.concat(words, ' '))
end

-- An ask has a state (W waits, G has a token, S was sent), priority, turn, number of passes, the scope for which it
-- waits, deadline, and lead time.
local function ask_of(key)
  local a = asks[key]
  if a ~= nil then return a end
  local packed = redis.call('HGET', KEYS[3], key)
  if not packed then
    asks[key] = false
    return false
  end
  local words = {}
  for word in string.gmatch(packed, '[^ ]+') do words[#words + 1] = word end
  a = {key = key, session = string.match(key, '^[^:]*'), state = words[1], priority = words[2], turn = tonumber(words[3]),
       passes = tonumber(words[4]), at = words[5], deadline = tonumber(words[6]), lead = tonumber(words[7]), ids = {},
       amounts = {}}
  for at = 8, #words, 2 do
    a.ids[#a.ids + 1] = words[at]
    a.amounts[#a.amounts + 1] = tonumber(words[at + 1])
  end
  asks[key] = a
  return a
end

local function put(a)
  local words = {a.state, a.priority, text(a.turn), text(a.passes), a.at, text(a.deadline), text(a.lead)}
  for at, id in ipairs(a.ids) do
    words[#words + 1] = id
    words[#words + 1] = text(a.amounts[at])
  end
  redis.call('HSET', KEYS[3], a.key, table.concat(words, ' '))
end

local function line_of(s) return string.format('%010.0f', s.k) end
local function rank(a) return a.priority .. string.format('%016.0f', a.turn) end
local function place(a) return line_of(scope(a.at)) .. rank(a) .. a.key end

local function wait_at(a, id)
  if a.at ~= '-' then redis.call('ZREM', KEYS[2], place(a)) end
  a.at = id
  if id ~= '-' then redis.call('ZADD', KEYS[2], 0, place(a)) end
end

local claimant = false
local function claim(key)
  redis.call('HSET', KEYS[8], 'claim', key)
  claimant = key ~= '' and ask_of(key) or false
end

local function forget(a)
  redis.call('HDEL', KEYS[3], a.key)
  redis.call('ZREM', KEYS[4], a.key)
  redis.call('ZREM', KEYS[6], a.key)
  asks[a.key] = false
  if claimant and claimant.key == a.key then
    claim('')
    for _, id in ipairs(a.ids) do todo[id] = true end
  end
end

local function news(session, ...) redis.call('XADD', KEYS[9] .. session, '*', unpack({...})) end

-- Return the time at which a scope admits an ask, and the limit that opens last.
local function opens(s, a, amount)
  if s.v == 0 then return inf, 'line' end -- the limits of the scope are unknown
  if s.c > 0 and s.f >= s.c then return inf, 'concurrency' end
  local at, limit = now, ''
  if s.h > at then at, limit = s.h, 'backoff' end
  if s.d > 0 then
    local ahead = s.d > AHEAD and 1
      or math.min(PASSES, math.floor(250000 / s.d) + 2) + math.min(MOST, math.floor(a.lead / s.d))
    if s.x > 0 and (s.u ~= a.session or s.x >= ahead) then return inf, 'delay' end
    if s.n > at then at, limit = s.n, 'delay' end
  end
  if s.q > 0 and amount > 0 then
    local room, spent = math.max(s.q * (1 + 1e-9) - amount, 0), s.e > now and s.p or 0
    if s.r > room then return inf, 'quota' end
    if spent + s.r > room and s.e > at then at, limit = s.e, 'quota' end
  end
  return at, limit
end

local function is_tight(s) return s.d > 0 or s.q > 0 or (s.c > 0 and s.c - s.f <= 1) end

-- Return the time at which all scopes of an ask are open, the scope and the limit that open last, and whether another
-- scope would be idle until then.
local function look(a)
  local till, id, limit = now, a.ids[1], ''
  local is_behind = claimant and claimant.key ~= a.key and rank(a) > rank(claimant)
  for at, each in ipairs(a.ids) do
    local s = scope(each)
    local opened, why = opens(s, a, a.amounts[at])
    if is_behind and is_tight(s) then
      for _, other in ipairs(claimant.ids) do
        if other == each and opened < inf then opened, why = inf, 'claim' end
      end
    end
    if opened > till then till, id, limit = opened, each, why end
  end
  local idles = false
  if till < inf and #a.ids > 1 and not (claimant and claimant.key == a.key) then
    for at, each in ipairs(a.ids) do
      local s = scope(each)
      idles = idles or (is_tight(s) and till - opens(s, a, a.amounts[at]) > IDLE)
    end
  end
  return till, id, limit, idles
end

local function attempt(a, till)
  for at, id in ipairs(a.ids) do
    local s = scope(id)
    s.f, s.x, s.r, s.u, s.dirty = s.f + 1, s.x + 1, s.r + a.amounts[at], a.session, true
  end
  wait_at(a, '-')
  if claimant and claimant.key == a.key then
    claim('')
    for _, id in ipairs(a.ids) do todo[id] = true end
  end
  local slowest = 0
  for _, id in ipairs(a.ids) do slowest = math.max(slowest, scope(id).x > 1 and scope(id).d * scope(id).x or 0) end
  a.state, a.deadline = 'G', till + ttl + 2 * slowest
  put(a)
  redis.call('ZADD', KEYS[6], text(a.deadline), a.key)
  news(a.session, 't', string.match(a.key, '[^:]*$'), 'w', text(till - now), 'd', text(a.deadline))
end

local function pass(a)
  a.passes = a.passes + 1
  put(a)
  if a.passes >= PASSES and #a.ids > 1 and not claimant then claim(a.key) end
end

local function is_here(session)
  local heard = redis.call('ZSCORE', KEYS[5], session)
  return heard and now - tonumber(heard) <= SILENT
end

-- Return the next ask of a line: the first ask, or an ask of the same priority from the session that got the last
-- token.
local function pick(s, members)
  local head = false
  for at, member in ipairs(members) do
    local key = string.sub(member, 43)
    local session = string.match(key, '^[^:]*')
    if not head then
      head = ask_of(key)
      if s.d <= 0 or session == s.u or head.passes >= PASSES or not is_here(session) then return head end
    elseif session == s.u and string.sub(member, 11, 26) == head.priority then
      local a = ask_of(key)
      local till, _, _, idles = look(a)
      if till <= now + AHEAD and not idles then
        pass(head)
        if not (claimant and claimant.key == head.key) then return a end
        return head
      end
    end
  end
  return head
end

-- Give tokens to asks in the line of a scope.
local function serve(s)
  for _ = 1, 64 do
    local line = line_of(s)
    local members = redis.call('ZRANGE', KEYS[2], '[' .. line, '(' .. line .. '\255', 'BYLEX', 'LIMIT', 0, 32)
    if #members == 0 then return end
    local a = pick(s, members)
    if not is_here(a.session) then
      wait_at(a, '-')
      forget(a)
    else
      local till, id, limit, idles = look(a)
      if claimant and claimant.key == a.key and till > now + CLAIM and till < inf then
        claim('')
        for _, each in ipairs(a.ids) do todo[each] = true end
      end
      if till <= now + AHEAD and not idles then
        attempt(a, till)
      else
        if till < inf then redis.call('ZADD', KEYS[7], text(till - (#a.ids > 1 and IDLE or AHEAD)), id) end
        if id == s.id then return end
        wait_at(a, id)
        pass(a)
      end
    end
  end
  todo[s.id] = true
end

-- Record that the request of a token was sent at a time, or counts as sent.
local function sent(a, at, intervals)
  for each, id in ipairs(a.ids) do
    local s = scope(id)
    s.x, s.r, s.dirty, todo[id] = s.x - 1, s.x > 1 and s.r - a.amounts[each] or 0, true, true
    s.n = math.max(s.n, at + math.max(intervals and tonumber(intervals[each]) or s.d, s.l))
    if s.q > 0 then
      if s.e <= at then s.p, s.e = 0, at + s.w end
      s.p = s.p + a.amounts[each]
    end
  end
  a.state = 'S'
  put(a)
  redis.call('ZREM', KEYS[6], a.key)
end

-- End an ask or a token.
local function ends(a)
  for each, id in ipairs(a.ids) do
    local s = scope(id)
    if a.state == 'G' then s.x, s.r = s.x - 1, s.x > 1 and s.r - a.amounts[each] or 0 end
    if a.state ~= 'W' then s.f, s.dirty, todo[id] = s.f - 1, true, true end
  end
  if a.state == 'W' then wait_at(a, '-') end
  forget(a)
end

local function keys_of(session)
  return redis.call('ZRANGE', KEYS[4], '[' .. session .. ':', '(' .. session .. ';', 'BYLEX', 'LIMIT', 0, -1)
end

claimant = ask_of(redis.call('HGET', KEYS[8], 'claim') or '')

-- Count expired tokens as sent, and remove sessions that were silent for too long. Their tokens are valid until they
-- expire.
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', text(now), 'LIMIT', 0, 100)) do
  local a = ask_of(key)
  sent(a, a.deadline)
end
for _, session in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', text(now - life), 'LIMIT', 0, 10)) do
  local has_token = false
  for _, key in ipairs(keys_of(session)) do
    local a = ask_of(key)
    if a.state == 'G' then has_token = true else ends(a) end
  end
  if not has_token then
    redis.call('DEL', KEYS[9] .. session)
    redis.call('ZREM', KEYS[5], session)
    redis.call('HDEL', KEYS[8], 'o' .. session)
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', text(now), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[7], id)
  todo[id] = true
end

local was_silent = is_here(me) and 0 or 1
if was_silent == 1 then
  for _, key in ipairs(keys_of(me)) do
    local a = ask_of(key)
    if a.state == 'W' then ends(a) end
  end
end
redis.call('ZADD', KEYS[5], text(now), me)
if ARGV[2] ~= '' then redis.call('XTRIM', KEYS[9] .. me, 'MINID', ARGV[2]) end

local asked, at, count = {}, 5, #ARGV
while at <= count do
  local operation, first = ARGV[at], ARGV[at + 1]
  local key = me .. ':' .. (first or '')
  if operation == 'A' then
    local n = tonumber(ARGV[at + 4])
    if not ask_of(key) then
      local a = {key = key, session = me, state = 'W', priority = ARGV[at + 2], passes = 0, at = '-', deadline = 0,
                 lead = tonumber(ARGV[at + 3]), turn = redis.call('HINCRBY', KEYS[8], 'turn', 1), ids = {}, amounts = {}}
      for each = 1, n do
        a.ids[each] = ARGV[at + 3 + 2 * each]
        a.amounts[each] = tonumber(ARGV[at + 4 + 2 * each])
      end
      asks[key] = a
      local _, id = look(a)
      wait_at(a, id)
      todo[id] = true
      put(a)
      redis.call('ZADD', KEYS[4], 0, key)
    end
    asked[#asked + 1] = key
    at = at + 5 + 2 * n
  elseif operation == 'S' then
    local n, a, intervals = tonumber(ARGV[at + 3]), ask_of(key), {}
    for each = 1, n do intervals[each] = ARGV[at + 3 + each] end
    local sent_at = now - tonumber(ARGV[at + 2])
    if a and a.state == 'G' then
      sent(a, sent_at, intervals)
    elseif a and a.state == 'S' then -- the write of the request ended later
      for each, id in ipairs(a.ids) do
        local s = scope(id)
        s.n, s.dirty = math.max(s.n, sent_at + math.max(tonumber(intervals[each]), s.l)), true
      end
    end
    at = at + 4 + n
  elseif operation == 'F' or operation == 'U' then
    local a = ask_of(key)
    if a then ends(a) end
    at = at + 2
  elseif operation == 'L' then
    local s = scope(first)
    if s.v == tonumber(ARGV[at + 2]) then
      s.v, s.c, s.d, s.l = s.v + 1, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
      local hold, window = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 8])
      s.h = hold > 0 and now + hold or 0
      if window ~= s.w and s.e > now then s.e = s.e + window - s.w end
      s.q, s.w, s.t, s.dirty, todo[first] = tonumber(ARGV[at + 7]), window, now, true, true
      redis.call('HSET', KEYS[1], 'b' .. first, ARGV[at + 9])
      for _, session in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], text(now - SILENT), '+inf', 'LIMIT', 0, 1000)) do
        if session ~= me then news(session, 'l', first, 'v', text(s.v), 'a', '0', 's', ARGV[at + 9]) end
      end
    else
      local state = redis.call('HGET', KEYS[1], 'b' .. first) or ''
      news(me, 'l', first, 'v', text(s.v), 'a', text(now - s.t), 's', state)
    end
    at = at + 10
  elseif operation == 'C' or operation == 'M' then
    local s, amount, is_new = scope(first), tonumber(ARGV[at + 2]), true
    if operation == 'C' then
      local number = tonumber(ARGV[at + 3])
      is_new = number > tonumber(redis.call('HGET', KEYS[8], 'o' .. me) or '0')
      if is_new then redis.call('HSET', KEYS[8], 'o' .. me, number) end
    end
    if s.q > 0 and is_new then
      if s.e <= now then s.p, s.e = 0, now + s.w end
      s.p = math.max(operation == 'C' and s.p + amount or s.q - amount, 0)
      s.dirty, todo[first] = true, true
    end
    at = at + (operation == 'C' and 4 or 3)
  elseif operation == 'W' then
    asked[#asked + 1] = key
    at = at + 2
  else -- X
    for _, each in ipairs(keys_of(me)) do ends(ask_of(each)) end
    redis.call('DEL', KEYS[9] .. me)
    redis.call('ZREM', KEYS[5], me)
    at = at + 1
  end
end

for _ = 1, 100 do
  local id = next(todo)
  if not id then break end
  todo[id] = nil
  serve(scope(id))
end
for id in pairs(todo) do redis.call('ZADD', KEYS[7], text(now), id) end
for _, s in pairs(scopes) do
  if s.dirty then save(s) end
end

local soonest = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', '+inf', 'LIMIT', 0, 1)[1]
local found = {text(now), was_silent, soonest and text(math.max(tonumber(redis.call('ZSCORE', KEYS[7], soonest)) - now, 0)) or '-1'}
for _, key in ipairs(asked) do
  local a = ask_of(key)
  local number = string.match(key, '[^:]*$')
  if not a then
    found[#found + 1] = {number, -1, '', '', '-1'}
  elseif a.state == 'W' then
    local till, id, limit = look(a)
    local line = line_of(scope(a.at))
    local before = redis.call('ZLEXCOUNT', KEYS[2], '[' .. line, '(' .. place(a))
    found[#found + 1] = {number, before, id, limit, till < inf and text(till - now) or '-1'}
  end
end
return found
