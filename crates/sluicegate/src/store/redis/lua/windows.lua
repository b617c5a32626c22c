-- Fixed windows and sliding counters, as in the core's `fixed_window.rs` and `sliding_counter.rs`.

-- The common part of both counters. An end that was written under another window is rounded to a boundary of this
-- window.

local function window_end(at, window) return at + window - fmod(at, window) end

local function boundary(finish, window)
  local beyond = fmod(finish, window)
  return beyond == 0 and finish or min(finish + window - beyond, LAST)
end

local function pulled_back(finish, window, at)
  return finish > window_end(at + believed(window), window) and window_end(at, window) + window
end

-- The first boundary after an instant, and its index. Instants before all boundaries, or after them, are not
-- distinguished: such a state is over, or is pulled back before it is used.
local function boundary_after(boundaries, at)
  for index, each in ipairs(boundaries) do
    if each > at then return each, index end
  end
  return boundaries[#boundaries], #boundaries
end

-- Fixed windows. A limit has cost, limit, phase, and window or, with a calendar, the boundaries around now. A state
-- is {count, end}, in time shifted by the phase.
function makers.f()
  local function end_after(limit, at)
    return limit.boundaries and boundary_after(limit.boundaries, at) or window_end(at, limit.window)
  end

  local function end_from(limit, finish)
    return limit.boundaries and boundary_after(limit.boundaries, finish - 1) or boundary(finish, limit.window)
  end

  local function live(limit, state)
    local at = now + limit.phase
    if state then
      local finish = end_from(limit, state[2])
      if at < finish then return state[1], finish end
    end
    return 0, end_after(limit, at)
  end

  local function drained(limit) return {limit.limit, end_after(limit, now + limit.phase)} end

  -- With a calendar, the end of the next window is also the latest valid end.
  local function too_far(limit, finish)
    if not limit.boundaries then return pulled_back(finish, limit.window, now + limit.phase) end
    local _, index = boundary_after(limit.boundaries, now)
    local latest = limit.boundaries[index + 1]
    return finish > latest and latest
  end

  local function repair(limit, state)
    local finish = too_far(limit, state[2])
    return finish and {state[1], finish}
  end

  local function fits(limit, state, times) return live(limit, state) + limit.cost * times <= limit.limit end

  local function charge(limit, state, times)
    local count, finish = live(limit, state)
    return {count + limit.cost * times, finish}
  end

  -- The count may exceed the limit. A limit of zero needs no state.
  local function force(limit, state, times)
    if limit.limit == 0 then return nil end
    local count, finish = live(limit, state)
    return {max(count, min(count + limit.cost * times, with_debt(limit.limit))), finish}
  end

  local function refund(limit, state)
    local count, finish = live(limit, state)
    return {max(count - limit.cost, 0), finish}
  end

  -- The charge is not part of another window.
  local function undo(limit, state, at)
    local count, finish = live(limit, state)
    if finish ~= end_after(limit, at + limit.phase) then return state end
    return {max(count - limit.cost, 0), finish}
  end

  local function kept(limit, state) return end_from(limit, state[2]) - limit.phase end

  local function decode(fields)
    local count, finish, phase = all_exact(match(fields, '^(%d+),(%d+),(%d+)$'))
    if not count then return nil end
    return {count, finish}, max(finish - phase, 0)
  end

  local function encode(limit, state) return format('%.0f,%.0f,%.0f;', state[1], state[2], limit.phase) end

  local function shown(_, state) return format('f%.0f,%.0f', state[1], state[2]) end

  return {
    decode = decode, encode = encode, shown = shown, drained = drained, repair = repair, fits = fits,
    charge = charge, force = force, refund = refund, undo = undo, kept = kept,
  }
end

-- Sliding counters. A limit has cost, limit, window, and millis (the window in ms). A state is {previous, current,
-- end}.
function makers.c()
  local function live(limit, state)
    if state then
      local finish = boundary(state[3], limit.window)
      if now < finish then return state[1], state[2], finish end
      if now - finish < limit.window then return state[2], 0, window_end(now, limit.window) end
    end
    return 0, 0, window_end(now, limit.window)
  end

  local function drained(limit) return {0, limit.limit, window_end(now, limit.window)} end

  local function repair(limit, state)
    local finish = pulled_back(state[3], limit.window, now)
    return finish and {state[1], state[2], finish}
  end

  local function fits(limit, state, times)
    local previous, current, finish = live(limit, state)
    local rest = finish - now + 999
    local overlap = min((rest - fmod(rest, 1000)) / 1000, limit.millis)
    -- The right side is below 2⁵³. A product or sum above 2⁵³ stays above it however it is rounded, and so does any
    -- cost above the limit.
    return previous * overlap + (current + limit.cost * times) * limit.millis <= limit.limit * limit.millis
  end

  local function charge(limit, state, times)
    local previous, current, finish = live(limit, state)
    return {previous, current + limit.cost * times, finish}
  end

  -- The current count may exceed the limit. A limit of zero needs no state.
  local function force(limit, state, times)
    if limit.limit == 0 then return nil end
    local previous, current, finish = live(limit, state)
    return {previous, max(current, min(current + limit.cost * times, with_debt(limit.limit))), finish}
  end

  local function refund(limit, state)
    local previous, current, finish = live(limit, state)
    local taken = min(limit.cost, current)
    return {max(previous - (limit.cost - taken), 0), current - taken, finish}
  end

  -- Takes the units from where they count now: from the window of the charge, while that is in use.
  local function undo(limit, state, at)
    local previous, current, finish = live(limit, state)
    local charged = window_end(at, limit.window)
    if finish == charged then return {previous, max(current - limit.cost, 0), finish} end
    if finish - limit.window == charged then return {max(previous - limit.cost, 0), current, finish} end
    return state
  end

  local function kept(limit, state) return min(boundary(state[3], limit.window) + limit.window, LAST) end

  local function decode(fields)
    local previous, current, finish, window = all_exact(match(fields, '^(%d+),(%d+),(%d+),(%d+)$'))
    if not previous then return nil end
    return {previous, current, finish}, finish + window
  end

  local function encode(limit, state)
    return format('%.0f,%.0f,%.0f,%.0f;', state[1], state[2], state[3], limit.window)
  end

  local function shown(_, state) return format('c%.0f,%.0f,%.0f', state[1], state[2], state[3]) end

  return {
    decode = decode, encode = encode, shown = shown, drained = drained, repair = repair, fits = fits,
    charge = charge, force = force, refund = refund, undo = undo, kept = kept,
  }
end
