-- settle_delivery: how a try ended. Only the holder of the lease may say so.
-- ARGV: id token outcome after_ms pause_ms counts entry took_ms body
-- `outcome` is pending (due again after_ms, at the latest when it is given up), or how it ended.
-- `pause_ms` is for how long nothing more goes to its hook, which failed; 0 where that is well; ''
-- where nobody knows. `counts` is 1 where this was one of the tries that there are, else 0. `entry`
-- is a status or an error; `body` what was posted, '' for none.
-- What was replayed since it was taken is due now, unless it is delivered.
-- Returns {OK|MISSING|LEASE_LOST, due_at, now}, due_at as in take_deliveries; OK also where it is
-- repeated.
local now = now_ms()

local function reply(word)
  local due = next_delivery()
  return {word, due and int(due) or '', int(now)}
end

local r = call('HMGET', K.delivery(id), 'lease', 'last_token', 'kind', 'gives_up_at', 'replayed_at',
  'hook', 'receiver', 'origin')
if not r[3] then return reply('MISSING') end
if r[2] == token then return reply('OK') end
if r[1] ~= token then return reply('LEASE_LOST') end
give_back()
local kind, gives_up_at, places = r[3], tonumber(r[4]), {r[6], r[7], r[8]}
local is_replayed = r[5] and outcome ~= 'delivered'
for _, name in ipairs(places) do call('ZREM', K.posting(name), id) end
if body ~= '' then call('SET', K.delivery_body(id), body) end
call('LPUSH', K.delivery_log(id), table.concat({int(now), entry, took_ms}, '|'))
call('LTRIM', K.delivery_log(id), 0, DELIVERY_LOG_KEPT - 1)
call('HSET', K.delivery(id), 'last_token', token)
call('HDEL', K.delivery(id), 'lease', 'replayed_at')
call('HINCRBY', K.delivery(id), 'tries', 1)
if not is_replayed then call('HINCRBY', K.delivery(id), 'step', counts) end
if pause_ms ~= '' then
  local pause = tonumber(pause_ms)
  note_health(places[1], places[2], pause, now)
  if is_replayed and pause > 0 then
    for level = 1, 2 do call('HDEL', K.health(places[level]), 'paused_until') end
  end
end
if is_replayed or outcome == 'pending' then
  local due = is_replayed and now or math.min(now + tonumber(after_ms), gives_up_at)
  local _, kept = bounds_of(kind)
  call('ZADD', K.hook(places[1]), int(due), id)
  call('HSET', K.delivery(id), 'due_at', int(due))
  call('HINCRBY', K.delivery_stats(), kind .. ':retried', 1)
  keep_delivery(id, math.max(0, gives_up_at - now) + kept)
else
  end_delivery(id, kind, places[1], outcome, now)
end
place_path(places, now)
return reply('OK')
