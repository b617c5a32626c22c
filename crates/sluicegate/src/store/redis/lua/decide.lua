-- The decisions: what each finds and changes, then what is written.

local keys, reports = {}, {}

-- What a decision finds: whether each limit has room, and its state.
local function report(limits, is_question)
  local is_allowed, denied = true, {}
  for _, limit in ipairs(limits) do
    local state = seen(keys[limit.key], limit, is_question)
    local fits = limit.is_free or limit.algorithm.fits(limit, state)
    if not fits then
      denied[limit.group] = true
      if limit.group == 'e' then is_allowed = false end
    end
    reports[#reports + 1] = (fits and '+' or '-') .. (state and limit.algorithm.shown(limit, state, fits) or '-')
  end
  return is_allowed, denied
end

local function keep(limit, slot, state)
  slot.state, slot.limit, keys[limit.key].is_changed = state, limit, true
end

local function charge(limits)
  local is_allowed, denied = report(limits, false)
  if not is_allowed then return end
  for _, limit in ipairs(limits) do
    if not limit.is_free and not denied[limit.group] then
      local slot = keys[limit.key][limit.place]
      keep(limit, slot, limit.algorithm.charge(limit, slot.state))
    end
  end
end

local function is_same(left, right)
  for index = 1, #left do
    if left[index] ~= right[index] then return false end
  end
  return true
end

local function refund(limits)
  for _, limit in ipairs(limits) do
    local state, slot = seen(keys[limit.key], limit, false)
    local after = state and limit.algorithm.refund(limit, state)
    if after and not is_same(after, state) then keep(limit, slot, after) end
  end
  report(limits, true)
end

-- What was made up just now has never been charged, and after a step back of the clock nobody knows how long ago it was.
local function undo(limits, at)
  for _, limit in ipairs(limits) do
    local state, slot, is_as_left = seen(keys[limit.key], limit, false)
    if state and is_as_left and not limit.is_free and at <= now then
      local after = limit.algorithm.undo(limit, state, at)
      if not (after and is_same(after, state)) then keep(limit, slot, after) end
    end
  end
  report(limits, true)
end

local function reset(limits)
  for _, limit in ipairs(limits) do
    keys[limit.key] = {exists = keys[limit.key].exists, is_changed = true}
  end
  report(limits, true)
end

local all = decisions()
for index = 1, #KEYS do
  local key = loaded(index)
  if key.err then return key end
  keys[index] = key
end
for _, limits in ipairs(all) do
  local operation = limits.operation
  if operation == 'charge' then
    charge(limits)
  elseif operation == 'peek' then
    report(limits, true)
  elseif operation == 'refund' then
    refund(limits)
  elseif operation == 'reset' then
    reset(limits)
  else
    local at = match(operation, '^undo (%d+)$')
    if not at then return redis.error_reply('ERR unknown operation') end
    undo(limits, tonumber(at))
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
