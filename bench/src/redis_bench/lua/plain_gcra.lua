-- A token bucket as one theoretical arrival time, exact and written for clarity: the usual first version.
-- KEYS[1]; ARGV: cost µs, cost parts, parts per µs, full µs, full parts, deadline µs, slack ms.
-- Replies: 1 allowed, 0 denied, 3 late, 4 unreadable; then the arrival time, its parts and now, as strings.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local cost, cost_parts, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full, full_parts = tonumber(ARGV[4]), tonumber(ARGV[5])
local function text(number) return string.format('%.0f', number) end
if now > tonumber(ARGV[6]) then return {3, '0', '0', text(now)} end
local tat, parts = now, 0
local last = now + full
local state = redis.call('GET', KEYS[1])
if state then
  local a, b, c = string.match(state, '^(%d+) (%d+) (%d+)$')
  if not a then return {4, '0', '0', text(now)} end
  tat, parts = tonumber(a), tonumber(b)
  if tonumber(c) ~= n then
    if parts > 0 then tat = tat + 1 end
    parts = 0
  end
  if tat < now then tat, parts = now, 0 end
  if tat > last or (tat == last and parts > full_parts) then tat, parts = last, full_parts end
end
local new, new_parts = tat + cost, parts + cost_parts
if new_parts >= n then new, new_parts = new + 1, new_parts - n end
if new < last or (new == last and new_parts <= full_parts) then
  local lives = text(math.floor((new - now) / 1000) + 1 + tonumber(ARGV[7]))
  redis.call('SET', KEYS[1], text(new) .. ' ' .. text(new_parts) .. ' ' .. text(n), 'PX', lives)
  return {1, text(new), text(new_parts), text(now)}
end
return {0, text(tat), text(parts), text(now)}
