-- Start a session.
-- KEYS 1 head  2 deadlines  3 sessions
-- ARGV 1 name of the process  2 length of the lease in microseconds  3 '1' if it takes parts, '2' if it only leads the
--      processes that it starts, '0' for others, such as an export
--      4 its terms: settings that all processes of the job must share
-- Returns {session, microseconds since the job started, {name of an earlier session that works or leads, its terms...},
--          microseconds since the first of the current sessions started, whether one of them leads}
local time = redis.call('TIME')
local head = redis.call('HMGET', KEYS[1], 'begun', 'latest', 'ahead', 'run', 'first')
local now = time[1] * 1000000 + time[2] + (head[3] or 0)
if now < tonumber(head[2] or '0') then now = tonumber(head[2]) end -- the time of a job never decreases
local others, is_led = {}, 0
local deadlines = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for at = 1, #deadlines, 2 do
  local other = deadlines[at]
  local notes = redis.call('HMGET', KEYS[3], other .. ' works', other .. ' name', other .. ' terms')
  if notes[1] and notes[1] ~= '0' and tonumber(deadlines[at + 1]) > now then
    if notes[1] == '2' then is_led = 1 end
    others[#others + 1] = notes[2] or ''
    others[#others + 1] = notes[3] or ''
  end
end
-- A new or restarted server may have forgotten live sessions, so don't use their numbers again.
local another = head[4] and head[4] ~= (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '')
local session = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'sessions', another and 1001 or 1))
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), session)
redis.call('HSET', KEYS[3], session .. ' name', ARGV[1], session .. ' works', ARGV[3], session .. ' terms', ARGV[4])
local first = head[5] or now
if ARGV[3] ~= '1' then redis.call('HINCRBY', KEYS[1], 'guests', 1) end
if ARGV[3] ~= '0' and #others == 0 then -- no other session works, so start the counts again
  first = now
  redis.call('HSET', KEYS[1], 'first', string.format('%.0f', now))
  redis.call('HDEL', KEYS[1], 'counts')
end
redis.call('HSET', KEYS[1], 'latest', string.format('%.0f', now))
return {tonumber(session), string.format('%.0f', now - head[1]), others, string.format('%.0f', now - first), is_led}
