-- Limits as they arrive, and keys with all their states.

local function algorithm_of(kind)
  local algorithm = algorithms[kind]
  if not algorithm then
    algorithm = makers[kind]()
    algorithms[kind] = algorithm
  end
  return algorithm
end

local function new_limit(kind, fields)
  if kind == 'w' then
    local cost, full = match(fields, '^(%d+) (%d+)$')
    return 'b', {
      n = 1, cost = tonumber(cost), cost_parts = 0, full = tonumber(full), full_parts = 0,
      unearned = 0, unearned_parts = 0,
    }
  end
  local a, b, c, d, e, more = match(fields, '^(%d+) (%d+) (%d+) ?(%d*) ?(%d*) ?(.*)$')
  if kind == 'b' or kind == 'k' then
    local unearned, unearned_parts, ttl = match(more, '^(%d+) (%d+) (%d+)$')
    return 'b', {
      n = tonumber(a), cost = tonumber(b), cost_parts = tonumber(c), full = tonumber(d), full_parts = tonumber(e),
      unearned = tonumber(unearned or 0), unearned_parts = tonumber(unearned_parts or 0), ttl = tonumber(ttl),
    }
  elseif kind == 'c' then
    return 'c', {cost = tonumber(a), limit = tonumber(b), millis = tonumber(c), window = c * 1000}
  elseif kind == 'm' then
    local boundaries = {tonumber(c), tonumber(d), tonumber(e)}
    for each in string.gmatch(more, '%d+') do boundaries[#boundaries + 1] = tonumber(each) end
    return 'f', {cost = tonumber(a), limit = tonumber(b), boundaries = boundaries, phase = 0}
  end
  return kind, {cost = tonumber(a), limit = tonumber(b), window = tonumber(c), phase = tonumber(d)}
end

-- True if the boundaries do not tell where the window ends that now lies in, and where the next one does.
local function is_outdated(limit)
  local boundaries = limit.boundaries
  return boundaries and (now < boundaries[1] or now >= boundaries[#boundaries - 1])
end

-- The decisions, each a list of limits with its operation. Nothing if a limit's calendar is of another time.
local function decisions()
  local all, current, before = {}, nil, 0
  for index = 3, #ARGV do
    local kind, key, place, group, fields = match(ARGV[index], '^(%l) ([%d+]+) (%x) (%w+) (.+)$')
    if kind then
      local limit
      kind, limit = new_limit(kind, fields)
      if is_outdated(limit) then return nil end
      before = key == '+' and before + 1 or tonumber(key)
      limit.algorithm, limit.key, limit.place = algorithm_of(kind), before, kind .. place
      limit.group, limit.is_free = group, limit.cost == 0 and (limit.cost_parts or 0) == 0
      current[#current + 1] = limit
    else
      current = {operation = ARGV[index]}
      all[#all + 1] = current
    end
  end
  return all
end

-- A key is a list of slots, which it also knows by their place. A slot has `record`, the text of its state as it was
-- found, if any; `state` and `limit` once a limit has asked for it, and what it was asked by last.

local damaged = 0

local function damage(key)
  if not key.is_damaged then damaged = damaged + 1 end
  key.is_damaged = true
end

local function add(key, place, record)
  local slot = {place = place, record = record}
  key[place], key[#key + 1] = slot, slot
  return slot
end

-- Takes the records of a value apart, or says that it cannot be read.
local function parse(key, text)
  local digits = match(text, '^(%d+)1$')
  if digits then
    if not exact(digits) then return false end
    add(key, 'b0', digits .. ',0,1,0')
    return true
  end
  if sub(text, 1, 1) ~= 'a' then return false end
  local at = 2
  while at <= #text do
    local start, stop, place = find(text, '^([bcf]%x)[%d,]+;', at)
    if not start then
      local entries
      start, stop, place, entries = find(text, '^(l%x)(%d+),%d+,%d+:', at)
      if not start then return false end
      stop = stop + (exact(entries) or LAST) * ENTRY + 1
      if stop > #text or sub(text, stop, stop) ~= ';' then return false end
    end
    if key[place] then return false end
    add(key, place, sub(text, at + 2, stop - 1))
    at = stop + 1
  end
  return #key > 0
end

local function loaded(index)
  -- The short way may have read it already.
  local text = value
  value = nil
  if text == nil then text = redis.pcall('GET', KEYS[index]) end
  if text == false then return {} end
  if type(text) == 'table' then
    if not find(text.err, 'WRONGTYPE', 1, true) then return text end
    text = ''
  end
  local key = {exists = true}
  if not parse(key, text) then
    key = {exists = true, is_drained = true}
    damage(key)
  end
  return key
end

-- A limit's slot and the state in it as it was left, false if there is none; and whether that is new, since what was
-- left cannot be read.
local function found(key, limit)
  local slot = key[limit.place] or add(key, limit.place, nil)
  local state = slot.state
  if state ~= nil then return slot, state, false end
  if slot.record then
    state = limit.algorithm.decode(slot.record)
    if state then return slot, state, false end
    damage(key)
  elseif not key.is_drained then
    return slot, false, false
  end
  return slot, limit.algorithm.drained(limit), true
end

-- The state that counts: pulled back into range, and kept so unless this is a question; its slot, and whether it is as it
-- was left.
local function seen(key, limit, is_question)
  local slot, state, is_new = found(key, limit)
  local repaired = state and limit.algorithm.repair(limit, state)
  if not is_question then
    slot.state, slot.limit = repaired or state, limit
    if repaired or is_new then key.is_changed = true end
  end
  return repaired or state, slot, not (repaired or is_new)
end

-- What a slot is written as, and until when it matters; nothing if it is empty.
local function record_of(slot)
  local state, limit = slot.state, slot.limit
  if limit then
    -- A log may be empty; its first field says so.
    if not state or state[1] == 0 and byte(slot.place) == 108 then return nil end
    return limit.algorithm.encode(limit, state), limit.algorithm.kept(limit, state), state
  elseif slot.record then
    -- Another tier's: it stays for as long as it said.
    local left, kept = algorithm_of(sub(slot.place, 1, 1)).decode(slot.record)
    if left and kept + SECOND >= now then return slot.record .. ';', kept, left end
  end
end

-- A key's new value, and until when it matters; nothing if nothing is left.
local function packed(key)
  local last, records, only = 0, {}, nil
  for _, slot in ipairs(key) do
    local record, kept, state = record_of(slot)
    if record then
      records[#records + 1] = slot.place .. record
      if kept > last then last = kept end
      only = state
    end
  end
  if #records == 1 and sub(records[1], 1, 2) == 'b0' and is_plain(only) then return format('%.0f1', only[1]), last end
  if #records > 0 then return 'a' .. table.concat(records), last end
  return nil
end
