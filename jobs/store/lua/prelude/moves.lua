local ENDED = {succeeded = true, failed = true, cancelled = true, superseded = true}

local function count(job, field, by)
  call('HINCRBY', K.stats(job.org_id), field, by)
end

-- note_mirror: the copy of this job at RQ is to be looked at; the newest count.
local function note_mirror(id)
  call('LPUSH', K.mirror(), id)
  call('LTRIM', K.mirror(), 0, MIRROR_KEPT - 1)
end

-- end_job: what the first terminal state of a job brings with it.
local function end_job(job, to, now, fields, was_called)
  fields[#fields + 1] = 'finished_at'
  fields[#fields + 1] = int(now)
  call('ZADD', K.ended(), int(now), job.id)
  -- A chat turn that goes on has not ended for who sent it.
  local goes_on = job.turn and job.turn.id
  if job.idem and not goes_on then
    call('PEXPIRE', K.idempotency(job.idem), IDEMPOTENCY_TTL_MS)
  end
  if call('EXISTS', K.dependents(job.id)) == 1 then call('SADD', K.released(), job.id) end
  if to == 'succeeded' then
    count(job, 'latency_ms', int(math.max(0, now - job.created_at)))
    count(job, 'latency_n', 1)
  end
  if to == 'failed' then count(job, 'kind:' .. job.error_kind, 1) end
  if job.kind == 'generation' then
    end_generation(job, to, now, was_called)
  elseif job.kind == 'step' then
    end_step(job, to, now)
  elseif is_turn(job) then
    end_turn(job, to, now)
  elseif to == 'failed' then
    note_mirror(job.id)
  end
end

-- move: write the new state, number the event, tell the org's stream and the job's history.
-- `fields` are further fields of the record as name, value, name, value.
local function move(job, to, verb, now, reason, fields)
  local from = job.state
  if ENDED[to] then
    count(job, to, 1)
    if ENDED[from] then
      count(job, from, -1)
    else
      end_job(job, to, now, fields, from == 'running' and verb ~= 'expire')
    end
  end
  local seq = int(call('INCR', K.seq())) -- after those of what ends with it
  if not job.seq then -- the submit: its number is the job's place for good
    job.seq = tonumber(seq)
    fields[#fields + 1] = 'seq'
    fields[#fields + 1] = seq
  end
  call('HSET', K.job(job.id), 'state', to, 'updated_at', int(now), unpack(fields))
  tell(job.org_id, seq, {'job_id', job.id, 'prompt_id', job.prompt_id, 'user', job.created_by,
    'state', to, 'from', from or '', 'verb', verb, 'attempt', int(job.attempt), 'at', int(now),
    'reason', reason})
  call('ZADD', K.changed(job.org_id), seq, job.id)
  if from then -- the record itself tells of its submit
    call('RPUSH', K.history(job.id), table.concat({seq, int(now), verb, from, to,
      int(job.attempt), reason}, '|'))
  end
  job.state = to
end

-- new_record: the fields that every job is stored with; its submit is the move that writes them.
local function new_record(job, max_attempts, schema_version)
  local fields = {'prompt_id', job.prompt_id, 'kind', job.kind, 'target', job.target, 'priority',
    int(job.priority), 'attempt', '1', 'max_attempts', max_attempts, 'org_id', job.org_id,
    'created_by', job.created_by, 'created_at', int(job.created_at), 'schema_version',
    schema_version}
  local function field(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if job.team_id then field('team_id', job.team_id) end
  if job.second_target then field('second_target', job.second_target) end
  count(job, 'submitted', 1)
  return fields, field
end

-- guard: may the holder of `token` apply `verb`? Answers the job, or nil and a word. A verb
-- that already ended the attempt under this token answers OK, since a reply may get lost.
local function guard(id, token, verb)
  local job = fetch(id)
  if not job then return nil, 'MISSING' end
  if job.last_token == token and job.last_verb == verb then return nil, 'OK' end
  if job.state ~= 'running' then return nil, 'WRONG_STATE' end
  if job.worker_claim ~= token then return nil, 'LEASE_LOST' end
  return job
end

local function note_error(job, kind, message, fields)
  job.error_kind = kind
  fields[#fields + 1] = 'error_kind'
  fields[#fields + 1] = kind
  call('SET', K.error(job.id), message)
end

-- expire: fail a queued job that may never run: two moves, two events, no attempt counted.
local function expire(job, kind, message, now)
  leave_queue(job)
  move(job, 'running', 'expire', now, kind, {'claimed_at', int(now)})
  local fields = {'last_verb', 'expire'}
  note_error(job, kind, message, fields)
  audit(job, 'expire', kind, now)
  move(job, 'failed', 'expire', now, kind, fields)
end

-- outcome_of: how the job that `id` names now stands, after all that replaced it.
local function outcome_of(id)
  for _ = 1, 100 do
    local r = call('HMGET', K.job(id), 'state', 'superseded_by', 'org_id')
    if r[1] ~= 'superseded' or not r[2] then return r[1], id, r[3] end
    id = r[2]
  end
end

-- release: what waited for `id` goes on, or fails as blocked where that did not succeed;
-- answers how many of at most `limit` did. A job that replaced it is waited for instead.
local function release(id, limit, now)
  local state, current = outcome_of(id)
  local dependents = call('SRANDMEMBER', K.dependents(id), limit)
  for _, waiting in ipairs(dependents) do
    call('SREM', K.dependents(id), waiting)
    local job = fetch(waiting)
    if job and job.state == 'queued' then
      if state == 'succeeded' then
        call('ZREM', K.blocked(), waiting)
        if job.scheduled_for > now then
          call('HSET', K.job(waiting), 'run_at', int(job.scheduled_for))
        end
        wait_until(job, job.scheduled_for, now)
        opened = opened + 1
      elseif state and not ENDED[state] then
        call('SADD', K.dependents(current), waiting)
      else
        expire(job, 'blocked', 'the job that it depends on did not succeed', now)
      end
    end
  end
  if call('EXISTS', K.dependents(id)) == 0 then call('SREM', K.released(), id) end
  return #dependents
end

-- release_some: work off ended jobs that others wait for; answers how many went on.
local function release_some(limit, now)
  local done = 0
  for _, id in ipairs(call('SRANDMEMBER', K.released(), limit)) do
    done = done + release(id, limit, now)
  end
  return done
end

-- ticket_wanted: 1 where the list is shorter than min(claimable jobs, cap), else 0.
local function ticket_wanted(cap)
  local waiting = call('LLEN', RQ.queue)
  if waiting >= tonumber(cap) then return 0 end
  local claimable = 0
  for _, lane in ipairs(call('ZRANGE', K.turns(), 0, waiting)) do
    claimable = claimable + call('ZCARD', K.ready(lane))
    if claimable > waiting then return 1 end
  end
  return 0
end

-- repeated: the answer where nothing was done; a verb whose reply got lost may want a ticket.
local function repeated(word, cap)
  return {word, word == 'OK' and ticket_wanted(cap) or 0}
end

-- settled: the answer of a verb that ended a job: a ticket may be wanted for what that opened, and
-- one for deliveries where there are some more; and the chains that ended with it.
local function settled(cap, now)
  release_some(20, now)
  return {'OK', opened > 0 and ticket_wanted(cap) or 0, posts_added, ended_chains}
end

-- promote_due: jobs whose run_at has come enter their lanes; answers how many did.
local function promote_due(now, limit)
  local due = call('ZRANGEBYSCORE', K.scheduled(), '-inf', int(now), 'LIMIT', 0, limit)
  for _, id in ipairs(due) do
    call('ZREM', K.scheduled(), id)
    local job = fetch(id)
    if job and job.state == 'queued' then
      call('HDEL', K.job(id), 'run_at')
      enter_lane(job)
    end
  end
  return #due
end

-- expire_late: nobody can collect it any more. What has run before did not go for nothing.
local function expire_late(job, now)
  if job.kind == 'escalation' then
    job.turn = {note = 'the deadline passed before the next attempt could run'}
  elseif call('EXISTS', K.history(job.id)) == 1 then
    job.ending = {code = 'deadline_exceeded'}
  end
  expire(job, 'timeout', 'nothing could run it while somebody waited for it', now)
end

-- expire_some: queued work that nobody can collect any more ends (B11); answers how much did.
local function expire_some(now, limit)
  local late = call('ZRANGEBYSCORE', K.expiring(), '-inf', int(now), 'LIMIT', 0, limit)
  for _, id in ipairs(late) do
    local job = fetch(id)
    if job and job.state == 'queued' then
      expire_late(job, now)
    else
      call('ZREM', K.expiring(), id)
    end
  end
  return #late
end

-- requeue: a running attempt goes back to the queue, to run at `run_at`.
local function requeue(job, verb, run_at, now, reason, fields)
  if job.kind == 'step' and is_woken(job.id) then run_at = now end
  call('HDEL', K.job(job.id), 'worker_claim', 'claimed_at', 'started_at', 'running_heartbeat_at')
  if run_at > now then
    fields[#fields + 1] = 'run_at'
    fields[#fields + 1] = int(run_at)
  end
  fields[#fields + 1] = 'attempt'
  fields[#fields + 1] = int(job.attempt)
  move(job, 'queued', verb, now, reason, fields)
  if job.expires_at then call('ZADD', K.expiring(), int(job.expires_at), job.id) end
  wait_until(job, run_at, now)
end

-- go_on: the job of the next background attempt of a chain, under an id of its maker (C20).
local function go_on(job, now)
  local turn, request = job.turn, request_of(job)
  local next_job = {id = turn.id, prompt_id = job.prompt_id, org_id = job.org_id,
    created_by = job.created_by, kind = 'escalation', target = job.target,
    priority = turn.priority, attempt = 1, created_at = now, team_id = job.team_id}
  call('RPUSH', K.replaced(job.prompt_id), job.id)
  call('HSET', K.prompt(job.prompt_id), 'job_id', turn.id)
  call('HSET', K.request(request), 'job', turn.id, 'runs', '0', 'status', 'queued')
  call('HDEL', K.request(request), 'deaths')
  local fields, field = new_record(next_job, '1', turn.schema_version)
  field('root_id', request)
  local deadline_at = call('HGET', K.request(request), 'deadline_at')
  if deadline_at then
    field('expires_at', deadline_at)
    call('ZADD', K.expiring(), deadline_at, turn.id)
  end
  local run_at = now + turn.after_ms
  if run_at > now then field('run_at', int(run_at)) end
  move(next_job, 'queued', 'submit', now, '', fields)
  wait_until(next_job, run_at, now)
  opened = opened + 1
end
