-- Executes the decisions in order, and then writes the changed keys.

local keys, reports = {}, {}

local function report(limit, state, fits, is_short, charged)
  local shown = state and limit.algorithm.shown(limit, state, is_short, charged) or '-'
  reports[#reports + 1] = (fits and '+' or '-') .. shown
end

-- Reports whether each limit has room, and its state, without a change.
local function peek(limits)
  for _, limit in ipairs(limits) do
    local state = seen(keys[limit.key], limit, true)
    local fits = limit.is_free or limit.algorithm.fits(limit, state, 1)
    report(limit, state, fits, not fits, 0)
  end
end

local function keep(limit, entry, state)
  entry.state, entry.limit, keys[limit.key].is_changed = state, limit, true
end

-- How many of `times` charges in a row fit.
local function room(limit, state, times)
  local fits = limit.algorithm.fits
  if limit.is_free or fits(limit, state, times) then return times end
  local most, beyond = 0, times
  while beyond - most > 1 do
    local middle = most + beyond
    middle = (middle - fmod(middle, 2)) / 2
    if fits(limit, state, middle) then most = middle else beyond = middle end
  end
  return most
end

-- The same charge `times` in a row. At one instant the first of them pass, as many as every enforced limit has room for.
-- The limits of a shadow rule are charged for the first of these, as many as all of the rule's limits have room for.
local rooms_of
local function charge(limits, times, is_reserved)
  local states, rooms = {}, {}
  rooms_of = {e = times}
  for index, limit in ipairs(limits) do
    local state = seen(keys[limit.key], limit, false)
    states[index], rooms[index] = state, room(limit, state, times)
    rooms_of[limit.group] = min(rooms_of[limit.group] or times, rooms[index])
  end
  if times > 1 then reports[#reports + 1] = format('x%.0f', rooms_of.e) end
  for index, limit in ipairs(limits) do
    local state, charged = states[index], min(rooms_of.e, rooms_of[limit.group])
    report(limit, state, rooms[index] > 0, rooms[index] == charged and charged < times, charged)
    if charged > 0 and not limit.is_free then
      local entry = keys[limit.key][limit.place]
      keep(limit, entry, limit.algorithm.charge(limit, entry.state, charged, is_reserved))
    end
  end
end

local function is_same(left, right)
  for index = 1, #left do
    if left[index] ~= right[index] then return false end
  end
  return true
end

-- Charges usage that has already happened, even if it does not fit.
local function force(limits, times, is_due)
  for _, limit in ipairs(limits) do
    local state, entry = seen(keys[limit.key], limit, false)
    local after = not limit.is_free and is_due(limit) and limit.algorithm.force(limit, state, times)
    if after and not (state and is_same(after, state)) then keep(limit, entry, after) end
  end
  peek(limits)
end

local function always() return true end

-- Whether the charge before has left out the group of this limit.
local function is_left_out(limit) return min(rooms_of.e, rooms_of[limit.group]) == 0 end

local function refund(limits)
  for _, limit in ipairs(limits) do
    local state, entry = seen(keys[limit.key], limit, false)
    local after = state and limit.algorithm.refund(limit, state)
    if after and not is_same(after, state) then keep(limit, entry, after) end
  end
  peek(limits)
end

-- A state that was created just now contains no charge.
local function undo(limits, at, is_reserved)
  for _, limit in ipairs(limits) do
    local state, entry, is_as_left = seen(keys[limit.key], limit, false)
    if state and is_as_left and not limit.is_free then
      local algorithm = limit.algorithm
      local after = (is_reserved and algorithm.release or algorithm.undo)(limit, state, at)
      if after ~= state then keep(limit, entry, after) end
    end
  end
  peek(limits)
end

local function reset(limits)
  for _, limit in ipairs(limits) do
    keys[limit.key] = {exists = keys[limit.key].exists, is_changed = true}
  end
  peek(limits)
end

local all = decisions()
if not all then return nonce .. ' ' .. now_shown .. ' outdated' end
for index = 1, #KEYS do
  local key = loaded(index)
  if key.err then return key end
  keys[index] = key
end
for _, limits in ipairs(all) do
  local operation = limits.operation
  if operation == 'charge' then
    charge(limits, 1)
  elseif operation == 'reserve' then
    charge(limits, 1, true)
  elseif operation == 'peek' then
    peek(limits)
  elseif operation == 'usage' then
    force(limits, 1, is_left_out)
  elseif operation == 'refund' then
    refund(limits)
  elseif operation == 'reset' then
    reset(limits)
  else
    local name, number = match(operation, '^(%l+) (%d+)$')
    if name == 'charge' then
      charge(limits, tonumber(number))
    elseif name == 'force' then
      force(limits, tonumber(number), always)
    elseif name == 'undo' or name == 'release' then
      undo(limits, tonumber(number), name == 'release')
    else
      return redis.error_reply('ERR unknown operation')
    end
  end
end
for index, key in ipairs(keys) do
  if key.is_changed then
    local text, last = packed(key)
    if text then
      redis.call('SET', KEYS[index], text, 'PX', expiry(last - now))
    elseif key.exists then
      redis.call('DEL', KEYS[index])
    end
  end
end
return nonce .. ' ' .. now_shown .. format(' %.0f ', damaged) .. table.concat(reports, ' ')
