-- repair: look over some of the stored jobs and put right what no script would have left: a live
-- job that is in no set, a count that says something else than the records (A8).
-- ARGV: limit window_ms ticket_cap
-- Returns {looked_at, mended, dangling, wanted, ended}; ended is 1 where a whole round is done.
-- It goes on where the last call stopped, org by org, so that each call is bounded.
local now = now_ms()
give_back()
local at = call('HMGET', K.repair_at(), 'org', 'seq')
local org, after = at[1], at[2]
if not org then
  org = call('ZRANGE', K.orgs(), 0, 0)[1]
  after = '0'
end
if not org then return {0, 0, 0, 0, 1} end

local function is_anywhere(job)
  return call('ZSCORE', K.ready(lane_of(job)), job.id) or call('ZSCORE', K.scheduled(), job.id)
    or call('ZSCORE', K.blocked(), job.id)
end

local mended, dangling = 0, 0
local rows = call('ZRANGEBYSCORE', K.changed(org), '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0,
  limit)
for i = 1, #rows, 2 do
  local job = fetch(rows[i])
  after = rows[i + 1]
  if not job then
    call('ZREM', K.changed(org), rows[i])
    call('ZREM', K.ended(), rows[i])
    dangling = dangling + 1
  elseif job.state == 'queued' and not is_anywhere(job) then
    local waits, awaited
    if job.depends_on then waits, awaited = outcome_of(job.depends_on) end
    if waits and waits ~= 'succeeded' then
      call('ZADD', K.blocked(), int(job.seq), job.id)
      call('SADD', K.dependents(awaited), job.id)
      if ENDED[waits] then call('SADD', K.released(), awaited) end
    else
      wait_until(job, tonumber(call('HGET', K.job(job.id), 'run_at') or '0'), now)
      opened = opened + 1
    end
    mended = mended + 1
  elseif job.state == 'running' and not call('ZSCORE', K.running(), job.id) then
    call('ZADD', K.running(), int(now + tonumber(window_ms)), job.id)
    mended = mended + 1
  end
end
local done = 0
if #rows < 2 * tonumber(limit) then
  org = call('ZRANGEBYLEX', K.orgs(), '(' .. org, '+', 'LIMIT', 0, 1)[1]
  after = '0'
  if not org then done = 1 end
end
if org then
  call('HSET', K.repair_at(), 'org', org, 'seq', after)
else
  call('DEL', K.repair_at())
end
return {#rows / 2, mended, dangling, opened > 0 and ticket_wanted(ticket_cap) or 0, done}
