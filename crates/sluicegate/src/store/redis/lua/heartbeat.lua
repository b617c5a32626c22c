-- Says that an instance lives, and counts those that do.
--
-- KEYS[1]  A sorted set: instances by the microsecond at which each was last heard of.
-- ARGV[1]  The last microsecond on this server's clock at which anything may be done, or 0 for no such bound.
-- ARGV[2]  A nonce for the reply.
-- ARGV[3]  The instance.
-- ARGV[4]  How long, in µs, an instance counts after it was last heard of; 0 says that it leaves now.
-- Reply    `<nonce> <now µs> late`, when nothing was done because it is too late, or `<nonce> <now µs> <instances>`.
--
-- What must stay true: an instance that is silent for longer than it said is forgotten by the next that speaks, and
-- the set by itself when nobody does. Whatever else stands in its place is not ours, and makes room for it.

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
