-- Limits as they arrive, and keys with all their states.

-- Limits, as they arrive.

local algorithms = {b = bucket, c = counter, f = fixed, l = log}

local function new_limit(kind, fields)
  local list = {}
  for digits in string.gmatch(fields, '%d+') do list[#list + 1] = tonumber(digits) end
  if kind == 'w' then
    return 'b', {n = 1, cost = list[1], cost_parts = 0, full = list[2], full_parts = 0, unearned = 0, unearned_parts = 0}
  elseif kind == 'b' or kind == 'k' then
    return 'b', {
      n = list[1], cost = list[2], cost_parts = list[3], full = list[4], full_parts = list[5],
      unearned = list[6] or 0, unearned_parts = list[7] or 0, ttl = list[8],
    }
  elseif kind == 'c' then
    return 'c', {cost = list[1], limit = list[2], millis = list[3], window = list[3] * 1000}
  end
  return kind, {cost = list[1], limit = list[2], window = list[3], phase = list[4]}
end

-- The decisions, each a list of limits with its operation.
local function decisions()
  local all, current = {}, nil
  for index = 3, #ARGV do
    local kind, key, place, group, fields = match(ARGV[index], '^(%l) (%d+) (%x) (%w+) (.+)$')
    if kind then
      local limit
      kind, limit = new_limit(kind, fields)
      limit.algorithm, limit.key, limit.place = algorithms[kind], tonumber(key), kind .. place
      limit.group, limit.is_free = group, limit.cost == 0 and (limit.cost_parts or 0) == 0
      current[#current + 1] = limit
    else
      current = {operation = ARGV[index]}
      all[#all + 1] = current
    end
  end
  return all
end

-- Keys. A key has `records`, the text of states by their place, and `states`, those that a limit has asked for;
-- `places` keeps them in order and `limits` by whom they were last seen.

local damaged = 0

local function new_key() return {records = {}, states = {}, places = {}, limits = {}} end

local function damage(key)
  if not key.is_damaged then damaged = damaged + 1 end
  key.is_damaged = true
end

-- The records of a value, and the order they came in.
local function parsed(text)
  if find(text, '^%d+1$') then return {b0 = sub(text, 1, -2) .. ',0,1,0'}, {'b0'} end
  if sub(text, 1, 1) ~= 'a' then return nil end
  local records, places, at = {}, {}, 2
  while at <= #text do
    local start, stop, place, entries = find(text, '^(l%x)(%d+),%d+,%d+:', at)
    if start then
      stop = stop + (exact(entries) or LAST) * ENTRY + 1
      if stop > #text or sub(text, stop, stop) ~= ';' then return nil end
    else
      start, stop, place = find(text, '^([bcf]%x)[%d,]+;', at)
      if not start then return nil end
    end
    if records[place] then return nil end
    records[place], places[#places + 1] = sub(text, at + 2, stop - 1), place
    at = stop + 1
  end
  return records, places
end

local function loaded(index)
  local key = new_key()
  if value == nil then value = redis.pcall('GET', KEYS[index]) end
  local text = value
  value = nil
  if text == false then return key end
  key.exists = true
  if type(text) == 'table' then
    if not find(text.err, 'WRONGTYPE', 1, true) then return text end
    text = ''
  end
  local records, places = parsed(text)
  if records then
    key.records, key.places = records, places
  else
    key.is_drained = true
    damage(key)
  end
  return key
end

-- The state that a limit finds under its key, as it was left; none is false. A drained one is new.
local function found(key, limit)
  local place = limit.place
  local state = key.states[place]
  if state ~= nil then return state, false end
  local record = key.records[place]
  if record then
    state = limit.algorithm.decode(record)
    if state then return state, false end
    damage(key)
  elseif not key.is_drained then
    return false, false
  end
  return limit.algorithm.drained(limit), true
end

local function keep(key, limit, state)
  local place = limit.place
  if not key.states[place] and not key.records[place] then key.places[#key.places + 1] = place end
  key.states[place], key.limits[place], key.is_changed = state, limit, true
end

-- The state that counts: pulled back into range, and kept so unless this is a question.
local function seen(key, limit, is_question)
  local state, is_new = found(key, limit)
  local repaired = state and limit.algorithm.repair(limit, state)
  if is_question then return repaired or state end
  if repaired or is_new then
    keep(key, limit, repaired or state)
  else
    key.states[limit.place], key.limits[limit.place] = state, limit
  end
  return repaired or state
end

-- A key's new value, and how much longer it matters; nothing if there is nothing left.
local function packed(key)
  local last, records, only = 0, {}, nil
  for _, place in ipairs(key.places) do
    local state, limit, kept, record = key.states[place], key.limits[place], nil, nil
    local algorithm = algorithms[sub(place, 1, 1)]
    if state and limit then
      if state[1] ~= 0 or algorithm ~= log then
        kept, record, only = algorithm.kept(limit, state), algorithm.encode(limit, state), state
      end
    elseif state == nil then
      -- Another tier's: it is kept for as long as it said, and goes when it matters no longer.
      state, kept = algorithm.decode(key.records[place])
      if state and kept + SECOND >= now then
        record = key.records[place] .. ';'
        if algorithm == bucket then only = state end
      end
    end
    if record then
      records[#records + 1] = place .. record
      last = max(last, kept)
    end
  end
  if #records == 1 and sub(records[1], 1, 2) == 'b0' and is_plain(only) then return format('%.0f1', only[1]), last end
  if #records > 0 then return 'a' .. table.concat(records), last end
  return nil
end
