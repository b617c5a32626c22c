-- Posts what an instance has given back, and reads what the others have.
--
-- KEYS[1]  A sorted set: slots of keys, by the revision at which something was last given back there; `r`, by the last
--          revision of all; and `s`, by the revision at which the set was started.
-- ARGV[1]  The last microsecond on this server's clock at which anything may be done, or 0 for no such bound.
-- ARGV[2]  A nonce for the reply.
-- ARGV[3]  The last revision that the instance has read, or 0.
-- ARGV[4…] Slots in which it has given something back since it last posted, at most a few thousand.
-- Reply    `<nonce> <now µs> late`, when nothing was done because it is too late. Otherwise `<nonce> <now µs> <revision>`
--          and, each after a space, the slots that others have posted since, or `*` if that cannot be said.
--
-- What must stay true: revisions only grow, also when the set was lost; they start from the time, so that no number of
-- a lost set comes again. Who has read another set than this one is told `*`. What an instance posts is not
-- among what it reads, for it has forgotten that already. Whatever else stands in the place of the set makes room for it.

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
  -- The set cannot be older than its last revision, so a clock that was set back adds one at a time.
  revision = math.max(now, (revision or read) + 1)
  local shown = string.format('%.0f', revision)
  local words = {shown, 'r'}
  if is_new then words[3], words[4] = shown, 's' end
  for index = 4, #ARGV do
    words[#words + 1] = shown
    words[#words + 1] = ARGV[index]
  end
  -- Lua 5.1 and 5.4 know it by different names.
  local unpack = table.unpack or unpack
  redis.call('ZADD', KEYS[1], unpack(words))
  redis.call('PEXPIRE', KEYS[1], '86400000')
end
return head .. string.format('%.0f', revision) .. table.concat(reply, ' ')
