-- Token buckets, as in the core's `token_bucket.rs`.
--
-- A limit has n, cost and cost_parts, full and full_parts, and with credits unearned, unearned_parts
-- and ttl. A state is {tat, parts, n, kept}.

-- True of a bucket in whole µs that is kept until it is full.
local function is_plain(state) return state[2] == 0 and state[3] == 1 and state[4] == state[1] end

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

  -- How long `times` costs last. Beyond 2⁵³ it is not exact, and longer than any bucket lasts.
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

  local function tat_of(limit, state)
    if not state or is_forgotten(limit, state) then return plus(limit, now, 0, limit.unearned, limit.unearned_parts) end
    local micros, parts = read(limit, state)
    if micros < now then return now, 0 end
    return micros, parts
  end

  local function left_now(limit, micros, parts)
    local until_micros = ceil(micros, parts)
    if limit.ttl then until_micros = max(until_micros, now + limit.ttl) end
    return {micros, parts, limit.n, until_micros}
  end

  local function drained(limit) return left_now(limit, now + limit.full, limit.full_parts) end

  local function repair(limit, state)
    local micros, parts = read(limit, state)
    local furthest = now + limit.full + believed(ceil(limit.full, limit.full_parts))
    return is_later(micros, parts, furthest, limit.full_parts) and drained(limit)
  end

  local function charged(limit, state, times)
    local micros, parts = tat_of(limit, state)
    return plus(limit, micros, parts, lasting(limit, times))
  end

  local function fits(limit, state, times)
    local micros, parts = charged(limit, state, times)
    return not is_later(micros, parts, now + limit.full, limit.full_parts)
  end

  local function charge(limit, state, times) return left_now(limit, charged(limit, state, times)) end

  -- The state once it is full this much earlier, but not before now.
  local function earlier(limit, state, less, less_parts)
    local micros, parts = read(limit, state)
    if is_forgotten(limit, state) or not is_later(micros, parts, now, 0) then return state end
    micros, parts = micros - less, parts - less_parts
    if parts < 0 then micros, parts = micros - 1, parts + limit.n end
    if micros < now then micros, parts = now, 0 end
    return {micros, parts, limit.n, limit.ttl and state[4] or ceil(micros, parts)}
  end

  local function refund(limit, state) return earlier(limit, state, limit.cost, limit.cost_parts) end

  -- True if this is what a charge at `at` leaves of somebody who was not known. Nobody has come since.
  local function is_newcomers(limit, state, at)
    local micros, parts = plus(limit, at, 0, limit.unearned, limit.unearned_parts)
    micros, parts = plus(limit, micros, parts, limit.cost, limit.cost_parts)
    return state[1] == micros and state[2] == parts and state[3] == limit.n
      and state[4] == max(ceil(micros, parts), at + limit.ttl)
  end

  -- Think of a twin that never saw the charge, but all the others. Right after the charge this bucket is full later than
  -- its twin, by the length of the cost. What others charge or undo moves both alike. Time brings them together only
  -- while the twin is full and this one is not, and no faster than it passes. So now they are still apart by the length
  -- of the cost less the time since the charge, or more, and as much may be given back. A twin that was full in between
  -- for a shorter time has more room then. Who was not known, and would be by this charge only, is not known again.
  local function undo(limit, state, at)
    if limit.ttl and is_newcomers(limit, state, at) then return false end
    local rest, rest_parts = limit.cost - (now - at), limit.cost_parts
    if rest < 0 then return state end
    -- Who rounded up to whole µs in between may have brought the two together by a part of one.
    if state[3] ~= limit.n then rest_parts = 0 end
    return earlier(limit, state, rest, rest_parts)
  end

  local function decode(fields)
    local tat, parts, n, longer = all_exact(match(fields, '^(%d+),(%d+),(%d+),(%d+)$'))
    if not tat or n < 1 or tat + longer > LAST then return nil end
    return {tat, parts, n, tat + longer}, tat + longer
  end

  local function encode(_, state)
    return format('%.0f,%.0f,%.0f,%.0f;', state[1], state[2], state[3], state[4] - state[1])
  end

  local function shown(_, state)
    if is_plain(state) then return format('w%.0f', state[1]) end
    return format('b%.0f,%.0f,%.0f,%.0f', state[1], state[2], state[3], state[4])
  end

  return {
    decode = decode, encode = encode, shown = shown, drained = drained, repair = repair, fits = fits,
    charge = charge, refund = refund, undo = undo, kept = kept,
  }
end
