-- reclaim: attempts whose lease ended go back to the queue or fail as stuck (A8, A12).
-- ARGV: window_ms interval_ms ceiling_ms limit ticket_cap
-- Returns {word, requeued, failed, wanted, since_ms, dangling, ids}: SWEPT with the first ids of
-- jobs that failed, or RENEWED where the sweep before was not when it should have been (Redis was away, the clock stepped): then nothing is taken
-- and every lease gets another window. since_ms is the time since that sweep, '' for none.
local SLACK_MS = 30000
local now = now_ms()
local swept = tonumber(call('GET', K.swept_at()) or '')
local since = swept and int(now - swept) or ''
local off = swept and now - swept - tonumber(interval_ms)
give_back()
-- Where sweeps are further apart than the slack, one that comes early is no stepped clock.
if not swept or off > SLACK_MS or (off < -SLACK_MS and now < swept) then
  local running = call('ZRANGE', K.running(), 0, -1)
  for _, id in ipairs(running) do
    call('ZADD', K.running(), int(now + tonumber(window_ms)), id)
  end
  call('SET', K.swept_at(), int(now))
  return {'RENEWED', 0, 0, ticket_wanted(ticket_cap), since, 0, {}}
end
local requeued, failed, dangling = 0, 0, 0
local failed_ids = {}
local ended = call('ZRANGEBYSCORE', K.running(), '-inf', int(now), 'LIMIT', 0, limit)
for _, id in ipairs(ended) do
  local job = fetch(id)
  if not job or job.state ~= 'running' then
    call('ZREM', K.running(), id)
    dangling = dangling + 1
  else
    leave_running(job, now)
    local fields = {'last_token', job.worker_claim, 'last_verb', 'reclaim'}
    local endless = is_turn(job)
    local young = now - job.started_at < tonumber(ceiling_ms)
    if endless or (job.attempt < job.max_attempts and young) then
      if endless then
        count_death(job)
      else
        job.attempt = job.attempt + 1
      end
      note_error(job, 'worker_crash', 'the worker stopped renewing its lease', fields)
      requeue(job, 'reclaim', now, now, 'worker_crash', fields)
      requeued = requeued + 1
    else
      note_error(job, 'stuck', 'the last attempt stopped renewing its lease', fields)
      job.ending = {code = 'deadline_exceeded',
        message = 'Generating was interrupted. Run the step again.'}
      if #failed_ids < 100 then failed_ids[#failed_ids + 1] = id end
      audit(job, 'reclaim', 'stuck', now)
      move(job, 'failed', 'reclaim', now, 'worker_crash', fields)
      failed = failed + 1
    end
  end
end
if dangling > 0 then -- whose org is not known any more: count anew
  call('DEL', K.running_by_org())
  for _, id in ipairs(call('ZRANGE', K.running(), 0, -1)) do
    local org = call('HGET', K.job(id), 'org_id')
    if org then call('HINCRBY', K.running_by_org(), org, 1) end
  end
end
release_some(20, now)
call('SET', K.swept_at(), int(now))
return {'SWEPT', requeued, failed, ticket_wanted(ticket_cap), since, dangling, failed_ids}
