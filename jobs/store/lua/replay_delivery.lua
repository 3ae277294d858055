-- replay_delivery: send it again at once, with the same id and body, for a fresh day of tries.
-- ARGV: id owner user
-- Returns OK, MISSING (also where it is another's), or FINAL for a wake that ended.
-- One that is in flight stays with who posts it; where that fails, it is sent again at once.
local r = call('HMGET', K.delivery(id), 'owner', 'user', 'kind', 'hook', 'receiver', 'origin',
  'ended_at')
if r[1] ~= owner or r[2] ~= user then return 'MISSING' end
local kind, places = r[3], {r[4], r[5], r[6]}
if kind == 'wake' and r[7] then return 'FINAL' end
local now = now_ms()
local tried, kept = bounds_of(kind)
local flies_until = tonumber(call('ZSCORE', K.posting(places[1]), id) or '0')
call('HSET', K.delivery(id), 'state', 'pending', 'step', '0', 'gives_up_at', int(now + tried))
call('HDEL', K.delivery(id), 'ended_at')
if r[7] then call('HINCRBY', K.delivery_stats(), kind .. ':pending', 1) end
if flies_until > now then
  call('HSET', K.delivery(id), 'replayed_at', int(now))
else
  call('HSET', K.delivery(id), 'due_at', int(now))
  call('HDEL', K.delivery(id), 'lease')
  call('ZADD', K.hook(places[1]), int(now), id)
end
keep_delivery(id, tried + kept)
for _, key in ipairs({K.deliveries(owner .. '|' .. user), K.all_deliveries()}) do
  call('PEXPIRE', key, int(DELIVERY_TRIED_MS + DELIVERY_TTL_MS))
end
call('HDEL', K.health(places[1]), 'paused_until')
call('HDEL', K.health(places[2]), 'paused_until')
place_path(places, now)
return 'OK'
