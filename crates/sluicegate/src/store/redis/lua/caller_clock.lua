-- Precedes the script where the caller's clock counts instead of the server's: for tests and simulations only. The
-- last argument is the time in µs. Expiries count from the year 2200 instead of the server's time.
local ARGV = {unpack(ARGV)}
local given, server, redis = tonumber(table.remove(ARGV)), redis, {pcall = redis.pcall, error_reply = redis.error_reply}
function redis.call(command, ...)
  if command == 'TIME' then
    local micros = math.fmod(given, 1000000)
    return {string.format('%.0f', (given - micros) / 1000000), string.format('%.0f', micros)}
  elseif command == 'SET' then
    local key, value, _, expiry = ...
    return server.call('SET', key, value, 'PXAT', string.format('%.0f', 7258118400000 + tonumber(expiry)))
  end
  return server.call(command, ...)
end
