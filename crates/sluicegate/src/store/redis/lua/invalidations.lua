-- Posts the invalidations of an instance, and reads those of the others.
--
-- KEYS[1]  A sorted set: partitions of keys, scored by the revision of their last invalidation; `r`, scored by the last
--          revision of all; and `s`, scored by the revision at which the set was created.
-- ARGV[1]  The last microsecond on this server's clock at which the script may execute, or 0 for no deadline.
-- ARGV[2]  A nonce for the reply.
-- ARGV[3]  The last revision that the instance has read, or 0.
-- ARGV[4…] The partitions that it has invalidated since its last call, at most a few thousand.
-- Reply    `<nonce> <now µs> late`, if nothing was done because the deadline has passed. Otherwise `<nonce> <now µs> <revision>`
--          and, each after a space, the partitions that others have posted since, or `*` if they are unknown.
--
-- Invariants: revisions only grow, even if the set was lost. They start from the time, so that no revision of a lost set
-- is used again. An instance that has read another set than this one receives `*`. An instance does not read the
-- partitions that it posts, because it has invalidated them already. A value of another type under the key is replaced.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local head = ARGV[2] .. ' ' .. string.format('%.0f', now) .. ' '
local deadline, read = tonumber(ARGV[1]), tonumber(ARGV[3])
if deadline > 0 and now > deadline then return head .. 'late' end

local found = redis.pcall('ZRANGEBYSCORE', KEYS[1], ARGV[3], '+inf', 'WITHSCORES')
if found.err then
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return found end
  redis.call('DEL', KEYS[1])
  found = {}
end
local reply, revision, is_another = {''}, nil, read == 0
for index = 1, #found, 2 do
  local score = tonumber(found[index + 1])
  if found[index] == 'r' then
    revision = score
  elseif found[index] == 's' then
    is_another = is_another or score > read
  elseif score > read then
    reply[#reply + 1] = found[index]
  end
end
if is_another or not revision then reply = {'', '*'} end

local is_new = not revision
if is_new or #ARGV > 3 then
  -- If the clock was set back, revisions continue from the last one in steps of one.
  revision = math.max(now, (revision or read) + 1)
  local shown = string.format('%.0f', revision)
  local words = {shown, 'r'}
  if is_new then words[3], words[4] = shown, 's' end
  for index = 4, #ARGV do
    words[#words + 1] = shown
    words[#words + 1] = ARGV[index]
  end
  -- Lua 5.1 and 5.4 have different names for it.
  local unpack = table.unpack or unpack
  redis.call('ZADD', KEYS[1], unpack(words))
  redis.call('PEXPIRE', KEYS[1], '86400000')
end
return head .. string.format('%.0f', revision) .. table.concat(reply, ' ')
