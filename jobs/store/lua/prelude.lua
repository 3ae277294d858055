-- Shared by all scripts. `move` is the one place where a state is written and its event
-- appended. Check before the first write: Redis does not roll back. The key table K, the RQ
-- facts and the limits stand in front of this text; scripts address keys through K only.
local call = redis.call

local CHUNK = 1000 -- unpack takes some thousands of values at most

local function now_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function int(n)
  return string.format('%.0f', n)
end

-- fetch: the fields of a job that checks and moves need, or nil.
local function fetch(id)
  local r = call('HMGET', K.job(id), 'state', 'prompt_id', 'org_id', 'created_by', 'kind',
    'target', 'priority', 'seq', 'attempt', 'max_attempts', 'worker_claim', 'last_token',
    'last_verb', 'started_at', 'idem', 'error_kind', 'created_at', 'supersedes', 'schema_version',
    'scheduled_for', 'depends_on')
  if not r[1] then return nil end
  return {id = id, state = r[1], prompt_id = r[2], org_id = r[3], created_by = r[4], kind = r[5],
    target = r[6], priority = tonumber(r[7]), seq = tonumber(r[8]), attempt = tonumber(r[9]),
    max_attempts = tonumber(r[10]), worker_claim = r[11], last_token = r[12], last_verb = r[13],
    started_at = tonumber(r[14] or '0'), idem = r[15], error_kind = r[16],
    created_at = tonumber(r[17]), supersedes = r[18], schema_version = tonumber(r[19] or '0'),
    scheduled_for = tonumber(r[20] or '0'), depends_on = r[21]}
end

-- audit: one row for what ended or was decided about a job.
local function audit(job, verb, detail, now)
  call('RPUSH', K.audit(job.prompt_id),
    table.concat({int(now), verb, job.id, int(job.attempt), detail}, '|'))
end

-- give_back: the first write of a script that frees memory, so that full memory lets it pass.
local function give_back()
  call('ZREM', K.running(), '')
end

local function lane_of(job)
  return job.org_id .. '|' .. job.kind .. '|' .. job.target
end

local function parts_of(lane)
  return string.match(lane, '^([^|]*)|([^|]*)|(.*)$')
end

-- place_lane: put the lane where its head and turn say, in `turns` or behind the gate that
-- shut it; a lane that is empty leaves every key. A turn is given once, when a lane fills.
local function place_lane(lane)
  local team = parts_of(lane)
  local head = call('ZRANGE', K.ready(lane), 0, 0, 'WITHSCORES')
  local gate = call('HGET', K.shut_by(), lane)
  local where = gate and K.shut(gate) or K.turns()
  if not head[1] then
    call('ZREM', where, lane)
    call('SREM', K.team_lanes(team), lane)
    if gate then
      call('HDEL', K.shut_by(), lane)
      if call('EXISTS', where) == 0 then call('SREM', K.gates(), gate) end
    end
    return
  end
  local old = call('ZSCORE', where, lane)
  local turn
  if old then
    turn = tonumber(old) % SLOT
  else
    turn = call('INCR', K.turn())
    call('SADD', K.team_lanes(team), lane)
  end
  local score = int(math.floor(tonumber(head[2]) / SLOT) * SLOT + turn)
  if score ~= old then call('ZADD', where, score, lane) end
end

-- enter_lane: a lane that others lead is placed already.
local function enter_lane(job)
  local lane = lane_of(job)
  call('ZADD', K.ready(lane), int(job.priority * SLOT + job.seq), job.id)
  if call('ZRANGE', K.ready(lane), 0, 0)[1] == job.id then place_lane(lane) end
end

-- serve_lane: after a job was taken from `lane`, the whole team goes to the end of the turn,
-- its other lanes in the order they had and this one last: each of them has its turn as well.
local function serve_lane(lane)
  local head = call('ZRANGE', K.ready(lane), 0, 0, 'WITHSCORES')
  if not head[1] then place_lane(lane) end
  local team = parts_of(lane)
  local moved = {}
  local lanes = call('SMEMBERS', K.team_lanes(team))
  for first = 1, #lanes, CHUNK do
    local part = {unpack(lanes, first, math.min(first + CHUNK - 1, #lanes))}
    if #lanes == 1 and part[1] == lane then break end
    for n, score in ipairs(call('ZMSCORE', K.turns(), unpack(part))) do
      if score and part[n] ~= lane then
        moved[#moved + 1] = {lane = part[n], score = tonumber(score)}
      end
    end
  end
  table.sort(moved, function(x, y) return x.score % SLOT < y.score % SLOT end)
  if head[1] then moved[#moved + 1] = {lane = lane, score = tonumber(head[2])} end
  local turn = call('INCRBY', K.turn(), #moved) - #moved
  for first = 1, #moved, CHUNK do
    local scores = {}
    for n = first, math.min(first + CHUNK - 1, #moved) do
      scores[#scores + 1] = int(math.floor(moved[n].score / SLOT) * SLOT + turn + n)
      scores[#scores + 1] = moved[n].lane
    end
    call('ZADD', K.turns(), unpack(scores))
  end
end

-- leave_queue: out of whichever set a queued job is in, for good.
local function leave_queue(job)
  if call('ZREM', K.scheduled(), job.id) == 1 then call('HDEL', K.job(job.id), 'run_at') end
  call('ZREM', K.blocked(), job.id)
  local lane = lane_of(job)
  if call('ZREM', K.ready(lane), job.id) == 1 then place_lane(lane) end
end

-- wait_until: into the scheduled set, or into the lane where the time has come.
local function wait_until(job, run_at, now)
  if run_at > now then
    call('ZADD', K.scheduled(), int(run_at), job.id)
  else
    enter_lane(job)
  end
end

-- room_at: how many lanes a gate could admit now; 0 means that it is shut.
local function room_at(gate)
  local org = string.match(gate, '^org_quota:(.*)$')
  local cap = org and call('HGET', K.quotas(), org)
  if not cap then return 100 end
  return math.max(0, tonumber(cap) - tonumber(call('HGET', K.running_by_org(), org) or '0'))
end

-- shut_gate: the first shut gate in front of a lane, or nil.
local function shut_gate(lane)
  local gate = 'org_quota:' .. parts_of(lane)
  if room_at(gate) == 0 then return gate end
end

local function shut_lane(lane, gate, score)
  call('ZREM', K.turns(), lane)
  call('ZADD', K.shut(gate), score, lane)
  call('HSET', K.shut_by(), lane, gate)
  call('SADD', K.gates(), gate)
end

local opened = 0 -- what this script made claimable beside its own job

-- reopen_gate: move as many lanes as have room back into the turn; answers how many.
local function reopen_gate(gate)
  local room = math.min(room_at(gate), 100)
  if room < 1 then return 0 end
  local lanes = call('ZRANGE', K.shut(gate), 0, int(room - 1), 'WITHSCORES')
  for i = 1, #lanes, 2 do
    call('ZREM', K.shut(gate), lanes[i])
    call('HDEL', K.shut_by(), lanes[i])
    call('ZADD', K.turns(), lanes[i + 1], lanes[i])
  end
  if call('EXISTS', K.shut(gate)) == 0 then call('SREM', K.gates(), gate) end
  opened = opened + #lanes / 2
  return #lanes / 2
end

-- leave_running: the slot is free again, and so is the place under the org's quota.
local function leave_running(job)
  call('ZREM', K.running(), job.id)
  if call('HINCRBY', K.running_by_org(), job.org_id, -1) <= 0 then
    call('HDEL', K.running_by_org(), job.org_id)
  end
  local gate = 'org_quota:' .. job.org_id
  if call('SISMEMBER', K.gates(), gate) == 1 then reopen_gate(gate) end
end

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
local function end_job(job, to, now, fields)
  fields[#fields + 1] = 'finished_at'
  fields[#fields + 1] = int(now)
  call('ZADD', K.ended(), int(now), job.id)
  if job.idem then call('PEXPIRE', K.idempotency(job.idem), IDEMPOTENCY_TTL_MS) end
  if call('EXISTS', K.dependents(job.id)) == 1 then call('SADD', K.released(), job.id) end
  if to == 'succeeded' then
    count(job, 'latency_ms', int(math.max(0, now - job.created_at)))
    count(job, 'latency_n', 1)
  end
  if to == 'failed' then
    count(job, 'kind:' .. job.error_kind, 1)
    note_mirror(job.id)
  end
end

-- move: write the new state, number the event, tell the org's stream and the job's history.
-- `fields` are further fields of the record as name, value, name, value.
local function move(job, to, verb, now, reason, fields)
  local from = job.state
  local seq = int(call('INCR', K.seq()))
  if not job.seq then -- the submit: its number is the job's place for good
    job.seq = tonumber(seq)
    fields[#fields + 1] = 'seq'
    fields[#fields + 1] = seq
  end
  if ENDED[to] then
    count(job, to, 1)
    if ENDED[from] then count(job, from, -1) else end_job(job, to, now, fields) end
  end
  call('HSET', K.job(job.id), 'state', to, 'updated_at', int(now), unpack(fields))
  local events = K.events(job.org_id)
  local told = {'job_id', job.id, 'prompt_id', job.prompt_id, 'user', job.created_by, 'state', to,
    'from', from or '', 'verb', verb, 'attempt', int(job.attempt), 'at', int(now), 'reason', reason}
  if call('PEXPIRE', events, EVENTS_TTL_MS) == 0 then
    -- A new stream: who has seen the event before it misses nothing that expired.
    told[#told + 1] = 'prev'
    told[#told + 1] = call('ZRANGE', K.changed(job.org_id), 0, 0, 'REV', 'WITHSCORES')[2] or '0'
  end
  call('XADD', events, 'MAXLEN', '~', EVENTS_KEPT, seq .. '-0', unpack(told))
  if told[19] then call('PEXPIRE', events, EVENTS_TTL_MS) end
  call('ZADD', K.changed(job.org_id), seq, job.id)
  if from then -- the record itself tells of its submit
    call('RPUSH', K.history(job.id), table.concat({seq, int(now), verb, from, to,
      int(job.attempt), reason}, '|'))
  end
  job.state = to
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

-- settled: the answer of a verb that ended a job: a ticket may be wanted for what that opened.
local function settled(cap, now)
  release_some(20, now)
  if opened == 0 then return {'OK', 0} end
  return {'OK', ticket_wanted(cap)}
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

-- requeue: a running attempt goes back to the queue, to run at `run_at`.
local function requeue(job, verb, run_at, now, reason, fields)
  call('HDEL', K.job(job.id), 'worker_claim', 'claimed_at', 'started_at', 'running_heartbeat_at')
  if run_at > now then
    fields[#fields + 1] = 'run_at'
    fields[#fields + 1] = int(run_at)
  end
  fields[#fields + 1] = 'attempt'
  fields[#fields + 1] = int(job.attempt)
  move(job, 'queued', verb, now, reason, fields)
  wait_until(job, run_at, now)
end
