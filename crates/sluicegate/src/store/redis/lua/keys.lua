-- Parses the limits in the arguments, and reads and writes keys with all their states.

local function algorithm_of(kind)
  local algorithm = algorithms[kind]
  if not algorithm then
    algorithm = makers[kind]()
    algorithms[kind] = algorithm
  end
  return algorithm
end

-- A bucket with a state that is shared with other numbers accepts any TAT that a bucket can set.
local function new_bucket(limit, is_shared)
  local full, parts = limit.fill + (limit.earning or 0), limit.fill_parts + (limit.earning_parts or 0)
  if parts > limit.n then full, parts = full + 1, parts - limit.n end
  if parts > 0 then full = full + 1 end
  limit.tolerance = is_shared and TEN_YEARS or ahead(full)
  return 'b', limit
end

local function new_limit(kind, fields)
  if kind == 'w' or kind == 's' then
    local cost, fill = match(fields, '^(%d+) (%d+)$')
    local limit = {n = 1, cost = tonumber(cost), cost_parts = 0, fill = tonumber(fill), fill_parts = 0}
    return new_bucket(limit, kind == 's')
  end
  local a, b, c, d, e, more = match(fields, '^(%d+) (%d+) (%d+) ?(%d*) ?(%d*) ?(.*)$')
  if kind == 'b' or kind == 't' or kind == 'k' then
    local earning, earning_parts, ttl = match(more, '^(%d+) (%d+) (%d+)$')
    local limit = {
      n = tonumber(a), cost = tonumber(b), cost_parts = tonumber(c), fill = tonumber(d), fill_parts = tonumber(e),
      earning = tonumber(earning), earning_parts = tonumber(earning_parts), ttl = tonumber(ttl),
    }
    return new_bucket(limit, kind == 't')
  elseif kind == 'c' then
    return 'c', {cost = tonumber(a), limit = tonumber(b), millis = tonumber(c), window = c * 1000}
  elseif kind == 'm' then
    local boundaries = {tonumber(c), tonumber(d), tonumber(e)}
    for each in string.gmatch(more, '%d+') do boundaries[#boundaries + 1] = tonumber(each) end
    return 'f', {cost = tonumber(a), limit = tonumber(b), boundaries = boundaries, phase = 0}
  end
  return kind, {cost = tonumber(a), limit = tonumber(b), window = tonumber(c), phase = tonumber(d)}
end

-- True if the boundaries do not cover the window that now lies in and the next one.
local function is_outdated(limit)
  local boundaries = limit.boundaries
  return boundaries and (now < boundaries[1] or now >= boundaries[#boundaries - 1])
end

-- The decisions, each a list of limits with its operation. Nothing if a limit's calendar boundaries do not cover
-- now.
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

-- A key is a list of entries, also indexed by place. An entry has `record`, the stored text of its state, if any.
-- Once a limit uses it, it has `state` and `limit`, the limit that used it last.

local damaged = 0

local function damage(key)
  if not key.is_damaged then damaged = damaged + 1 end
  key.is_damaged = true
end

local function add(key, place, record)
  local entry = {place = place, record = record}
  key[place], key[#key + 1] = entry, entry
  return entry
end

-- Splits a value into records, or reports that it is unreadable.
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
  -- The fast path may have read the key already.
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

-- A limit's entry, its stored state (false if there is none), and whether that state is new because the stored one
-- is unreadable.
local function found(key, limit)
  local entry = key[limit.place] or add(key, limit.place, nil)
  local state = entry.state
  if state ~= nil then return entry, state, false end
  if entry.record then
    state = limit.algorithm.decode(entry.record)
    if state then return entry, state, false end
    damage(key)
  elseif not key.is_drained then
    return entry, false, false
  end
  return entry, limit.algorithm.drained(limit), true
end

-- The state in effect, pulled back into range. That correction is kept unless this is a peek. Also returns the
-- entry, and whether the state is as it was stored.
local function seen(key, limit, is_question)
  local entry, state, is_new = found(key, limit)
  local repaired = state and limit.algorithm.repair(limit, state)
  if not is_question then
    entry.state, entry.limit = repaired or state, limit
    if repaired or is_new then key.is_changed = true end
  end
  return repaired or state, entry, not (repaired or is_new)
end

-- The record of an entry, and until when it matters; nothing if it is empty.
local function record_of(entry)
  local state, limit = entry.state, entry.limit
  if limit then
    -- A log may be empty; its first field is 0 then.
    if not state or state[1] == 0 and byte(entry.place) == 108 then return nil end
    return limit.algorithm.encode(limit, state), limit.algorithm.kept(limit, state), state
  elseif entry.record then
    -- The state of another tier: it stays for as long as its record specifies.
    local left, kept = algorithm_of(sub(entry.place, 1, 1)).decode(entry.record)
    if left and kept + SECOND >= now then return entry.record .. ';', kept, left end
  end
end

-- A key's new value, and until when it matters; nothing if no state is left.
local function packed(key)
  local last, records, only = 0, {}, nil
  for _, entry in ipairs(key) do
    local record, kept, state = record_of(entry)
    if record then
      records[#records + 1] = entry.place .. record
      if kept > last then last = kept end
      only = state
    end
  end
  if #records == 1 and sub(records[1], 1, 2) == 'b0' and is_plain(only) then return format('%.0f1', only[1]), last end
  if #records > 0 then return 'a' .. table.concat(records), last end
  return nil
end
