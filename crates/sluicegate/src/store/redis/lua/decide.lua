-- The decisions: what each finds and changes, then what is written.

local keys, reports = {}, {}

-- What a question finds: whether each limit has room, and its state.
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

local operations = {}

function operations.peek(limits) report(limits, true) end

function operations.charge(limits)
  local is_allowed, denied = report(limits, false)
  if not is_allowed then return end
  for _, limit in ipairs(limits) do
    if not limit.is_free and not denied[limit.group] then
      local key = keys[limit.key]
      keep(key, limit, limit.algorithm.charge(limit, key.states[limit.place]))
    end
  end
end

local function is_same(left, right)
  for index = 1, #left do
    if left[index] ~= right[index] then return false end
  end
  return true
end

function operations.refund(limits)
  for _, limit in ipairs(limits) do
    local key = keys[limit.key]
    local state = seen(key, limit, false)
    local after = state and limit.algorithm.refund(limit, state)
    if after and not is_same(after, state) then keep(key, limit, after) end
  end
  report(limits, true)
end

function operations.reset(limits)
  for _, limit in ipairs(limits) do
    local fresh = new_key()
    fresh.exists, fresh.is_changed = keys[limit.key].exists, true
    keys[limit.key] = fresh
  end
  report(limits, true)
end

local all = decisions()
for index = 1, #KEYS do
  local key = loaded(index)
  if key.err then return key end
  keys[index] = key
end
for _, decision in ipairs(all) do
  operations[decision.operation](decision)
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
return format('%s %.0f %.0f ', nonce, now, damaged) .. table.concat(reports, ' ')
