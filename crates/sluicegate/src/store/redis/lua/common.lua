-- Functions that all algorithms use, and the interface of an algorithm.

local find, sub, byte = string.find, string.sub, string.byte
local fmod, char, max, min = math.fmod, string.char, math.max, math.min

-- The expiry of a key with states that matter for `rest` more µs.
local function expiry(rest)
  if rest < 0 then rest = 0 end
  return format('%.0f', math.ceil(rest / 1000) + 1000)
end

-- The number in `digits`, if a double represents it exactly.
local function exact(digits)
  local number = tonumber(digits)
  return number <= LAST and number or nil
end

-- The numbers in some digits, if all are exact and none is missing.
local function all_exact(a, b, c, d)
  if not a then return nil end
  a, b, c, d = exact(a), exact(b), exact(c), exact(d or '0')
  if a and b and c and d then return a, b, c, d end
end

-- How far the end of a window, or an entry of a log, may be ahead of the latest one that is possible now.
local function believed(window) return window > SECOND and window or SECOND end

-- How far the TAT of a bucket with this refill time may be beyond that of an empty one: by the largest debt of ten
-- limits, and by as much as clocks may differ.
local function ahead(full) return 10 * full + believed(full) end

-- The largest debt of a log in units: see `LOG_DEBT_MAX` in the core.
local LOG_DEBT = 10000
-- The most units of a limit with its largest debt.
local function with_debt(limit) return min(11 * limit, LAST) end

-- Algorithms, by the letter of their states. Each is created when a call first needs it, because creating all of them
-- would cost more than most decisions. Their functions take a limit and a state, which is false if there is none:
--   decode(fields)        the state and until when it matters, or nothing if it is unreadable
--   encode(limit, state)  its record
--   fits(limit, state, times)   whether the cost fits this many times in a row, at one instant
--   charge(limit, state, times, is_reserved)   the state after these charges, which fit and may be released later
--   force(limit, state, times)   the state after these charges, even if they do not fit, up to the largest debt; nothing
--                                if unchanged
--   shown(limit, state, is_short, charged)   the state for the reply; `is_short` if a charge after `charged` ones is denied
--   drained(limit), repair(limit, state), refund(limit, state), kept(limit, state)   as in the core
--   undo(limit, state, at)   the state without a charge that was made at `at`; false for none
--   release(limit, state, at)   the same for a charge that was reserved, where the algorithm needs more to be exact
local makers, algorithms = {}, {}
