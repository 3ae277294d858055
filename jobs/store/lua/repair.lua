-- repair: look over some of the stored jobs and put right what no script would have left: a live
-- job that is in no set, an id that names none (A8).
-- ARGV: limit window_ms ticket_cap
-- Returns {looked_at, mended, dangling, wanted, ended}; ended is 1 where a whole round is done.
-- It goes on where the last call stopped and looks at `limit` jobs, over as many orgs as that
-- takes (100 at most), so that many small orgs take no longer than one large one.
local ORGS = 100
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
local function look_at(id)
  local job = fetch(id)
  if not job then
    call('ZREM', K.changed(org), id)
    call('ZREM', K.ended(), id)
    dangling = dangling + 1
  elseif job.state == 'queued' and not is_anywhere(job) then
    local waits, awaited
    if job.depends_on then waits, awaited = outcome_of(job.depends_on) end
    if waits and waits ~= 'succeeded' then
      call('ZADD', K.blocked(), int(job.seq), id)
      call('SADD', K.dependents(awaited), id)
      if ENDED[waits] then call('SADD', K.released(), awaited) end
    else
      wait_until(job, tonumber(call('HGET', K.job(id), 'run_at') or '0'), now)
      opened = opened + 1
    end
    mended = mended + 1
  elseif job.state == 'queued' and job.expires_at then
    mended = mended + call('ZADD', K.expiring(), 'NX', int(job.expires_at), id)
  elseif ENDED[job.state] and job.kind == 'generation' and job.reserved > 0 then
    -- Ended by a worker that knew no generations: what that brings with it was not done.
    end_generation(job, job.state, now, false)
    mended = mended + 1
  elseif ENDED[job.state] and is_turn(job) then
    local request = request_of(job)
    local r = call('HMGET', K.request(request), 'job', 'ended_at')
    if r[1] == id and not r[2] then -- as above
      end_turn(job, job.state, now)
      mended = mended + 1
    end
  elseif job.state == 'running' and not call('ZSCORE', K.running(), id) then
    call('ZADD', K.running(), int(now + tonumber(window_ms)), id)
    mended = mended + 1
  end
end

local looked = 0
for _ = 1, ORGS do
  local left = tonumber(limit) - looked
  local rows = call('ZRANGEBYSCORE', K.changed(org), '(' .. after, '+inf', 'WITHSCORES', 'LIMIT',
    0, int(left))
  for i = 1, #rows, 2 do
    look_at(rows[i])
    after = rows[i + 1]
  end
  looked = looked + #rows / 2
  if looked == tonumber(limit) then break end
  org = call('ZRANGEBYLEX', K.orgs(), '(' .. org, '+', 'LIMIT', 0, 1)[1]
  after = '0'
  if not org then break end
end
if org then
  call('HSET', K.repair_at(), 'org', org, 'seq', after)
else
  call('DEL', K.repair_at())
end
return {looked, mended, dangling, opened > 0 and ticket_wanted(ticket_cap) or 0, org and 0 or 1}
