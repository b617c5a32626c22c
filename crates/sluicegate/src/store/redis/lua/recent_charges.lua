-- The recent charges of a token bucket, which the exact release of a reservation needs.
--
-- A TAT alone does not show whether the bucket would have been full in between without one of its charges. So from a
-- reservation until two seconds after the last one, the state also lists the charges of the last two seconds. A list
-- has the state before them (`tat`, `parts`, and until when it was `known`, 0 without history), its start `since`,
-- the time of the last reservation `reserved`, and entries {at, micros, parts} with the time and the cost of a
-- charge.

-- How long a charge is listed, and how many are. A reservation is released within its rule's deadline plus a second.
local RECENT, RECENT_MAX = 2 * SECOND, 32

-- Halves a full list: each pair becomes one entry at the later of the two times, which is the stricter side. A
-- nearly full bucket may then treat charges as later than they were, by at most two seconds.
local function make_room(recent, plus)
  if #recent < RECENT_MAX then return end
  for index = 1, RECENT_MAX / 2 do
    local one, other = recent[2 * index - 1], recent[2 * index]
    local micros, parts = plus(one[2], one[3], other[2], other[3])
    recent[index] = {other[1], micros, parts}
  end
  for index = RECENT_MAX, RECENT_MAX / 2 + 1, -1 do recent[index] = nil end
end

local function encode_recent(recent)
  local since, words = recent.since, {}
  for index, each in ipairs(recent) do words[index] = format(',%.0f,%.0f,%.0f', each[1] - since, each[2], each[3]) end
  local head = format(',%.0f,%.0f,%.0f,%.0f,', recent.tat, recent.parts, recent.known, since)
  return head .. format('%.0f', recent.reserved - since) .. table.concat(words)
end

local function decode_recent(text)
  local numbers = {}
  for digits in string.gmatch(text, ',(%d+)') do
    local number = exact(digits)
    if not number then return nil end
    numbers[#numbers + 1] = number
  end
  if #numbers < 5 or fmod(#numbers, 3) ~= 2 then return nil end
  local since = numbers[4]
  local recent = {
    tat = numbers[1], parts = numbers[2], known = numbers[3], since = since, reserved = since + numbers[5],
  }
  for index = 6, #numbers, 3 do
    recent[#recent + 1] = {since + numbers[index], numbers[index + 1], numbers[index + 2]}
  end
  return recent
end

