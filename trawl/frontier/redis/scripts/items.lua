-- Read items of the outbox.
-- KEYS 1 items
-- ARGV 1 the first position  2 the maximum number  3 the bytes after which to stop
-- Returns for each: its position, and the item
local found, size = {}, 0
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])) do
  found[#found + 1] = entry[1]
  found[#found + 1] = entry[2][2]
  size = size + #entry[2][2]
  if size >= tonumber(ARGV[3]) then break end
end
return found
