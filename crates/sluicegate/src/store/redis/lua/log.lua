-- Sliding windows, as in the core's `sliding_window.rs`.
--
-- A limit has cost, limit and window. A state is {entries, base, text}: the number of entries, the sum before the
-- first one, and the entries as text. Every operation but an undo takes about fifteen steps at most, however long
-- the log is.

local ENTRY = 13

function makers.l()
  local SUMS, UNITS_MAX, EMPTY = 281474976710656, 4294967295, {0, 0, ''}

  -- The time of an entry.
  local function time_of(state, index)
    local a, b, c, d, e, f, g = byte(state[3], index * ENTRY - 12, index * ENTRY - 6)
    return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
  end

  -- The sum of all entries up to this one.
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

  -- The first entry from `from` on for which `is_beyond` holds, one past the last if there is none. It must hold for
  -- all entries after the first.
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

  -- The log may exceed the limit.
  local function force(limit, state, times)
    local left = min(with_debt(limit.limit), limit.limit + LOG_DEBT) - (state and used(state, first_live(limit, state)) or 0)
    local units = min(left, limit.cost * times)
    return units > 0 and charge({cost = units, limit = limit.limit, window = limit.window}, state, 1)
  end

  local function refund(limit, state)
    state = cut(state, first_live(limit, state))
    if limit.cost == 0 then return state end
    local rest = sum_to(state, state[1]) - limit.cost
    if rest <= 0 then return EMPTY end
    local last = first(state, 1, function(index) return sum_to(state, index) >= rest end)
    return ended(state, last - 1, time_of(state, last), rest)
  end

  -- The entries from `from` to `upto`, with `more` added to their sums.
  local function shifted(state, from, upto, more)
    local text = state[3]
    if more == 0 or from > upto then return sub(text, (from - 1) * ENTRY + 1, upto * ENTRY) end
    local entries = {}
    for last = from * ENTRY, upto * ENTRY, ENTRY do
      local d, e, f = byte(text, last - 2, last)
      local low = d * 65536 + e * 256 + f + more
      if low >= 0 and low < 16777216 then
        f = fmod(low, 256)
        low = (low - f) / 256
        e = fmod(low, 256)
        entries[#entries + 1] = sub(text, last - 12, last - 3) .. char((low - e) / 256, e, f)
      else
        -- The upper three bytes change as well.
        local index = last / ENTRY
        entries[#entries + 1] = entry(state, time_of(state, index), sum_to(state, index) + more + SUMS)
      end
    end
    return table.concat(entries)
  end

  -- The last entry that an undo may take units from: the one that was charged at `at`. Nothing if there is none.
  local function charged(state, live, at)
    local entries = state[1]
    local index = first(state, live, function(index) return time_of(state, index) > at end) - 1
    if index >= live and time_of(state, index) == at then return index end
    -- The clock has gone back far enough for a repair, so the position of the units is unknown.
    if entries < live or at > now then return nil end
    -- The log is ahead of the clock, which went back a little before the charge. So the charge joined the newest
    -- entry.
    if time_of(state, entries) > now then return entries end
    -- A refund has taken these units in place of older ones. So the undo takes the older ones.
    return index >= live and index or nil
  end

  -- Removes the units from the entry that was charged at `at`. Every other entry keeps its time and units. Units
  -- that the entry no longer has are taken from the entries before it, newest first. After a reset there are none.
  --
  -- The sums on one side of the removed units have to be rewritten: those after them, or else those before them
  -- together with the base. The shorter side is chosen. So the undos of a burst are cheap in the order of the
  -- charges and in reverse order, and no undo rewrites more than half of the entries.
  local function undo(limit, state, at)
    if now - at >= limit.window then return state end
    local entries, live = state[1], first_live(limit, state)
    local index = charged(state, live, at)
    if not index then return state end
    local before, total = sum_to(state, live - 1), sum_to(state, index)
    local rest = max(total - limit.cost, before)
    local last = live - 1
    if rest > before then last = first(state, live, function(each) return sum_to(state, each) >= rest end) end
    local count, taken, more = last - live + 1, total - rest, 0
    if entries - index > count then more = taken end
    local text = shifted(state, index + 1, entries, more - taken)
    if count > 0 then
      text = shifted(state, live, last - 1, more) .. entry(state, time_of(state, last), rest + more) .. text
    end
    return {count + entries - index, fmod(state[2] + before + more, SUMS), text}
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
    charge = charge, force = force, refund = refund, undo = undo, kept = kept,
  }
end
