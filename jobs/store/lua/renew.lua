-- renew: the heartbeat of running attempts (A7); `held` is id, token, id, token.
-- ARGV: window_ms held*
-- Returns the ids whose lease the token no longer holds, each followed by the job's state
-- ('' where it is gone); those that it holds are leased for another window.
local now = now_ms()
local lost = {}
give_back()
for i = 1, #held, 2 do
  local id, token = held[i], held[i + 1]
  local r = call('HMGET', K.job(id), 'state', 'worker_claim')
  if r[1] == 'running' and r[2] == token then
    call('ZADD', K.running(), 'XX', int(now + tonumber(window_ms)), id)
    call('HSET', K.job(id), 'running_heartbeat_at', int(now))
  else
    lost[#lost + 1] = id
    lost[#lost + 1] = r[1] or ''
  end
end
return lost
