-- Sliding windows, as in the core's `sliding_window.rs`.
--
-- A limit has cost, limit and window. A state is {entries, base, text}: how many, the sum before the
-- first, and the entries themselves. Nothing here takes more than some fifteen steps, however long the log is.

local ENTRY = 13

function makers.l()
  local SUMS, UNITS_MAX, EMPTY = 281474976710656, 4294967295, {0, 0, ''}

  -- The time of an entry.
  local function time_of(state, index)
    local a, b, c, d, e, f, g = byte(state[3], index * ENTRY - 12, index * ENTRY - 6)
    return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
  end

  -- The units of all entries up to this one.
  local function sum_to(state, index)
    if index == 0 then return 0 end
    local a, b, c, d, e, f = byte(state[3], index * ENTRY - 5, index * ENTRY)
    local sum = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f - state[2]
    return sum < 0 and sum + SUMS or sum
  end

  local function bytes(number, count)
    local text = ''
    for _ = 1, count do
      local low = fmod(number, 256)
      text, number = char(low) .. text, (number - low) / 256
    end
    return text
  end

  -- An entry at `at`, with `sum` units up to it.
  local function entry(state, at, sum) return bytes(at, 7) .. bytes(fmod(state[2] + sum, SUMS), 6) end

  -- The first entry from `from` on for which `is_beyond` holds: if for one, then for all after it. One past the last if
  -- for none.
  local function first(state, from, is_beyond)
    local past = state[1] + 1
    while from < past do
      local middle = from + past
      middle = (middle - fmod(middle, 2)) / 2
      if is_beyond(middle) then past = middle else from = middle + 1 end
    end
    return from
  end

  local function first_live(limit, state)
    local function is_live(index) return now - time_of(state, index) < limit.window end
    if state[1] == 0 or is_live(1) then return 1 end
    return first(state, 2, is_live)
  end

  -- The log from the entry `from` on.
  local function cut(state, from)
    if from == 1 then return state end
    local base = fmod(state[2] + sum_to(state, from - 1), SUMS)
    return {state[1] - from + 1, base, sub(state[3], (from - 1) * ENTRY + 1)}
  end

  -- The log up to the entry `upto`, and after it one at `at` that brings the sum to `sum`.
  local function ended(state, upto, at, sum)
    return {upto + 1, state[2], sub(state[3], 1, upto * ENTRY) .. entry(state, at, sum)}
  end

  local function drained(limit)
    if limit.limit == 0 then return EMPTY end
    return ended(EMPTY, 0, now, limit.limit)
  end

  local function repair(limit, state)
    local entries = state[1]
    if entries == 0 or time_of(state, entries) <= now + believed(limit.window) then return false end
    local clamped = first(state, 1, function(index) return time_of(state, index) >= now end)
    return ended(state, clamped - 1, now, sum_to(state, entries))
  end

  local function used(state, from) return sum_to(state, state[1]) - sum_to(state, from - 1) end

  local function fits(limit, state, times)
    return (state and used(state, first_live(limit, state)) or 0) + limit.cost * times <= limit.limit
  end

  local function charge(limit, state, times)
    state = state and cut(state, first_live(limit, state)) or EMPTY
    local entries, at = state[1], now
    local sum = sum_to(state, entries) + limit.cost * times
    if entries > 0 and time_of(state, entries) >= now then
      entries, at = entries - 1, time_of(state, entries)
    end
    return ended(state, entries, at, sum)
  end

  local function refund(limit, state)
    state = cut(state, first_live(limit, state))
    if limit.cost == 0 then return state end
    local rest = sum_to(state, state[1]) - limit.cost
    if rest <= 0 then return EMPTY end
    local last = first(state, 1, function(index) return sum_to(state, index) >= rest end)
    return ended(state, last - 1, time_of(state, last), rest)
  end

  -- All that was charged since then counts from the newest entry on, without the units that are taken back: it leaves the
  -- window a little later than it could, and never earlier. To leave every entry at its time would mean to write all sums
  -- after it anew. If nothing is at that instant any more, an undo of somebody else has moved it already, and all of it
  -- stays.
  local function undo(limit, state, at)
    local live = first_live(limit, state)
    local charged = first(state, live, function(index) return time_of(state, index) >= at end)
    if charged > state[1] or time_of(state, charged) ~= at then return state end
    local before, rest = sum_to(state, charged - 1), sum_to(state, state[1]) - limit.cost
    if rest < before then return state end
    if rest == before then return cut({charged - 1, state[2], sub(state[3], 1, (charged - 1) * ENTRY)}, live) end
    return cut(ended(state, charged - 1, time_of(state, state[1]), rest), live)
  end

  local function kept(limit, state)
    return state[1] == 0 and 0 or min(time_of(state, state[1]) + limit.window, LAST)
  end

  local function decode(text)
    local entries, base, window, start = match(text, '^(%d+),(%d+),(%d+):()')
    entries, base, window = exact(entries), exact(base), exact(window)
    if not (entries and base and window) or base >= SUMS then return nil end
    -- An empty log is never written.
    if entries == 0 or #text - start + 1 ~= entries * ENTRY then return nil end
    local state = {entries, base, sub(text, start)}
    local units, newest = sum_to(state, entries), time_of(state, entries)
    if units < entries or units > UNITS_MAX or newest > LAST then return nil end
    return state, newest + window
  end

  local function encode(limit, state)
    return format('%.0f,%.0f,%.0f:', state[1], state[2], limit.window) .. state[3] .. ';'
  end

  local function shown(limit, state, is_short, charged)
    local live = first_live(limit, state)
    local units = used(state, live)
    if units <= 0 then return '-' end
    local shown = format('l%.0f,%.0f', units, time_of(state, state[1]))
    local missing = units + limit.cost * (charged + 1) - limit.limit
    if not is_short or missing > units then return shown end
    local before = sum_to(state, live - 1)
    local enough = first(state, live, function(index) return sum_to(state, index) - before >= missing end)
    return shown .. format(',%.0f,%.0f', time_of(state, enough), sum_to(state, enough) - before)
  end

  return {
    decode = decode, encode = encode, shown = shown, drained = drained, repair = repair, fits = fits,
    charge = charge, refund = refund, undo = undo, kept = kept,
  }
end
