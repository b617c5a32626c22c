-- The usual token bucket on Redis: a hash of fractional tokens and the time of the last refill, on the caller's clock.
-- KEYS[1]; ARGV: capacity, tokens per second, cost, now in ms.
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill')
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local cost, now = tonumber(ARGV[3]), tonumber(ARGV[4])
local tokens, last_refill = tonumber(bucket[1]), tonumber(bucket[2])
if not tokens then tokens, last_refill = capacity, now end
local elapsed = math.max(0, now - last_refill)
tokens = math.min(capacity, tokens + elapsed * rate / 1000)
local allowed = 0
if tokens >= cost then
  allowed = 1
  tokens = tokens - cost
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'last_refill', now)
redis.call('EXPIRE', KEYS[1], math.floor(capacity / rate))
return {allowed, tokens}
