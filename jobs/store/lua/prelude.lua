-- Shared by all scripts. `move` is the one place where a state is written and its event
-- appended. Check before the first write: Redis does not roll back. The key table K, the RQ
-- facts and the limits stand in front of this text; scripts address keys through K only.
local call = redis.call

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
    'last_verb', 'started_at', 'idem')
  if not r[1] then return nil end
  return {id = id, state = r[1], prompt_id = r[2], org_id = r[3], created_by = r[4], kind = r[5],
    target = r[6], priority = tonumber(r[7]), seq = tonumber(r[8]), attempt = tonumber(r[9]),
    max_attempts = tonumber(r[10]), worker_claim = r[11], last_token = r[12], last_verb = r[13],
    started_at = tonumber(r[14] or '0'), idem = r[15]}
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

local function enter_lane(job)
  local lane = lane_of(job)
  call('ZADD', K.ready(lane), int(job.priority * SLOT + job.seq), job.id)
  place_lane(lane)
end

-- serve_lane: after a job was taken from `lane`, the whole team goes to the end of the turn.
local function serve_lane(lane)
  place_lane(lane)
  local team = parts_of(lane)
  local turn = call('INCR', K.turn())
  for _, other in ipairs(call('SMEMBERS', K.team_lanes(team))) do
    local score = call('ZSCORE', K.turns(), other)
    if score then
      local priority = math.floor(tonumber(score) / SLOT)
      call('ZADD', K.turns(), int(priority * SLOT + turn), other)
    end
  end
end

-- leave_queue: out of whichever set a queued job is in.
local function leave_queue(job)
  call('ZREM', K.scheduled(), job.id)
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
  if ENDED[to] and not ENDED[from] then
    fields[#fields + 1] = 'finished_at'
    fields[#fields + 1] = int(now)
    if job.idem then call('PEXPIRE', K.idempotency(job.idem), IDEMPOTENCY_TTL_MS) end
  end
  call('HSET', K.job(job.id), 'state', to, 'updated_at', int(now), unpack(fields))
  local events = K.events(job.org_id)
  call('XADD', events, 'MAXLEN', '~', EVENTS_KEPT, seq .. '-0', 'job_id', job.id, 'prompt_id', job.prompt_id, 'user',
    job.created_by, 'state', to, 'from', from or '', 'verb', verb, 'attempt', int(job.attempt),
    'at', int(now), 'reason', reason)
  call('PEXPIRE', events, EVENTS_TTL_MS)
  call('ZADD', K.changed(job.org_id), seq, job.id)
  call('RPUSH', K.history(job.id), table.concat({seq, int(now), verb, from or '', to,
    int(job.attempt), reason}, '|'))
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

local function note_error(id, kind, message, fields)
  fields[#fields + 1] = 'error_kind'
  fields[#fields + 1] = kind
  call('SET', K.error(id), message)
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
