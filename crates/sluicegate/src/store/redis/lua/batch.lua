-- The batch way: what the short way does, but many times, or for one charge several times. It gives up before anything
-- is written when it meets anything else, and the long way starts anew.
--
-- Next to the writing, what costs is to read and write numbers and to let tables grow. So the same words are read once,
-- a state stays the digits it is written in, and %d writes numbers where it can, at half the price.

-- The digits of all states by their keys, false where there is none; nothing if one is not to be read here.
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
  -- What is of another type looks as if it were missing.
  if missing[1] and redis.pcall('EXISTS', unpack(missing)) ~= 0 then return nil end
  return states
end

-- What the words mean: how often, and of a limit its key, its cost and how long its bucket takes to fill. Nothing if one
-- means something else.
local function plain_words()
  local times_of, key_of, cost_of, full_of = {charge = 1}, {}, {}, {}
  for index = 3, #ARGV, 2 do
    local times, limit = ARGV[index], ARGV[index + 1] or ''
    if not times_of[times] then
      local number = match(times, '^charge (%d+)$')
      if not number then return nil end
      times_of[times] = number + 0
    end
    if not key_of[limit] then
      local key, cost, full = match(limit, '^w ([%d+]+) 0 e (%d+) (%d+)$')
      if not key then return nil end
      key_of[limit], cost_of[limit], full_of[limit] = key, cost + 0, full + 0
    end
  end
  return times_of, key_of, cost_of, full_of
end

-- How many of `times` charges fit into `room` in a row. What costs nothing needs none.
local function admitted(times, cost, room)
  if cost == 0 or cost * times <= room then return times end
  return room > 0 and (room - math.fmod(room, cost)) / cost or 0
end

local function batch()
  local times_of, key_of, cost_of, full_of = plain_words()
  local states = times_of and plain_states()
  if not states then return nil end
  local call, ceil, key = redis.call, math.ceil, 0
  local whole = format('%d', LAST) == '9007199254740991' and '%d' or '%.0f'
  -- A table that has room for all of them.
  local reports, reported = {unpack(KEYS)}, 0
  for index = 3, #ARGV, 2 do
    local times, limit = times_of[ARGV[index]], ARGV[index + 1]
    local cost, full = cost_of[limit], full_of[limit]
    key = key_of[limit] == '+' and key + 1 or key_of[limit] + 0
    local digits, from, empty, after = states[key], now, now + full, nil
    if digits then
      local tat = digits + 0
      if tat > empty + (full > SECOND and full or SECOND) then
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

-- More keys than this are more than a command may have arguments.
if value == nil and match(ARGV[3], '^charge') and #KEYS <= 1000 then
  local reply = batch()
  if reply then return reply end
end

