-- Decides requests over limits whose states are in Redis: the core's algorithms once more, on doubles.
--
-- KEYS     Every key that a decision speaks of, each once. One key holds all states of one subject under one rule.
-- ARGV[1]  The last microsecond on this server's clock at which anything may be done, or 0 for no such bound.
-- ARGV[2]  A nonce for the reply.
-- ARGV[3…] Decisions, taken in order. Each is its operation (`charge`, `charge <n>`, `peek`, `refund`, `reset`, or
--          `undo <at µs>`), then its limits, no place under a key twice:
--            w <key> <index> <group> <cost µs> <full µs>                  a token bucket in whole µs, no credits
--            b <key> <index> <group> <n> <cost µs> <cost parts> <full µs> <full parts>          a token bucket
--            k  as b, then <unearned µs> <unearned parts> <credit ttl µs>             a token bucket with credits
--            l <key> <index> <group> <cost> <limit> <window µs>                                  a sliding window
--            c <key> <index> <group> <cost> <limit> <window ms>                                 a sliding counter
--            f <key> <index> <group> <cost> <limit> <window µs> <phase µs>                         a fixed window
--            m <key> <index> <group> <cost> <limit> <boundary µs> <boundary µs> …          a window of a calendar
--          <key> counts from 1; `+` is the key after that of the limit before. <index> is the limit's place under its
--          key, one hexadecimal digit. <group> is `e` for enforced or the number of a shadow group. A bucket's cost above
--          its limit arrives as a length beyond anything it is believed to hold. The boundaries of a calendar are where
--          one window ends and the next begins, all there are around the time that the caller believes it is here.
-- Reply    `<nonce> <now µs> late`, when nothing was done because it is too late, and `<nonce> <now µs> outdated`, when
--          nothing was done because now is before the first boundary, or fewer than two are after it. Otherwise
--          `<nonce> <now µs> <damaged keys>` and for every limit a space, `+` if the cost fits or `-`, and its state,
--          pulled back into range: before the charge, or after the refund, undo or reset. `charge <n>` means the same
--          charge n times in a row. Before its limits stands ` x<k>`, how many of the n were admitted, and these are
--          the first k; what the limits say is said of the first of all.
--            -                                  none
--            w<tat>                             a token bucket in whole µs
--            b<tat>,<parts>,<n>,<kept until>    a token bucket
--            l<used>,<newest>                   a log: units that count, time of the newest entry
--            l<used>,<newest>,<at>,<freed>      the same when the cost does not fit, or no longer after as many charges
--                                               as were made of the n: when <at> has left the window, <freed> units
--                                               are free, and these are enough
--            c<previous>,<current>,<end>        a sliding counter
--            f<count>,<end>                     a fixed window
-- Value    `<tat>1`, digits only, which Redis stores as an integer: one token bucket in whole µs at index 0, kept
--          until it is full. Otherwise `a` and records, whose last field says how long each is to be kept:
--            b<index><tat>,<parts>,<n>,<kept until − tat>;
--            l<index><entries>,<base>,<window>:<entries>;   an entry is 7 bytes of time and 6 of the sum of all units
--                                                           up to it, from <base>, modulo 2⁴⁸: the search is binary
--            c<index><previous>,<current>,<end>,<window>;
--            f<index><count>,<end>,<phase>;                 also of a calendar, whose phase is 0
--
-- What must stay true:
-- - A decision is all or nothing over its enforced limits; a shadow group is charged when the request passes and all of
--   the group fits. A peek writes nothing, and a denial only what had to be repaired.
-- - A refund takes units back at whatever instant it comes. An undo takes back one charge that was made at <at>, by this
--   server's clock, and leaves no limit with more room than it would have, had that charge never been made. Where this
--   cannot be had exactly it gives back less: what time has given back already, what has left its window, and all if the
--   clock went back, or if the state had to be repaired. A lost unit denies a little too much for a while.
-- - Keys are read once, before anything is written, and decisions that share a key see each other.
-- - A value that cannot be read counts as a drained limit, is written back as such, and disturbs no other key.
-- - A key expires a second after its last state ceased to matter, rounded up to a millisecond.
-- - Every number is an integer below 2⁵³, so doubles are exact. Only %.0f writes them: `..` and tostring round to
--   14 digits. `%` and math.floor of a quotient may be off by one near 2⁵³, math.fmod is not.
-- - No globals, and only what Lua 5.1 and 5.4 agree on.
-- There is no shebang: Redis 6.2 knows none, and with one a full server could not even deny any more.

-- Everything up to the end of the short way runs at every call, so it makes no closures and no tables, and as few
-- strings and conversions as it can. `+ 0` reads a number from digits at half the cost of tonumber.
local format, match = string.format, string.match
local NOW_MAX, LAST, SECOND = 4503599627370495, 9007199254740991, 1000000

local nonce, time = ARGV[2], redis.call('TIME')
local now, now_shown = time[1] * SECOND + time[2], nil
if #time[2] == 6 and now <= NOW_MAX then
  now_shown = time[1] .. time[2]
else
  if now > NOW_MAX then now = NOW_MAX end
  now_shown = format('%.0f', now)
end
local deadline = ARGV[1] + 0
if now > deadline and deadline > 0 then return nonce .. ' ' .. now_shown .. ' late' end

-- The short way, which nearly every call takes: one charge of one bucket in whole µs, alone under its key.
local value
if #ARGV == 4 and ARGV[3] == 'charge' then
  local cost, full = match(ARGV[4], '^w 1 0 e (%d+) (%d+)$')
  if cost then
    value = redis.pcall('GET', KEYS[1])
    local digits = value and #value <= 17 and type(value) == 'string' and match(value, '^(%d+)1$')
    local tat = digits and digits + 0
    if value == false or tat and tat <= LAST then
      cost, full = cost + 0, full + 0
      local empty, from, shown, written = now + full, now, '-', nil
      if tat then
        if tat > empty + (full > SECOND and full or SECOND) then
          tat, written, digits = empty, empty, format('%.0f', empty)
        end
        if tat > now then from = tat end
        shown = 'w' .. digits
      end
      local fits = cost == 0 or from + cost <= empty
      if fits and cost > 0 then written = from + cost end
      if written then
        local lives = format('%.0f', math.ceil((written - now) / 1000) + 1000)
        redis.call('SET', KEYS[1], format('%.0f1', written), 'PX', lives)
      end
      return nonce .. ' ' .. now_shown .. (fits and ' 0 +' or ' 0 -') .. shown
    end
  end
end

