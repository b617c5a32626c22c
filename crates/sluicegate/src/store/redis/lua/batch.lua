-- The batch path: the fast path for many decisions, or for repeated ones. If it meets any other limit, it gives up before
-- it has written anything, and the general path starts over.
--
-- Besides the writes, the cost is in parsing and formatting numbers and in growing tables. So equal arguments are parsed
-- once, a state stays in its decimal form, and %d formats numbers where possible, at half the cost.

-- The decimal states of all keys, false where there is none; nothing if a key needs the general path.
local function plain_states()
  local states, missing = redis.pcall('MGET', unpack(KEYS)), {}
  if states.err then return nil end
  for key = 1, #KEYS do
    local value = states[key]
    if value then
      local digits = #value <= 17 and match(value, '^(%d+)1$')
      if not digits or digits + 0 > LAST then return nil end
      states[key] = digits
    else
      missing[#missing + 1] = KEYS[key]
    end
  end
  -- MGET returns nil for keys of another type, too.
  if missing[1] and redis.pcall('EXISTS', unpack(missing)) ~= 0 then return nil end
  return states
end

-- The parsed arguments: repetitions, and for each limit its key, its cost, the refill time of its bucket and the latest
-- valid TAT. Nothing if an argument needs the general path.
local function plain_words()
  local times_of, key_of, cost_of, full_of, furthest_of = {charge = 1}, {}, {}, {}, {}
  for index = 3, #ARGV, 2 do
    local times, limit = ARGV[index], ARGV[index + 1] or ''
    if not times_of[times] then
      local number = match(times, '^charge (%d+)$')
      if not number then return nil end
      times_of[times] = number + 0
    end
    if not key_of[limit] then
      local kind, key, cost, full = match(limit, '^([sw]) ([%d+]+) 0 e (%d+) (%d+)$')
      if not key then return nil end
      full = full + 0
      key_of[limit], cost_of[limit], full_of[limit] = key, cost + 0, full
      furthest_of[limit] = full + (kind == 's' and TEN_YEARS or full > SECOND and 11 * full or 10 * full + SECOND)
    end
  end
  return times_of, key_of, cost_of, full_of, furthest_of
end

-- How many of `times` charges fit into `room` in a row. A cost of zero needs no room.
local function admitted(times, cost, room)
  if cost == 0 or cost * times <= room then return times end
  return room > 0 and (room - math.fmod(room, cost)) / cost or 0
end

local function batch()
  local times_of, key_of, cost_of, full_of, furthest_of = plain_words()
  local states = times_of and plain_states()
  if not states then return nil end
  local call, ceil, key = redis.call, math.ceil, 0
  local whole = format('%d', LAST) == '9007199254740991' and '%d' or '%.0f'
  -- A table with room for all of them.
  local reports, reported = {unpack(KEYS)}, 0
  for index = 3, #ARGV, 2 do
    local times, limit = times_of[ARGV[index]], ARGV[index + 1]
    local cost, full = cost_of[limit], full_of[limit]
    key = key_of[limit] == '+' and key + 1 or key_of[limit] + 0
    local digits, from, empty, after = states[key], now, now + full, nil
    if digits then
      local tat = digits + 0
      if tat > now + furthest_of[limit] then
        tat, after, digits = empty, empty, format(whole, empty)
      end
      if tat > now then from = tat end
    end
    local fits = cost == 0 or from + cost <= empty
    local report = digits and (fits and '+w' or '-w') .. digits or fits and '+-' or '--'
    if times > 1 then
      times = admitted(times, cost, empty - from)
      report = 'x' .. format(whole, times) .. ' ' .. report
    end
    if fits and cost > 0 then after = from + cost * times end
    if after then
      digits = format(whole, after)
      states[key] = digits
      call('SET', KEYS[key], digits .. '1', 'PX', format(whole, ceil((after - now) / 1000) + 1000))
    end
    reported = reported + 1
    reports[reported] = report
  end
  return nonce .. ' ' .. now_shown .. ' 0 ' .. table.concat(reports, ' ')
end

-- With more keys, a command would have too many arguments.
if value == nil and match(ARGV[3], '^charge') and #KEYS <= 1000 then
  local reply = batch()
  if reply then return reply end
end

