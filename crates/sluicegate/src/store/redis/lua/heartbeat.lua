-- Announces an instance, and counts the live ones.
--
-- KEYS[1]  A sorted set: instances, scored by the microsecond of their last announcement.
-- ARGV[1]  The last microsecond on this server's clock at which the script may execute, or 0 for no deadline.
-- ARGV[2]  A nonce for the reply.
-- ARGV[3]  The instance.
-- ARGV[4]  How long the announcement counts, in µs; 0 withdraws it.
-- Reply    `<nonce> <now µs> late`, if nothing was done because the deadline has passed, or `<nonce> <now µs> <instances>`.
--
-- Invariants: an announcement that has expired is removed by the next script call, and the whole set expires without
-- announcements. A value of another type under the key is not ours and is replaced.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local head = ARGV[2] .. ' ' .. string.format('%.0f', now) .. ' '
local deadline, lifetime = tonumber(ARGV[1]), tonumber(ARGV[4])
if deadline > 0 and now > deadline then return head .. 'late' end

local found = redis.pcall('ZCARD', KEYS[1])
if type(found) == 'table' and found.err then
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return found end
  redis.call('DEL', KEYS[1])
end
if lifetime > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - lifetime))
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(lifetime / 1000)))
else
  redis.call('ZREM', KEYS[1], ARGV[3])
end
return head .. string.format('%.0f', redis.call('ZCARD', KEYS[1]))
