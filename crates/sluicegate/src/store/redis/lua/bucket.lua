-- Token buckets, as in the core's `token_bucket.rs`. A TAT is the instant at which the bucket is full again. A TAT
-- in the past means earned credits.
--
-- A limit has n, cost and cost_parts, fill and fill_parts (the time in which the capacity refills), and tolerance;
-- with credits also earning, earning_parts and ttl. A state is {tat, parts, n, kept}. While charges may be released,
-- it also has `recent`, the latest charges: see `recent_charges.lua`.

-- True for a bucket in whole µs that is kept until it is full and has no reserved charges.
local function is_plain(state)
  return state[2] == 0 and state[3] == 1 and state[4] == state[1] and not state.recent
end

function makers.b()
  local function ceil(micros, parts) return parts > 0 and micros + 1 or micros end

  local function is_later(left, left_parts, right, right_parts)
    return left > right or left == right and left_parts > right_parts
  end

  local function plus(limit, micros, parts, more, more_parts)
    micros, parts = micros + more, parts + more_parts
    if parts >= limit.n then return micros + 1, parts - limit.n end
    return micros, parts
  end

  -- The length or instant minus this length, at least 0.
  local function minus(limit, micros, parts, less, less_parts)
    if not is_later(micros, parts, less, less_parts) then return 0, 0 end
    micros, parts = micros - less, parts - less_parts
    if parts < 0 then return micros - 1, parts + limit.n end
    return micros, parts
  end

  -- The refill time of `times` costs. Beyond 2⁵³ it is inexact, and longer than that of any bucket.
  local function lasting(limit, times)
    local micros, parts = limit.cost * times, limit.cost_parts * times
    if parts < limit.n then return micros, parts end
    if parts <= LAST then
      local rest = fmod(parts, limit.n)
      return micros + (parts - rest) / limit.n, rest
    end
    local odd = fmod(times, 2)
    micros, parts = lasting(limit, (times - odd) / 2)
    micros, parts = plus(limit, micros, parts, micros, parts)
    if odd == 0 then return micros, parts end
    return plus(limit, micros, parts, limit.cost, limit.cost_parts)
  end

  local function read(limit, state)
    if state[3] == limit.n and state[2] < limit.n then return state[1], state[2] end
    return ceil(state[1], state[2]), 0
  end

  local function kept(limit, state) return max(state[4], ceil(read(limit, state))) end

  local function is_forgotten(limit, state) return limit.ttl and now > kept(limit, state) end

  -- The TAT of a bucket with full capacity and all credits.
  local function earliest(limit)
    if not limit.ttl then return now, 0 end
    return minus(limit, now, 0, limit.earning, limit.earning_parts)
  end

  local function tat_of(limit, state)
    if not state or is_forgotten(limit, state) then return now, 0 end
    local micros, parts = read(limit, state)
    local least, least_parts = earliest(limit)
    if is_later(least, least_parts, micros, parts) then return least, least_parts end
    return micros, parts
  end

  -- Until when a state with this TAT matters that is written at `at`.
  local function kept_from(limit, micros, parts, at)
    if not limit.ttl then return ceil(micros, parts) end
    return max(ceil(plus(limit, micros, parts, limit.earning, limit.earning_parts)), at + limit.ttl)
  end

  local function left_now(limit, micros, parts)
    return {micros, parts, limit.n, kept_from(limit, micros, parts, now)}
  end

  -- The recent charges of a state, in parts of this limit.
  local function recent_of(limit, state)
    local recent = state.recent
    if recent and state[3] ~= limit.n then
      recent.tat, recent.parts = ceil(recent.tat, recent.parts), 0
      for _, each in ipairs(recent) do each[2], each[3] = ceil(each[2], each[3]), 0 end
    end
    return recent
  end

  -- The TAT after one of the recent charges, and until when its bucket has a history.
  local function after_charge(limit, micros, parts, known, each)
    local least, least_parts = each[1], 0
    if limit.ttl and least <= known then
      least, least_parts = minus(limit, least, 0, limit.earning, limit.earning_parts)
    end
    if is_later(least, least_parts, micros, parts) then micros, parts = least, least_parts end
    micros, parts = plus(limit, micros, parts, each[2], each[3])
    return micros, parts, kept_from(limit, micros, parts, each[1])
  end

  -- The recent charges with this one added. They are recorded from a reservation on until two seconds after the last
  -- one.
  local function noted(limit, state, micros, parts, is_reserved)
    local recent = state and recent_of(limit, state)
    if recent and not is_reserved and now - recent.reserved > RECENT then recent = nil end
    if not recent then
      if not is_reserved then return nil end
      recent = {tat = 0, parts = 0, known = 0, since = now, reserved = now}
      if state then
        recent.tat, recent.parts = read(limit, state)
        recent.known = kept(limit, state)
      end
    end
    if is_reserved then recent.reserved = max(now, recent.since) end
    while recent[1] and now - recent[1][1] > RECENT do
      recent.tat, recent.parts, recent.known =
        after_charge(limit, recent.tat, recent.parts, recent.known, table.remove(recent, 1))
    end
    -- A forced charge beyond the largest debt moves nothing.
    if micros == 0 and parts == 0 then return recent end
    local newest = recent[#recent]
    if newest and newest[1] >= now then
      newest[2], newest[3] = plus(limit, newest[2], newest[3], micros, parts)
    else
      make_room(recent, function(...) return plus(limit, ...) end)
      recent[#recent + 1] = {max(now, recent.since), micros, parts}
    end
    return recent
  end

  local function drained(limit) return left_now(limit, now + limit.fill, limit.fill_parts) end

  local function repair(limit, state)
    local micros, parts = read(limit, state)
    return is_later(micros, parts, now + limit.fill + limit.tolerance, limit.fill_parts) and drained(limit)
  end

  local function charged(limit, state, times)
    local micros, parts = tat_of(limit, state)
    return plus(limit, micros, parts, lasting(limit, times))
  end

  local function fits(limit, state, times)
    local micros, parts = charged(limit, state, times)
    return not is_later(micros, parts, now + limit.fill, limit.fill_parts)
  end

  -- The state with this TAT, after a charge that lasts `micros` and `parts`.
  local function moved(limit, state, tat, tat_parts, micros, parts, is_reserved)
    local known = state and not is_forgotten(limit, state)
    local recent = noted(limit, known and state, micros, parts, is_reserved)
    local after = left_now(limit, tat, tat_parts)
    after.recent = recent
    return after
  end

  local function charge(limit, state, times, is_reserved)
    local tat, tat_parts = charged(limit, state, times)
    local micros, parts = lasting(limit, times)
    return moved(limit, state, tat, tat_parts, micros, parts, is_reserved)
  end

  -- The TAT of a bucket with the largest debt: ten limits, and at most the tolerance.
  local function deepest(limit)
    local one, one_parts = limit.fill, limit.fill_parts
    if limit.ttl then one, one_parts = plus(limit, one, one_parts, limit.earning, limit.earning_parts) end
    local two, two_parts = plus(limit, one, one_parts, one, one_parts)
    local debt, debt_parts = plus(limit, two, two_parts, two, two_parts)
    debt, debt_parts = plus(limit, debt, debt_parts, one, one_parts)
    debt, debt_parts = plus(limit, debt, debt_parts, debt, debt_parts)
    if is_later(debt, debt_parts, limit.tolerance, 0) then debt, debt_parts = limit.tolerance, 0 end
    return plus(limit, debt, debt_parts, now + limit.fill, limit.fill_parts)
  end

  local function force(limit, state, times)
    local from, from_parts = tat_of(limit, state)
    local tat, tat_parts = charged(limit, state, times)
    local most, most_parts = deepest(limit)
    if is_later(from, from_parts, most, most_parts) then most, most_parts = from, from_parts end
    if is_later(tat, tat_parts, most, most_parts) then tat, tat_parts = most, most_parts end
    local micros, parts = minus(limit, tat, tat_parts, from, from_parts)
    return moved(limit, state, tat, tat_parts, micros, parts, false)
  end

  -- The state with a TAT that is this much earlier, but not before all credits are earned.
  local function earlier(limit, state, less, less_parts)
    local micros, parts = read(limit, state)
    local least, least_parts = earliest(limit)
    if is_forgotten(limit, state) or not is_later(micros, parts, least, least_parts) then return state end
    micros, parts = minus(limit, micros, parts, less, less_parts)
    if is_later(least, least_parts, micros, parts) then micros, parts = least, least_parts end
    local after = {micros, parts, limit.n, limit.ttl and state[4] or ceil(micros, parts)}
    after.recent = recent_of(limit, state)
    return after
  end

  local function refund(limit, state) return earlier(limit, state, limit.cost, limit.cost_parts) end

  -- True if the state is that of a new client with one charge at `at`, and nothing was charged since.
  local function is_newcomers(limit, state, at)
    local micros, parts = plus(limit, at, 0, limit.cost, limit.cost_parts)
    return state[1] == micros and state[2] == parts and state[3] == limit.n
      and state[4] == kept_from(limit, micros, parts, at)
  end

  -- Compare with a twin bucket that has every charge but this one. Right after the charge, this bucket is full later
  -- than its twin by the refill time of the cost. Other charges and undos move both equally. Time closes the gap
  -- only while the twin is full and this bucket is not, and no faster than it passes. So the gap is still at least
  -- the refill time of the cost minus the time since the charge, and that much may be given back. If the twin was
  -- full for a shorter time, it has more room. A client without history before this charge has none after the undo.
  local function undo(limit, state, at)
    -- After a step back of the clock, the time since the charge is unknown.
    if at > now then return state end
    if limit.ttl and is_newcomers(limit, state, at) then return false end
    local rest, rest_parts = limit.cost - (now - at), limit.cost_parts
    if rest < 0 then return state end
    -- A state that was rounded up to whole µs in between may have closed the gap by a part of one.
    if state[3] ~= limit.n then rest_parts = 0 end
    return earlier(limit, state, rest, rest_parts)
  end

  -- Removes the cost from the recent charges, starting with the one at `at`. Returns its index; nothing if it is not
  -- listed.
  local function taken_out(limit, recent, at)
    if at < recent.since then return nil end
    for index, each in ipairs(recent) do
      if each[1] >= at then
        if is_later(limit.cost, limit.cost_parts, each[2], each[3]) then return nil end
        each[2], each[3] = minus(limit, each[2], each[3], limit.cost, limit.cost_parts)
        return index
      end
    end
  end

  -- The TAT that the charges from this index on produce in a bucket that was full before them, and until when a
  -- bucket with all recent charges has a history.
  local function refilled(limit, recent, index)
    local micros, parts, full, full_parts = recent.tat, recent.parts, 0, 0
    local known, before = recent.known, nil
    for place, each in ipairs(recent) do
      before = known
      micros, parts, known = after_charge(limit, micros, parts, before, each)
      if place >= index then full, full_parts = after_charge(limit, full, full_parts, before, each) end
    end
    return full, full_parts, known
  end

  -- Compare with a twin bucket that has every charge but this one. Either its TAT is earlier by the refill time of
  -- the cost, or the twin was full at some instant since. In that case only the charges since that instant count,
  -- and they are listed. So the later of the two TATs is that of the twin. A reservation that is too old for the
  -- list is undone without it. If the charge should be listed and is not, the state was reset or repaired since, and
  -- nothing is left to take back.
  local function release(limit, state, at)
    if now - at > RECENT or at > now then return undo(limit, state, at) end
    local recent = not is_forgotten(limit, state) and recent_of(limit, state)
    local index = recent and taken_out(limit, recent, at)
    if not index then return state end
    if recent[index][2] == 0 and recent[index][3] == 0 then table.remove(recent, index) end
    if #recent == 0 and recent.known == 0 then return false end
    local micros, parts = read(limit, state)
    local full, full_parts, known = refilled(limit, recent, index)
    -- Merged charges may count as later than they were. With credits, a bucket that would have been new has more as
    -- well.
    if not limit.ttl and is_later(full, full_parts, micros, parts) then full, full_parts = micros, parts end
    micros, parts = minus(limit, micros, parts, limit.cost, limit.cost_parts)
    if is_later(full, full_parts, micros, parts) then micros, parts = full, full_parts end
    local after = {micros, parts, limit.n, ceil(micros, parts)}
    if limit.ttl then after[4] = max(after[4], known) end
    if #recent > 0 then after.recent = recent end
    return after
  end

  local function decode(fields)
    local head, more = match(fields, '^(%d+,%d+,%d+,%d+)(.*)$')
    local tat, parts, n, longer = all_exact(match(head or '', '^(%d+),(%d+),(%d+),(%d+)$'))
    if not tat or n < 1 or tat + longer > LAST then return nil end
    local state = {tat, parts, n, tat + longer}
    if more ~= '' then
      state.recent = decode_recent(more)
      if not state.recent then return nil end
    end
    return state, tat + longer
  end

  local function encode(_, state)
    local text = format('%.0f,%.0f,%.0f,%.0f', state[1], state[2], state[3], state[4] - state[1])
    return text .. (state.recent and encode_recent(state.recent) or '') .. ';'
  end

  local function shown(_, state)
    if is_plain(state) then return format('w%.0f', state[1]) end
    return format('b%.0f,%.0f,%.0f,%.0f', state[1], state[2], state[3], state[4])
  end

  return {
    decode = decode, encode = encode, shown = shown, drained = drained, repair = repair, fits = fits,
    charge = charge, force = force, refund = refund, undo = undo, release = release, kept = kept,
  }
end
