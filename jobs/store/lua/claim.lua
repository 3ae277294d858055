-- claim: lease the most urgent jobs, each to one attempt (A5).
-- ARGV: token count ceiling window_ms schema_min schema_max worker ticket_id ticket_names
-- Returns {OK, next_run_at, swept_at, more, now, job...}: next_run_at is '' where nothing is
-- scheduled; more is 1 where the look ended early; a job is {id, token, text, options, record}.
-- {REFUSED, reason} while RQ is suspended or the worker was asked to shut down. A claim that
-- is repeated with its token answers the same jobs and takes none.
local LOOK = 200 -- lanes looked at in one call
local DUE = 100 -- scheduled jobs promoted in one call
local MOST = 1000 -- jobs leased in one call
local GATES = 20 -- gates looked at where no lane is open

local function answer(id, lease, prompt_id)
  return {id, lease, call('GET', K.text(prompt_id)) or '', call('GET', K.options(id)) or '',
    call('HGETALL', K.job(id))}
end

-- set_aside_response: the answer that this job replaces is not the prompt's any more (A16).
local function set_aside_response(job)
  local old = call('HGET', K.prompt(job.prompt_id), 'response_id')
  if not old then return end
  call('HDEL', K.prompt(job.prompt_id), 'response_id')
  call('HSET', K.response(old), 'state_class', 'superseded')
end

local function ended(more, now, jobs, due)
  local reply = {'OK', due and int(due) or '', call('GET', K.swept_at()) or '', more, int(now)}
  for _, job in ipairs(jobs) do reply[#reply + 1] = job end
  return reply
end

local now = now_ms()
local known = call('LRANGE', K.claim(token), 0, -1)
if known[1] then
  local jobs = {}
  for n, id in ipairs(known) do
    local lease = token .. '.' .. n
    local r = call('HMGET', K.job(id), 'state', 'worker_claim', 'prompt_id', 'kind', 'team_id')
    if r[1] == 'running' and r[2] == lease then
      -- Its call begins now, and so does the time of its slots.
      if r[4] == 'generation' then take_slots({team_id = r[5]}, lease, now) end
      jobs[#jobs + 1] = answer(id, lease, r[3])
    end
  end
  return ended(0, now, jobs, next_due(now))
end
if call('EXISTS', RQ.suspended) == 1 then return {'REFUSED', 'suspended'} end
if worker ~= '' and call('HEXISTS', RQ.worker .. worker, 'shutdown_requested_date') == 1 then
  return {'REFUSED', 'shutdown'}
end

local due = next_due(now)
local is_due = due and due <= now
local found = is_due or call('EXISTS', K.turns(), K.released(), K.gates()) > 0
if not found then return ended(0, now, {}, due) end
call('SET', K.claimed_at(), int(now)) -- at maxmemory this refuses the claim as a whole
local more = 0
if is_due then
  if promote_due(now, DUE) == DUE then more = 1 end
  due = next_due(now)
end

release_some(20, now)

local taken, ids, names, looked, reopened = {}, {}, {}, 0, false
local want = math.min(tonumber(count), MOST)
while #taken < want do
  local head = call('ZRANGE', K.turns(), 0, 0, 'WITHSCORES')
  if not head[1] and not reopened then
    -- A lane that was let through may have gone otherwise: its room is the next one's.
    reopened = true
    for _, gate in ipairs(call('SRANDMEMBER', K.gates(), GATES)) do reopen_gate(gate, now) end
    head = call('ZRANGE', K.turns(), 0, 0, 'WITHSCORES')
  end
  if not head[1] then break end
  if math.floor(tonumber(head[2]) / SLOT) > tonumber(ceiling) then break end
  looked = looked + 1
  if looked > LOOK + want then
    more = 1
    break
  end
  local lane = head[1]
  local gate = shut_gate(lane, now)
  if gate then
    shut_lane(lane, gate, head[2])
    local reason = string.match(gate, '^(%a+_slots)')
    if reason then tally('limit:' .. reason) end
  else
    local id = call('ZPOPMIN', K.ready(lane))[1]
    local job = id and fetch(id)
    local runs = job and job.state == 'queued'
    if runs and job.schema_version < tonumber(schema_min) then
      expire(job, 'migration', 'the record is of a version that is not run any more', now)
    elseif runs and job.schema_version > tonumber(schema_max) then
      -- of a newer release: left for a worker that knows it
      call('ZADD', K.scheduled(), int(now + 60000), id)
    elseif runs and job.kind == 'generation' and job.expires_at and job.expires_at <= now then
      expire_late(job, now)
    elseif runs then
      if job.supersedes then set_aside_response(job) end
      local lease = token .. '.' .. (#taken + 1)
      call('ZADD', K.running(), int(now + tonumber(window_ms)), id)
      call('HINCRBY', K.running_by_org(), job.org_id, 1)
      if job.kind == 'generation' then begin_generation(job, lease, now) end
      if job.kind == 'step' then begin_step(job) end
      if is_turn(job) then begin_turn(job, now) end
      move(job, 'running', 'claim', now, '', {'worker_claim', lease, 'claimed_at', int(now),
        'started_at', int(now), 'running_heartbeat_at', int(now)})
      taken[#taken + 1] = job
      ids[#ids + 1] = id
      if #names < 20 then names[#names + 1] = job.kind .. ' ' .. id end
    end
    serve_lane(lane)
  end
end
local jobs = {}
if taken[1] then
  call('RPUSH', K.claim(token), unpack(ids))
  for n, job in ipairs(taken) do
    jobs[n] = answer(job.id, token .. '.' .. n, job.prompt_id)
  end
  call('PEXPIRE', K.claim(token), CLAIM_TTL_MS)
  local ticket = RQ.job .. ticket_id
  if ticket_id ~= '' and call('EXISTS', ticket) == 1 then
    local running = table.concat(names, ', ')
    if ticket_names ~= '' then running = ticket_names .. ', ' .. running end
    call('HSET', ticket, 'description', running)
  end
end
return ended(more, now, jobs, due)
