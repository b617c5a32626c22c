-- What all algorithms use, and what each of them answers.

local find, sub, byte = string.find, string.sub, string.byte
local fmod, char, max, min = math.fmod, string.char, math.max, math.min

-- How long a key lives whose states matter for `rest` µs more.
local function expiry(rest)
  if rest < 0 then rest = 0 end
  return format('%.0f', math.ceil(rest / 1000) + 1000)
end

-- The number that `digits` spell, if it is exact.
local function exact(digits)
  local number = tonumber(digits)
  return number <= LAST and number or nil
end

-- The numbers that some digits spell, if all are exact and none is missing.
local function all_exact(a, b, c, d)
  if not a then return nil end
  a, b, c, d = exact(a), exact(b), exact(c), exact(d or '0')
  if a and b and c and d then return a, b, c, d end
end

-- How far ahead of what now could leave a state is believed.
local function believed(window) return window > SECOND and window or SECOND end

-- Algorithms, by the letter of their states. Each is made when a call first needs it: to make them all would cost more
-- than most decisions. They answer for a limit and a state that is false where there is none:
--   decode(fields)        the state and until when it said it matters, or nothing if it cannot be read
--   encode(limit, state)  its record
--   fits(limit, state, times)   whether the cost fits this often in a row, at this one instant
--   charge(limit, state, times)   the state after as many charges, which fit
--   shown(limit, state, is_short, charged)   for the reply: whether another charge after `charged` of them is denied
--   drained(limit), repair(limit, state), refund(limit, state), kept(limit, state)   as in the core
--   undo(limit, state, at)   the state without a charge that was made at `at`, which is not after now; false for none
local makers, algorithms = {}, {}
