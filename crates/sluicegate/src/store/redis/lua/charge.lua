-- Decides requests over limits with states in Redis: a second implementation of the core's algorithms, on doubles.
--
-- KEYS     The keys of all decisions, each once. One key holds all states of one subject under one rule.
-- ARGV[1]  The last microsecond on this server's clock at which the script may execute, or 0 for no deadline.
-- ARGV[2]  A nonce for the reply.
-- ARGV[3…] Decisions, taken in order. Each is its operation (`charge`, `charge <n>`, `usage`, `reserve`, `peek`,
--          `refund`, `reset`, `undo <at µs>`, `release <at µs>`, or `force <n>`), then its limits, no index under a key
--          twice:
--            w <key> <index> <mode> <cost µs> <fill µs>                  a token bucket in whole µs, no credits
--            b <key> <index> <mode> <n> <cost µs> <cost parts> <fill µs> <fill parts>          a token bucket
--            s, t  as w and b, of a bucket with a state that is also used with other numbers: no state is out of range
--            k  as b, then <earning µs> <earning parts> <credit ttl µs>               a token bucket with credits
--            l <key> <index> <mode> <cost> <limit> <window µs>                                  a sliding window
--            c <key> <index> <mode> <cost> <limit> <window ms>                                 a sliding counter
--            f <key> <index> <mode> <cost> <limit> <window µs> <phase µs>                         a fixed window
--            m <key> <index> <mode> <cost> <limit> <boundary µs> <boundary µs> …          a window of a calendar
--          <key> counts from 1; `+` is the key after that of the limit before. <index> is the limit's place under its
--          key, one hexadecimal digit. <mode> is `e` for enforced or the number of a shadow group. A bucket's cost above
--          its limit arrives as a length beyond anything it is believed to hold. The boundaries of a calendar separate its
--          windows around the time that the caller expects on this server.
-- Reply    `<nonce> <now µs> late`, if nothing was done because the deadline has passed, and `<nonce> <now µs> outdated`, if
--          nothing was done because now is before the first boundary, or fewer than two are after it. Otherwise
--          `<nonce> <now µs> <damaged keys>` and for every limit a space, `+` if the cost fits or `-`, and its state,
--          pulled back into range: before the charge, or after the usage, refund, undo, release, reset or force. `charge <n>` means
--          the same charge n times in a row. ` x<k>` precedes its limits: the first k of the n charges were admitted.
--          The states are those before the first charge.
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
--          until it is full. Otherwise `a` and records; the last field of each determines how long it is kept:
--            b<index><tat>,<parts>,<n>,<kept until − tat>;  perhaps with recent charges: see `recent_charges.lua`
--            l<index><entries>,<base>,<window>:<entries>;   an entry is 7 bytes of time and 6 of the sum of all units
--                                                           up to it, from <base>, modulo 2⁴⁸: the search is binary
--            c<index><previous>,<current>,<end>,<window>;
--            f<index><count>,<end>,<phase>;                 also of a calendar, with phase 0
--
-- Invariants:
-- - A decision is all or nothing over its enforced limits. The limits of a shadow rule are charged if the request passes
--   and all of them fit. A peek writes nothing, and a denial only repairs.
-- - A refund takes units back at any time. An undo takes back one charge that was made at <at>, by this
--   server's clock, and leaves no limit with more room than it would have, had that charge never been made. Of a bucket
--   it gives back less by the time since the charge; and nothing if the clock went back, or if a state had to be repaired.
-- - `force <n>` charges n admissions that were made elsewhere, even if they do not fit, as the core's `force` does.
--   `usage` follows a `charge` and does the same, once, for each of its limits that the charge has left out: those of
--   all groups if it was denied, and those of a shadow group without room.
-- - A reservation is a charge that may be released, and a release is an exact undo: the limit is then as if the
--   reservation had never been made, whatever else was charged, reserved and released meanwhile. Only buckets
--   distinguish the two.
-- - Keys are read once, before anything is written, and decisions that share a key see each other.
-- - An unreadable value counts as an exhausted limit, is written back as such, and does not affect other keys.
-- - A key expires a second after its last state stops mattering, rounded up to a millisecond.
-- - Every number is an integer below 2⁵³, so doubles are exact. Only %.0f writes them: `..` and tostring round to
--   14 digits. `%` and math.floor of a quotient may be off by one near 2⁵³, math.fmod is not.
-- - No globals, and only what Lua 5.1 and 5.4 agree on.
-- There is no shebang: Redis 6.2 does not support it, and with one, a server that is out of memory could not even deny.

-- Everything up to the end of the fast path runs in every call. So it creates no closures and no tables, and as few
-- strings and conversions as possible. `+ 0` parses a number at half the cost of tonumber.
local format, match = string.format, string.match
local NOW_MAX, LAST, SECOND = 4503599627370495, 9007199254740991, 1000000
local TEN_YEARS = 315360000000000

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

-- The fast path of nearly every call: one charge of one bucket in whole µs, alone under its key.
local value
if #ARGV == 4 and ARGV[3] == 'charge' then
  local kind, cost, full = match(ARGV[4], '^([sw]) 1 0 e (%d+) (%d+)$')
  if cost then
    value = redis.pcall('GET', KEYS[1])
    local digits = value and #value <= 17 and type(value) == 'string' and match(value, '^(%d+)1$')
    local tat = digits and digits + 0
    if value == false or tat and tat <= LAST then
      cost, full = cost + 0, full + 0
      local empty, from, shown, written = now + full, now, '-', nil
      if tat then
        -- The largest debt, and as much as clocks may differ: see `ahead`.
        if tat > empty + (kind == 's' and TEN_YEARS or full > SECOND and 11 * full or 10 * full + SECOND) then
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

