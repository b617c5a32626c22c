-- Fixed windows and sliding counters, as in the core's `fixed_window.rs` and `sliding_counter.rs`.

-- What both counters share. Ends that were written under another window fall into one of this window.

local function window_end(at, window) return at + window - fmod(at, window) end

local function boundary(finish, window)
  local beyond = fmod(finish, window)
  return beyond == 0 and finish or min(finish + window - beyond, LAST)
end

local function pulled_back(finish, window, at)
  return finish > window_end(at + believed(window), window) and window_end(at, window) + window
end

-- Fixed windows. A limit has cost, limit, window and phase. A state is {count, end}, in time shifted by the phase.

local fixed = {}

local function fixed_live(limit, state)
  local at = now + limit.phase
  if state then
    local finish = boundary(state[2], limit.window)
    if at < finish then return state[1], finish end
  end
  return 0, window_end(at, limit.window)
end

function fixed.drained(limit) return {limit.limit, window_end(now + limit.phase, limit.window)} end

function fixed.repair(limit, state)
  local finish = pulled_back(state[2], limit.window, now + limit.phase)
  return finish and {state[1], finish}
end

function fixed.fits(limit, state) return fixed_live(limit, state) + limit.cost <= limit.limit end

function fixed.charge(limit, state)
  local count, finish = fixed_live(limit, state)
  return {count + limit.cost, finish}
end

function fixed.refund(limit, state)
  local count, finish = fixed_live(limit, state)
  return {max(count - limit.cost, 0), finish}
end

function fixed.kept(limit, state) return boundary(state[2], limit.window) - limit.phase end

function fixed.decode(fields)
  local list = numbers(fields, 3)
  if not list then return nil end
  return {list[1], list[2]}, max(list[2] - list[3], 0)
end

function fixed.encode(limit, state) return format('%.0f,%.0f,%.0f;', state[1], state[2], limit.phase) end

function fixed.shown(_, state) return format('f%.0f,%.0f', state[1], state[2]) end

-- Sliding counters. A limit has cost, limit, window and millis, the window in ms. A state is {previous, current, end}.

local counter = {}

local function counter_live(limit, state)
  if state then
    local finish = boundary(state[3], limit.window)
    if now < finish then return state[1], state[2], finish end
    if now - finish < limit.window then return state[2], 0, window_end(now, limit.window) end
  end
  return 0, 0, window_end(now, limit.window)
end

function counter.drained(limit) return {0, limit.limit, window_end(now, limit.window)} end

function counter.repair(limit, state)
  local finish = pulled_back(state[3], limit.window, now)
  return finish and {state[1], state[2], finish}
end

function counter.fits(limit, state)
  if limit.cost > limit.limit then return false end
  local previous, current, finish = counter_live(limit, state)
  local rest = finish - now + 999
  local overlap = min((rest - fmod(rest, 1000)) / 1000, limit.millis)
  -- The right side is below 2⁵³. A product or sum that is not stays above it however it is rounded.
  return previous * overlap + (current + limit.cost) * limit.millis <= limit.limit * limit.millis
end

function counter.charge(limit, state)
  local previous, current, finish = counter_live(limit, state)
  return {previous, current + limit.cost, finish}
end

function counter.refund(limit, state)
  local previous, current, finish = counter_live(limit, state)
  local taken = min(limit.cost, current)
  return {max(previous - (limit.cost - taken), 0), current - taken, finish}
end

function counter.kept(limit, state) return min(boundary(state[3], limit.window) + limit.window, LAST) end

function counter.decode(fields)
  local list = numbers(fields, 4)
  if not list then return nil end
  return {list[1], list[2], list[3]}, list[3] + list[4]
end

function counter.encode(limit, state)
  return format('%.0f,%.0f,%.0f,%.0f;', state[1], state[2], state[3], limit.window)
end

function counter.shown(_, state) return format('c%.0f,%.0f,%.0f', state[1], state[2], state[3]) end
